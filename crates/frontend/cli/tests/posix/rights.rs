//! Which users take setuid, setgid and file capabilities away, by what: every kind of user beside
//! ext4. After each change the file is executed before anything else is asked of it: what counts is
//! what the kernel grants, and a question for the file's attributes could mend what it knows.
//!
//! Two differences are on purpose. ext4 lets any user take the capabilities, and nothing else, from
//! any file by chown(path, -1, -1); here only the owner may. And root's write to a file with
//! capabilities and set-id bits takes both away, where ext4 leaves the bits: the kernel does not
//! tell us the write from a chown.

use crate::data::store_through_map;
use crate::pair::{Place, as_user, open, same, xattrs};
use crate::programs::{SPARE, executed, program, spare_of};
use crate::support::Setup;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmod,
    chown, chownat, fallocate, fchown, ftruncate,
};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

const CAP: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const CAPABILITY: &str = "security.capability";
/// The first byte of any program.
const FIRST: &[u8] = &[0x7f];
/// The file belongs to user 1001 and group 2000.
const USERS: [(&str, u32, &[u32]); 6] = [
    ("owner in the group", 1001, &[2000]),
    ("owner", 1001, &[3000]),
    ("root", 0, &[0]),
    ("other", 1002, &[3000]),
    ("member", 1003, &[2000]),
    ("member by a further group", 1003, &[3000, 2000]),
];
pub(crate) const CHOWNS: [&str; 3] = ["chown", "fchown", "lchown"];
const WRITES: [&str; 9] =
    ["write", "append", "fallocate", "punch", "zero", "copy", "splice", "direct", "passed"];
pub(crate) const CHANGES: [&str; 25] = [
    "chown",
    "fchown",
    "lchown",
    "to oneself",
    "to root",
    "to the group",
    "to another group",
    "chmod",
    "utimes",
    "touch",
    "setcap",
    "rmcap",
    "write",
    "append",
    "truncate",
    "ftruncate",
    "O_TRUNC",
    "fallocate",
    "punch",
    "zero",
    "copy",
    "splice",
    "direct",
    "mmap",
    "passed",
];

fn make(c: &mut Place, name: &str, content: &[u8], (bits, caps): (u32, bool)) {
    c.file(name, content);
    let owner = (Some(Uid::from_raw(1001)), Some(Gid::from_raw(2000)));
    chown(c.p(name), owner.0, owner.1).unwrap();
    if caps {
        rustix::fs::setxattr(c.p(name), CAPABILITY, &CAP, XattrFlags::empty()).unwrap();
    }
    chmod(c.p(name), Mode::from_raw_mode(bits)).unwrap();
}

fn change_all(c: &mut Place, bits: u32, caps: bool) {
    let content = program();
    for change in CHANGES {
        for (who, uid, groups) in USERS {
            let bare = bits & 0o4000 == 0 && (bits & 0o2000 == 0 || groups.contains(&2000));
            if caps && CHOWNS.contains(&change) && uid > 1001 && bare {
                continue;
            }
            if caps && uid == 0 && bits & 0o6000 != 0 && WRITES.contains(&change) {
                continue;
            }
            make(c, "f", &content, (bits, caps));
            let passed = (change == "passed").then(|| open(&c.p("f"), OFlags::RDWR, 0).unwrap());
            let mut result = as_user(uid, groups, || carry_out(&c.p("f"), change, passed));
            // Where the kernel still has to close the file that was made, a stranger's chown is
            // answered 0 and changes nothing (limits).
            let end = Instant::now() + Duration::from_millis(200);
            while result.is_ok() && CHOWNS.contains(&change) && uid > 1001 && Instant::now() < end {
                result = as_user(uid, groups, || carry_out(&c.p("f"), change, None));
            }
            c.r(&format!("{bits:o} caps {caps}: {change} by {who}"), result);
            if change == "O_TRUNC" && result.is_ok() {
                // Root keeps what is left of the bits.
                let all = open(&c.p("f"), OFlags::WRONLY, 0).unwrap();
                assert_eq!(rustix::io::write(all, &content), Ok(content.len()));
            }
            c.say(executed(&c.p("f")));
            c.stat("f");
            let left = xattrs(&c.p("f"));
            c.say(format!("{left:?}"));
            std::fs::remove_file(c.p("f")).unwrap();
        }
    }
}

/// Writes the first byte of any program to a file, out of a pipe.
#[allow(unsafe_code)]
pub(crate) fn splice(file: &OwnedFd) -> Result<(), Errno> {
    let (from, mut to) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut to, FIRST).unwrap();
    let (from, to, none) = (from.as_raw_fd(), file.as_raw_fd(), std::ptr::null_mut());
    // SAFETY: both descriptors are open, and no memory is passed.
    match unsafe { libc::splice(from, none, to, none, FIRST.len(), 0) } {
        1 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("of the system")),
    }
}

fn program_len() -> u64 {
    u64::try_from(program().len()).unwrap()
}

#[repr(align(4096))]
struct Page([u8; 4096]);

