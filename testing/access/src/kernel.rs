//! The calls themselves, on the kernel's ext4, by a thread that is the caller.

#![allow(unsafe_code)] // ioctl(2) for inode flags, and a thread's own umask

use crate::draw::{Ask, Mode as How, Who, acl_bytes, value_of};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
    chmodat, chownat, lgetxattr, linkat, llistxattr, lremovexattr, lsetxattr, mkdirat, mknodat,
    openat, readlinkat, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const FS_IOC_SETFLAGS: libc::c_ulong = 0x4008_6602;
const FS_IOC_GETFLAGS: libc::c_ulong = 0x8008_6601;

type Said = Result<(), i32>;

/// Runs `act` on a thread that is `who`.
///
/// # Panics
/// If the kernel does not let root become that caller.
pub fn act_as<T: Send>(who: &Who, act: impl FnOnce() -> T + Send) -> T {
    let body = || {
        // SAFETY: only place and umask stop being shared; nobody relies on this thread's.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.expect("its own umask");
        rustix::process::umask(Mode::empty());
        rustix::thread::set_keep_capabilities(true).expect("keep capabilities");
        let groups: Vec<Gid> = who.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        rustix::thread::set_thread_groups(&groups).expect("groups");
        let (gid, uid) = (Gid::from_raw(who.gid), Uid::from_raw(who.uid));
        rustix::thread::set_thread_res_gid(gid, gid, gid).expect("group");
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("user");
        let bits = who.capabilities.iter().fold(0u64, |bits, number| bits | 1 << number);
        let effective = CapabilitySet::from_bits_retain(bits);
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective, permitted: effective, inheritable: none };
        rustix::thread::set_capabilities(None, sets).expect("capabilities");
        act()
    };
    std::thread::scope(|scope| scope.spawn(body).join().expect("no panic"))
}

fn said<T>(result: Result<T, Errno>) -> Said {
    result.map(drop).map_err(Errno::raw_os_error)
}

/// The inode flags of an open file.
///
/// # Errors
/// What the kernel answers.
pub fn flags_of(file: &OwnedFd) -> Result<u32, i32> {
    let mut flags: libc::c_long = 0;
    // SAFETY: the kernel writes one number of at most this size.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFLAGS, &mut flags) };
    match done {
        0 => Ok(flags as u32),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// Sets the inode flags of an open file.
///
/// # Errors
/// What the kernel answers.
pub fn set_flags(file: &OwnedFd, flags: u32) -> Said {
    let flags = libc::c_long::from(flags);
    // SAFETY: the kernel reads one number of at most this size.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_SETFLAGS, &flags) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// Opens what may carry flags, as root.
///
/// # Errors
/// What the kernel answers.
pub fn open_for_flags(path: &Path) -> Result<OwnedFd, i32> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(Errno::raw_os_error)
}

/// Makes the call below `root`, as the caller.
pub fn call(root: &Path, who: &Who, ask: &Ask) -> Said {
    if let Ask::SetFlags(path, wanted) = ask {
        let file = open_for_flags(&root.join(path))?;
        let keep = flags_of(&file)? & !siftfs_proto::flags::SETTABLE;
        return act_as(who, || set_flags(&file, keep | wanted));
    }
    act_as(who, || names(root, ask))
}

fn names(root: &Path, ask: &Ask) -> Said {
    let at = |path: &str| -> PathBuf { root.join(path) };
    let mode = |perm: &u16| Mode::from_raw_mode((*perm).into());
    let none = AtFlags::empty();
    match ask {
        Ask::Stat(path) => said(statat(CWD, at(path), AtFlags::SYMLINK_NOFOLLOW)),
        Ask::ReadLink(path) => said(readlinkat(CWD, at(path), Vec::new())),
        Ask::Create(path, perm) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            said(openat(CWD, at(path), flags, mode(perm)))
        }
        Ask::MakeDir(path, perm) => said(mkdirat(CWD, at(path), mode(perm))),
        Ask::MakePipe(path, perm) => said(mknodat(CWD, at(path), FileType::Fifo, mode(perm), 0)),
        Ask::MakeDevice(path) => {
            said(mknodat(CWD, at(path), FileType::CharacterDevice, mode(&0o600), 0x105))
        }
        Ask::Symlink(path) => said(symlinkat("f", CWD, at(path))),
        Ask::Unnamed(path) => {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            said(openat(CWD, at(path), flags, mode(&0o600)))
        }
        Ask::Link(from, to) => said(linkat(CWD, at(from), CWD, at(to), none)),
        Ask::Unlink(path) => said(unlinkat(CWD, at(path), none)),
        Ask::RemoveDir(path) => said(unlinkat(CWD, at(path), AtFlags::REMOVEDIR)),
        Ask::Rename(from, to, how) => {
            let flags = match how {
                How::Replace => RenameFlags::empty(),
                How::NoReplace => RenameFlags::NOREPLACE,
                How::Exchange => RenameFlags::EXCHANGE,
            };
            said(renameat_with(CWD, at(from), CWD, at(to), flags))
        }
        other => files(root, other),
    }
}

fn files(root: &Path, ask: &Ask) -> Said {
    let at = |path: &str| -> PathBuf { root.join(path) };
    let plain = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match ask {
        Ask::Open { path, read, write, truncate } => {
            let mut flags = plain;
            flags.set(OFlags::RDWR, *read && *write);
            flags.set(OFlags::WRONLY, !*read && *write);
            flags.set(OFlags::TRUNC, *truncate);
            said(openat(CWD, at(path), flags, Mode::empty()))
        }
        Ask::List(path) => said(openat(CWD, at(path), plain | OFlags::DIRECTORY, Mode::empty())),
        Ask::Write(path) => {
            let file = openat(CWD, at(path), plain | OFlags::WRONLY, Mode::empty())
                .map_err(Errno::raw_os_error)?;
            said(rustix::io::pwrite(&file, b"w", 0))
        }
        Ask::Chmod(path, perm) => {
            said(chmodat(CWD, at(path), Mode::from_raw_mode((*perm).into()), AtFlags::empty()))
        }
        Ask::Chown(path, uid, gid) => said(chownat(
            CWD,
            at(path),
            uid.map(Uid::from_raw),
            gid.map(Gid::from_raw),
            AtFlags::SYMLINK_NOFOLLOW,
        )),
        Ask::Times(path, now) => {
            let nsec = if *now { rustix::fs::UTIME_NOW } else { 5 };
            let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: nsec };
            let times = Timestamps { last_access: time, last_modification: time };
            said(utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW))
        }
        Ask::Truncate(path, size) => truncate(&at(path), *size),
        Ask::GetXattr(path, name) => said(lgetxattr(at(path), *name, &mut [0; 100])),
        Ask::SetXattr(path, name) => {
            said(lsetxattr(at(path), *name, &value_of(name), XattrFlags::empty()))
        }
        Ask::SetAcl(path, list) => {
            let name = "system.posix_acl_access";
            said(lsetxattr(at(path), name, &acl_bytes(list), XattrFlags::empty()))
        }
        Ask::RemoveXattr(path, name) => said(lremovexattr(at(path), *name)),
        Ask::ListXattr(path) => said(llistxattr(at(path), &mut [0; 1000])),
        other => unreachable!("a call about names: {other:?}"),
    }
}

fn truncate(path: &Path, size: u64) -> Said {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: the path ends with NUL and lives as long as the call.
    match unsafe { libc::truncate(path.as_ptr(), size as libc::off_t) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}
