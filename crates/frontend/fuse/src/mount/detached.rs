//! A new mount that is nowhere yet: the kernel has it and its descriptor stands for it, until it is
//! put on a directory. It ends with its last descriptor if it is not.
//!
//! The daemon puts its first mount on the directory itself. Every other one is put there by the
//! command that asks for it, which is sent the descriptor. So the directory is found, and the mount
//! put there, with the rights and in the mount namespace of the caller. No path is looked up twice,
//! so that no program could exchange it in between. And no thread of the daemon waits for the lock
//! of a directory, which may be one of its own mount's.

use crate::mount::fuse_mount::MountOptions;
use crate::mount::mountinfo::{MountEntry, mount_of_id};
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A mount that is nowhere yet.
pub(crate) struct Detached {
    tree: OwnedFd,
    /// The mount's number, which it keeps.
    id: u64,
}

impl Detached {
    /// Makes the mount. The kernel's first request waits on `device` then.
    pub(crate) fn new(device: &OwnedFd, o: &MountOptions) -> io::Result<Self> {
        let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |name: &str, value: &str| fsconfig_set_string(&context, name, value);
        fsconfig_set_string(&context, "source", &o.source)?;
        if let Some(subtype) = &o.subtype {
            set("subtype", subtype)?;
        }
        set("fd", &device.as_raw_fd().to_string())?;
        set("rootmode", "40000")?;
        set("user_id", &rustix::process::geteuid().as_raw().to_string())?;
        set("group_id", &rustix::process::getegid().as_raw().to_string())?;
        let flags = [
            ("default_permissions", true),
            ("allow_other", o.allow_other),
            ("ro", o.read_only),
            ("sync", o.sync),
        ];
        for (name, _) in flags.iter().filter(|(_, on)| *on) {
            fsconfig_set_flag(&context, *name)?;
        }
        fsconfig_create(&context)?;
        let tree = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(o))?;
        let id = number_of(tree.as_fd())?;
        Ok(Self { tree, id })
    }

    /// The descriptor that stands for it.
    pub(crate) fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    /// The mount as the table of this mount namespace lists it; `None` if it is not there.
    pub(crate) fn entry(&self) -> io::Result<Option<MountEntry>> {
        Ok(mount_of_id(self.id)?.filter(MountEntry::is_fuse))
    }
}

/// Puts a mount that is nowhere yet on a directory, on top of what is mounted there.
///
/// # Errors
/// Those of move_mount(2).
pub fn attach(tree: BorrowedFd<'_>, dir: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(tree, "", CWD, dir, flags)?)
}

/// Takes a mount away by the descriptor that [`attach`] was given, wherever it is now.
///
/// # Errors
/// It is nowhere.
pub fn take_back(tree: BorrowedFd<'_>) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", tree.as_raw_fd());
    Ok(rustix::mount::unmount(path, UnmountFlags::DETACH)?)
}

/// The flags of this mount alone. Access times are the Runtime's, not the kernel's: here they are
/// to be seen in the table of mounts.
fn attributes(o: &MountOptions) -> MountAttrFlags {
    // Access times of directories are not kept.
    let mut flags = MountAttrFlags::MOUNT_ATTR_NODIRATIME;
    flags.set(MountAttrFlags::MOUNT_ATTR_RDONLY, o.read_only);
    flags.set(MountAttrFlags::MOUNT_ATTR_NOSUID, o.nosuid);
    flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, o.nodev);
    flags.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, o.noexec);
    // Relative ones are the kernel's default, and its flag has no bits.
    flags.set(MountAttrFlags::MOUNT_ATTR_NOATIME, o.noatime);
    flags
}

/// The number of the mount that an open file lies on. The kernel answers this itself.
fn number_of(file: BorrowedFd<'_>) -> io::Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    number.ok_or_else(|| io::Error::other("the kernel does not say which mount a file is on"))
}