pub(crate) fn carry_out(path: &Path, change: &str, passed: Option<OwnedFd>) -> Result<(), Errno> {
    let (uid, gid) = (|n| Some(Uid::from_raw(n)), |n| Some(Gid::from_raw(n)));
    let write = |flags| open(path, OFlags::RDWR | flags, 0);
    let len = program_len();
    let spare = spare_of(len);
    let at = |tv_sec, tv_nsec| {
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
    };
    match change {
        "chown" => chown(path, None, None),
        "fchown" => fchown(open(path, OFlags::RDONLY, 0)?, None, None),
        "lchown" => chownat(CWD, path, None, None, AtFlags::SYMLINK_NOFOLLOW),
        "to oneself" => chown(path, Some(rustix::process::geteuid()), None),
        "to root" => chown(path, uid(0), None),
        "to the group" => chown(path, None, gid(2000)),
        "to another group" => chown(path, None, gid(3000)),
        "chmod" => chmod(path, Mode::from_raw_mode(0o6755)),
        "utimes" => at(1, 1),
        "touch" => at(0, libc::UTIME_NOW),
        "setcap" => rustix::fs::setxattr(path, CAPABILITY, &CAP, XattrFlags::empty()),
        "rmcap" => rustix::fs::removexattr(path, CAPABILITY),
        "write" => rustix::io::write(write(OFlags::empty())?, FIRST).map(drop),
        "append" => rustix::io::write(write(OFlags::APPEND)?, b"x").map(drop),
        "truncate" => std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|f| f.set_len(len - 1))
            .map_err(|e| Errno::from_io_error(&e).unwrap()),
        "ftruncate" => ftruncate(write(OFlags::empty())?, len + 10_000),
        "O_TRUNC" => write(OFlags::TRUNC).map(drop),
        "fallocate" => {
            fallocate(write(OFlags::empty())?, FallocateFlags::empty(), spare, 2 * SPARE)
        }
        "punch" => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(write(OFlags::empty())?, flags, spare, 4096)
        }
        "zero" => fallocate(write(OFlags::empty())?, FallocateFlags::ZERO_RANGE, spare, 4096),
        "copy" => {
            let (from, to) = (open(path, OFlags::RDONLY, 0)?, write(OFlags::empty())?);
            rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut { spare }), 100)
                .map(drop)
        }
        "splice" => splice(&write(OFlags::empty())?),
        "direct" => {
            let page = Page([0; 4096]);
            rustix::io::pwrite(write(OFlags::DIRECT)?, &page.0, spare).map(drop)
        }
        "mmap" => {
            store_through_map(&write(OFlags::empty())?, 0, FIRST[0]);
            Ok(())
        }
        "passed" => rustix::io::write(passed.expect("opened by root"), FIRST).map(drop),
        _ => unreachable!(),
    }
}

#[test]
pub(crate) fn changes_by_every_kind_of_user() {
    same(|c| {
        for bits in [0o6777, 0o2767, 0o6766] {
            change_all(c, bits, false);
        }
    });
}

#[test]
pub(crate) fn changes_of_files_with_capabilities() {
    same(|c| {
        for bits in [0o777, 0o2767, 0o6755] {
            change_all(c, bits, true);
        }
    });
}

#[test]
pub(crate) fn directories_and_links_keep_their_bits() {
    same(|c| {
        c.dir("d");
        let owner = (Some(Uid::from_raw(1001)), Some(Gid::from_raw(2000)));
        chown(c.p("d"), owner.0, owner.1).unwrap();
        chmod(c.p("d"), Mode::from_raw_mode(0o6777)).unwrap();
        rustix::fs::symlink("d", c.p("link")).unwrap();
        for (who, uid, groups) in USERS {
            for name in ["d", "link"] {
                let path = c.p(name);
                let result = as_user(uid, groups, || chown(&path, None, None));
                c.r(&format!("chown {name} by {who}"), result);
                c.stat("d");
            }
        }
    });
}

/// Stricter than ext4: capabilities go with a change of the data, or by their owner.
#[test]
pub(crate) fn a_stranger_takes_nothing() {
    let setup = Setup::new();
    setup.mount("commit=1");
    let holder_there = [false, true];
    for (bits, holder) in
        [0o755, 0o6755, 0o2745].into_iter().flat_map(|b| holder_there.map(|h| (b, h)))
    {
        let path = setup.path("f");
        std::fs::write(&path, "x").unwrap();
        rustix::fs::setxattr(&path, CAPABILITY, &CAP, XattrFlags::empty()).unwrap();
        chmod(&path, Mode::from_raw_mode(bits)).unwrap();
        open_up(&setup);
        // Another user has the file open for writing: the kernel's message could be a write's.
        let held = holder.then(|| open(&path, OFlags::WRONLY, 0).unwrap());
        let result = as_user(1002, &[3000], || chown(&path, None, None));
        let expected = if holder { Ok(()) } else { Err(Errno::PERM) };
        assert_eq!(result, expected, "{bits:o}, held {holder}");
        let stat = rustix::fs::stat(&path).unwrap();
        assert_eq!(stat.st_mode & 0o7777, bits, "held {holder}");
        assert_eq!(xattrs(&path).len(), 1, "{bits:o}, held {holder}");
        drop(held);
        std::fs::remove_file(&path).unwrap();
    }
    setup.umount();
}

fn open_up(setup: &Setup) {
    for dir in [setup.tmp.path(), Path::new(setup.dir())] {
        chmod(dir, Mode::from_raw_mode(0o755)).unwrap();
    }
}
