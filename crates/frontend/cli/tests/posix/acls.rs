//! Access control lists, with setfacl(1) and getfacl(1) and by the calls below them.

use crate::pair::{Place, as_user, open, same};
use crate::support::run;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags};
use rustix::fs::{getxattr, lsetxattr, mkdir, mknodat, removexattr, setxattr};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const USER: u32 = 1001;

const USER_OBJ: u16 = 1;
const NAMED_USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const NAMED_GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// A list as setxattr(2) takes it: tag, permissions, id.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

/// An access control list with a named user, whose mask is `mask`.
fn for_user(user: u16, mask: u16) -> Vec<u8> {
    let none = u32::MAX;
    list(&[
        (USER_OBJ, 7, none),
        (NAMED_USER, user, USER),
        (GROUP_OBJ, 5, none),
        (MASK, mask, none),
        (OTHER, 0, none),
    ])
}

fn setfacl(c: &mut Place, args: &str) {
    let mut words: Vec<String> = args.split(' ').map(Into::into).collect();
    let file = words.pop().unwrap();
    words.push(c.p(&file).to_str().unwrap().into());
    let ran = run("setfacl", &words.iter().map(String::as_str).collect::<Vec<_>>());
    let root = c.p("");
    let err = ran.err.replace(root.to_str().unwrap(), "");
    c.say(format!("setfacl {args}: {} {err}", ran.code));
    show(c, &file);
}

fn show(c: &mut Place, file: &str) {
    let ran = run("getfacl", &["-c", "-p", "-n", c.p(file).to_str().unwrap()]);
    c.say(format!("getfacl {file}: {} {}", ran.code, ran.out.replace('\n', " ")));
    c.stat(file);
}

#[test]
fn setfacl_and_getfacl() {
    same(|c| {
        c.file("f", b"x");
        c.dir("d");
        c.r("symlink", rustix::fs::symlink("f", c.p("s")));
        for args in [
            "-m u:1001:rwx f",
            "-m g:3000:r,u:1002:x f",
            "-m m::r f",
            "-x u:1001 f",
            "-m u:1001:w f",
            "-b f",
            "-m u::rx,g::-,o::rw f",
            "-m u:1001:- f",
            "-x u:1001 f",
            "-x m f",
            "-b f",
            "-d -m u:1001:rwx f",
            "-k f",
            "-d -m u:1001:rwx,g:3000:rx d",
            "-m u:1001:rx d",
            "-d -x u:1001 d",
            "-k d",
            "-b d",
            "-d -m u::rwx,g::rx,o::- d",
            "-m u:1001:rw s",
            "-R -m u:1003:r d",
        ] {
            setfacl(c, args);
        }
        // Many entries: more than the inode holds.
        for i in 0..60 {
            let args = format!("-m u:{}:rw,d:g:{}:rx d", 5000 + i, 6000 + i);
            let words: Vec<&str> = args.split(' ').take(2).collect();
            let path = c.p("d");
            let ran = run("setfacl", &[words[0], words[1], path.to_str().unwrap()]);
            c.say(format!("{args}: {}", ran.code));
        }
        show(c, "d");
        c.dir("d/below");
        show(c, "d/below");
    });
}

