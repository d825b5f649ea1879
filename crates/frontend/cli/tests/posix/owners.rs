//! Which users may do what: owners, modes, set-id bits, capabilities, umask, inheritance.

use crate::pair::{Place, as_user, open, same};
use rustix::fs::{
    Access, AtFlags, CWD, Gid, Mode, OFlags, Uid, XattrFlags, access, chmod, chown, chownat,
};

const USER: u32 = 1001;

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

fn own(c: &mut Place, name: &str, uid: u32, gid: u32) {
    let result = chown(c.p(name), Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    c.r(&format!("chown {name} {uid}:{gid}"), result);
}

fn set_mode(c: &mut Place, name: &str, bits: u32) {
    c.r(&format!("chmod {name} {bits:o}"), chmod(c.p(name), mode(bits)));
    c.stat(name);
}

#[test]
pub(crate) fn permissions_of_a_user() {
    same(|c| {
        c.file("f", b"secret");
        c.dir("d");
        c.file("d/inside", b"x");
        for bits in [0o000, 0o400, 0o200, 0o040, 0o004, 0o444, 0o666, 0o755] {
            for (uid, gid) in [(0, 0), (USER, USER), (0, USER)] {
                own(c, "f", uid, gid);
                own(c, "d", uid, gid);
                set_mode(c, "f", bits);
                set_mode(c, "d", bits);
                as_user(USER, &[USER, 2000], || try_all(c));
            }
        }
    });
}

fn try_all(c: &mut Place) {
    for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR | OFlags::TRUNC] {
        let opened = open(&c.p("f"), flags, 0);
        c.r("open", opened);
    }
    for what in [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK] {
        c.r("access", access(c.p("f"), what));
        c.r("access", access(c.p("d"), what));
    }
    c.r("chmod", chmod(c.p("f"), mode(0o600)));
    c.r("chmod", chmod(c.p("f"), mode(0o6777)));
    c.stat("f");
    c.r("list", open(&c.p("d"), OFlags::RDONLY | OFlags::DIRECTORY, 0));
    c.stat("d/inside");
    let made = open(&c.p("d/new"), OFlags::CREATE | OFlags::WRONLY, 0o644);
    c.r("create", made);
    c.r("unlink", rustix::fs::unlink(c.p("d/new")));
    for (uid, gid) in [(None, Some(2000)), (None, Some(3000)), (Some(USER), None), (Some(0), None)]
    {
        let result = chown(c.p("f"), uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        c.r("chown", result);
    }
    c.stat("f");
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 1 },
        last_modification: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 1 },
    };
    c.r("utimens", rustix::fs::utimensat(CWD, c.p("f"), &times, AtFlags::empty()));
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
    c.r("touch", rustix::fs::utimensat(CWD, c.p("f"), &times, AtFlags::empty()));
}

/// Bits that a change by a user without the right takes away.
#[test]
pub(crate) fn set_id_bits_and_capabilities_are_cleared() {
    same(|c| {
        let cap = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for bits in [0o6777, 0o4777, 0o2777, 0o2767, 0o6766, 0o1777, 0o755] {
            for (i, uid) in [0, USER].into_iter().enumerate() {
                for change in [
                    "write",
                    "truncate",
                    "ftruncate",
                    "O_TRUNC",
                    "chown",
                    "chgrp",
                    "fallocate",
                    "punch",
                    "mmap",
                    "append",
                    "nochange",
                    "direct",
                    "copy",
                    "empty",
                ] {
                    let name = format!("{change}-{bits:o}-{i}");
                    c.file(&name, &[7u8; 8192]);
                    own(c, &name, uid, 2000);
                    // Of a write by root the kernel says only that privileges go, not which:
                    // capabilities must, and set-id bits go with them, which is the safe side.
                    let told = uid != 0 || bits & 0o6000 == 0;
                    if told || ["chown", "chgrp", "nochange"].contains(&change) {
                        let set = XattrFlags::empty();
                        let result =
                            rustix::fs::setxattr(c.p(&name), "security.capability", &cap, set);
                        c.r("setcap", result);
                    }
                    set_mode(c, &name, bits);
                    as_user(uid, &[uid, 2000, 3000], || one_change(c, change, &name));
                    c.stat(&name);
                    let left = crate::pair::xattrs(&c.p(&name));
                    c.say(format!("{name} {left:?}"));
                }
            }
        }
    });
}