#[test]
fn what_is_no_list_is_refused() {
    same(|c| {
        let none = XattrFlags::empty();
        c.file("f", b"x");
        c.dir("d");
        c.r("symlink", rustix::fs::symlink("f", c.p("s")));
        let good = for_user(7, 7);
        let minimal =
            list(&[(USER_OBJ, 6, u32::MAX), (GROUP_OBJ, 4, u32::MAX), (OTHER, 1, u32::MAX)]);
        let n = u32::MAX;
        let values = vec![
            ("good", good.clone()),
            ("minimal", minimal),
            ("empty", Vec::new()),
            ("no entries", list(&[])),
            ("short", good[..good.len() - 1].to_vec()),
            ("version", [&[1, 0, 0, 0][..], &good[4..]].concat()),
            ("no mask", list(&[(1, 7, n), (2, 7, 5), (4, 7, n), (32, 0, n)])),
            ("no owner", list(&[(4, 7, n), (32, 0, n)])),
            ("order", list(&[(4, 7, n), (1, 7, n), (32, 0, n)])),
            ("twice", list(&[(1, 7, n), (1, 7, n), (4, 7, n), (32, 0, n)])),
            ("permissions", list(&[(1, 8, n), (4, 7, n), (32, 0, n)])),
            ("tag", list(&[(1, 7, n), (3, 7, n), (4, 7, n), (32, 0, n)])),
            ("only a mask", list(&[(1, 7, n), (4, 5, n), (16, 1, n), (32, 0, n)])),
        ];
        let groups: Vec<_> = (0..600).map(|i| (NAMED_GROUP, 5, 10_000 + i)).collect();
        let ends = [(MASK, 7, n), (OTHER, 0, n)];
        let starts = [(USER_OBJ, 7, n), (GROUP_OBJ, 5, n)];
        let too_large = list(&[&starts[..], &groups, &ends].concat());
        // ENOSPC by ext4, E2BIG by the kernel's FUSE.
        let refused = setxattr(c.p("d"), ACCESS, &too_large, none).is_err();
        c.say(format!("too large is refused: {refused}"));
        c.stat("d");
        for (what, value) in &values {
            for (name, file) in [(ACCESS, "f"), (ACCESS, "d"), (DEFAULT, "d"), (DEFAULT, "f")] {
                c.r(&format!("{what}: {name} of {file}"), setxattr(c.p(file), name, value, none));
                c.v("get", getxattr(c.p(file), name, &mut vec![0; 20_000][..]));
                c.stat(file);
            }
        }
        for name in [ACCESS, DEFAULT] {
            c.r("on a symlink", lsetxattr(c.p("s"), name, &good, none));
            c.r("remove", removexattr(c.p("f"), name));
            c.r("remove again", removexattr(c.p("f"), name));
            c.r("create", setxattr(c.p("d"), name, &good, XattrFlags::CREATE));
            c.r("create again", setxattr(c.p("d"), name, &good, XattrFlags::CREATE));
            c.r("replace", setxattr(c.p("d"), name, &good, XattrFlags::REPLACE));
            c.v("size", getxattr(c.p("d"), name, &mut [0u8; 0][..]));
            c.v("too small", getxattr(c.p("d"), name, &mut [0u8; 5][..]));
        }
        c.stat("f");
        c.stat("d");
        say_xattrs(c, "d");
        as_user(USER, &[USER], || {
            c.r("not its owner", setxattr(c.p("d"), ACCESS, &good, none));
            c.r("not its owner", removexattr(c.p("d"), ACCESS));
            c.v("but anybody reads it", getxattr(c.p("d"), ACCESS, &mut [0u8; 99][..]));
        });
    });
}

fn say_xattrs(c: &mut Place, file: &str) {
    let names = crate::pair::xattrs(&c.p(file));
    c.say(format!("{file}: {names:?}"));
}

#[test]
pub(crate) fn chmod_and_lists_go_together() {
    same(|c| {
        c.file("f", b"x");
        c.dir("d");
        for file in ["f", "d"] {
            c.r("set", setxattr(c.p(file), ACCESS, &for_user(7, 7), XattrFlags::empty()));
            show(c, file);
            for mode in [0, 0o640, 0o777, 0o4755, 0o2770, 0o1007, 0o070] {
                c.r(&format!("chmod {mode:o}"), rustix::fs::chmod(c.p(file), mode.into()));
                show(c, file);
            }
            let (uid, gid) = (rustix::fs::Uid::from_raw(USER), rustix::fs::Gid::from_raw(3000));
            c.r("chown", rustix::fs::chown(c.p(file), Some(uid), Some(gid)));
            show(c, file);
        }
        // With a list, a user outside the group loses setgid; a member keeps it.
        for groups in [&[USER][..], &[USER, 3000]] {
            c.r("chmod", rustix::fs::chmod(c.p("f"), 0o2775.into()));
            as_user(USER, groups, || {
                c.r("set", setxattr(c.p("f"), ACCESS, &for_user(6, 7), XattrFlags::empty()));
            });
            show(c, "f");
        }
    });
}

#[test]
pub(crate) fn what_is_made_inherits() {
    same(|c| {
        let n = u32::MAX;
        let lists: Vec<(&str, Option<Vec<u8>>)> = vec![
            ("none", None),
            ("minimal", Some(list(&[(1, 7, n), (4, 5, n), (32, 0, n)]))),
            ("user", Some(for_user(6, 7))),
            ("narrow", Some(for_user(7, 4))),
            ("open", Some(list(&[(1, 7, n), (4, 7, n), (8, 7, 3000), (16, 7, n), (32, 7, n)]))),
        ];
        for (dir, acl) in &lists {
            c.dir_mode(dir, 0o2777);
            if let Some(acl) = acl {
                c.r("set", setxattr(c.p(dir), DEFAULT, acl, XattrFlags::empty()));
            }
            for umask in [0, 0o022, 0o077, 0o777] {
                let old = rustix::process::umask(Mode::from_raw_mode(umask));
                for mode in [0o666, 0o777, 0o600, 0o4751] {
                    make_all(c, dir, &format!("{umask:o}-{mode:o}"), mode);
                }
                rustix::process::umask(old);
            }
            as_user(USER, &[USER], || make_all(c, dir, "theirs", 0o2770));
        }
        // What a subdirectory inherits it hands on.
        c.dir("user/more");
        c.file("user/more/f", b"x");
        show(c, "user/more");
        show(c, "user/more/f");
    });
}

fn make_all(c: &mut Place, dir: &str, name: &str, mode: u32) {
    let at = |kind: &str| format!("{dir}/{kind}{name}");
    let made = open(&c.p(&at("f")), OFlags::CREATE | OFlags::RDWR | OFlags::EXCL, mode);
    c.r(&at("f"), made);
    show(c, &at("f"));
    c.r(&at("d"), mkdir(c.p(&at("d")), Mode::from_raw_mode(mode)));
    show(c, &at("d"));
    let fifo = rustix::fs::FileType::Fifo;
    c.r(&at("p"), mknodat(CWD, c.p(&at("p")), fifo, Mode::from_raw_mode(mode), 0));
    show(c, &at("p"));
    c.r(&at("s"), rustix::fs::symlink("x", c.p(&at("s"))));
    c.stat(&at("s"));
    let unnamed = open(&c.p(dir), OFlags::TMPFILE | OFlags::RDWR, mode);
    if let Some(f) = c.r("unnamed", unnamed) {
        let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&f));
        let to = c.p(&at("t"));
        c.r("link", rustix::fs::linkat(CWD, proc, CWD, to, AtFlags::SYMLINK_FOLLOW));
        show(c, &at("t"));
    }
}

#[test]
pub(crate) fn lists_decide_who_gets_in() {
    same(|c| {
        let n = u32::MAX;
        c.dir_mode("d", 0o700);
        c.file("d/f", b"x");
        c.r("chmod", rustix::fs::chmod(c.p("d/f"), 0o600.into()));
        let none = XattrFlags::empty();
        let tries = |c: &mut Place| {
            for (uid, groups) in [(USER, &[USER][..]), (1002, &[1002, 3000]), (1003, &[1003])] {
                as_user(uid, groups, || {
                    for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
                        let opened = open(&c.p("d/f"), flags, 0).map(drop);
                        c.r(&format!("{uid} opens {flags:?}"), opened);
                    }
                    let listed = std::fs::read_dir(c.p("d")).map(|d| d.count());
                    c.say(format!("{uid} lists: {:?}", listed.map_err(|e| e.raw_os_error())));
                    let made = open(&c.p("d/new"), OFlags::CREATE | OFlags::RDWR, 0o600);
                    c.r(&format!("{uid} creates"), made.map(drop));
                    c.r("unlink", rustix::fs::unlink(c.p("d/new")));
                });
            }
        };
        tries(c);
        let both = |user: u16, group: u16, mask: u16| {
            list(&[
                (1, 7, n),
                (2, user, USER),
                (4, 0, n),
                (8, group, 3000),
                (16, mask, n),
                (32, 0, n),
            ])
        };
        for (user, group, mask) in [(5, 0, 7), (7, 5, 7), (7, 7, 5), (0, 7, 7), (7, 7, 0)] {
            c.r("d", setxattr(c.p("d"), ACCESS, &both(user, group, mask), none));
            c.r("f", setxattr(c.p("d/f"), ACCESS, &both(user & 6, group & 6, mask), none));
            tries(c);
        }
        c.r("chmod takes the mask away", rustix::fs::chmod(c.p("d"), 0o700.into()));
        tries(c);
        c.r("chmod gives it back", rustix::fs::chmod(c.p("d"), 0o770.into()));
        tries(c);
        c.r("remove", removexattr(c.p("d/f"), ACCESS));
        tries(c);
    });
}