fn one_change(c: &mut Place, change: &str, name: &str) {
    use rustix::fs::{FallocateFlags, fallocate, ftruncate};
    let to = |gid| (None::<Uid>, Some(Gid::from_raw(gid)));
    let fd = c.open(name, OFlags::RDWR);
    let Some(fd) = fd else { return };
    match change {
        "write" => drop(c.r(change, rustix::io::write(&fd, b"x"))),
        "empty" => drop(c.r(change, rustix::io::write(&fd, b""))),
        "append" => {
            if let Some(fd) = c.open(name, OFlags::WRONLY | OFlags::APPEND) {
                c.r(change, rustix::io::write(&fd, b"x"));
            }
        }
        "direct" => {
            let page = Aligned([1; 4096]);
            if let Some(fd) = c.open(name, OFlags::WRONLY | OFlags::DIRECT) {
                c.r(change, rustix::io::pwrite(&fd, &page.0, 4096));
            }
        }
        "truncate" => {
            let result = std::fs::OpenOptions::new().write(true).open(c.p(name));
            c.say(format!("{:?}", result.and_then(|f| f.set_len(10)).map_err(|e| e.kind())));
        }
        "ftruncate" => drop(c.r(change, ftruncate(&fd, 100_000))),
        "O_TRUNC" => drop(c.open(name, OFlags::WRONLY | OFlags::TRUNC)),
        "chown" => {
            let uid = rustix::process::geteuid();
            c.r(change, chownat(CWD, c.p(name), Some(uid), None, AtFlags::empty()));
        }
        "chgrp" => {
            let (u, g) = to(3000);
            c.r(change, chownat(CWD, c.p(name), u, g, AtFlags::empty()));
        }
        "nochange" => drop(c.r(change, chownat(CWD, c.p(name), None, None, AtFlags::empty()))),
        "fallocate" => drop(c.r(change, fallocate(&fd, FallocateFlags::empty(), 0, 10_000))),
        "punch" => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            c.r(change, fallocate(&fd, flags, 0, 4096));
        }
        "copy" => {
            let input = c.open(name, OFlags::RDONLY);
            if let Some(input) = input {
                let (mut from, mut to) = (0, 4096);
                let copied =
                    rustix::fs::copy_file_range(&input, Some(&mut from), &fd, Some(&mut to), 100);
                c.v(change, copied);
            }
        }
        "mmap" => crate::data::store_through_map(&fd, 0, 1),
        _ => unreachable!(),
    }
}

#[repr(align(4096))]
struct Aligned([u8; 4096]);

#[test]
pub(crate) fn what_a_new_file_inherits() {
    same(|c| {
        c.dir("sg");
        own(c, "sg", USER, 3000);
        set_mode(c, "sg", 0o2777);
        c.dir("plain");
        set_mode(c, "plain", 0o777);
        for (uid, groups) in [(0, &[0][..]), (USER, &[USER]), (USER, &[USER, 3000])] {
            as_user(uid, groups, || {
                for mask in [0o000, 0o022, 0o077, 0o777] {
                    rustix::process::umask(mode(mask));
                    for dir in ["sg", "plain"] {
                        let base = format!("{dir}/{uid}-{}-{mask:o}", groups.len());
                        inherit(c, &base);
                    }
                }
            });
        }
    });
}

fn inherit(c: &mut Place, base: &str) {
    for bits in [0o644, 0o666, 0o2775, 0o6777] {
        let (f, d, n) =
            (format!("{base}-f{bits:o}"), format!("{base}-d{bits:o}"), format!("{base}-n{bits:o}"));
        c.r(&f, open(&c.p(&f), OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL, bits));
        c.r(&d, rustix::fs::mkdir(c.p(&d), mode(bits)));
        let kind = rustix::fs::FileType::Fifo;
        c.r(&n, rustix::fs::mknodat(CWD, c.p(&n), kind, mode(bits), 0));
        for name in [&f, &d, &n] {
            c.stat(name);
        }
    }
    let s = format!("{base}-s");
    c.r(&s, rustix::fs::symlink("x", c.p(&s)));
    c.stat(&s);
}

/// chmod of a file in a group that its owner is not in loses setgid; of directories too.
#[test]
pub(crate) fn setgid_of_a_foreign_group() {
    same(|c| {
        c.file("f", b"");
        c.dir("d");
        for gid in [USER, 3000, 4000] {
            for name in ["f", "d"] {
                own(c, name, USER, gid);
                for bits in [0o2755, 0o6777, 0o4711, 0o1777, 0o7777] {
                    as_user(USER, &[USER, 3000], || set_mode(c, name, bits));
                    set_mode(c, name, bits);
                }
                for bits in [0o2777, 0o6775, 0o4755] {
                    set_mode(c, name, bits);
                    own(c, name, USER, 4000);
                    c.stat(name);
                    own(c, name, USER, gid);
                }
            }
        }
        c.r("symlink", rustix::fs::symlink("f", c.p("s")));
        let (uid, gid) = (Some(Uid::from_raw(5)), Some(Gid::from_raw(6)));
        c.r("lchown", chownat(CWD, c.p("s"), uid, gid, AtFlags::SYMLINK_NOFOLLOW));
        c.stat("s");
        c.stat("f");
    });
}
