//! A bind mount that maps users to others (mount_setattr(2), as containers with user namespaces
//! have it), and the mount itself, beside ext4: what is made, changed and executed through each.

use crate::pair::{Place, as_user, open, same_with, xattrs};
use crate::programs::{executed, program};
use crate::rights::{CHANGES, CHOWNS, carry_out};
use crate::support::{Setup, maps_users, patient, run};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, XattrFlags, chmod, chown, linkat, mkdir,
    mknodat, setxattr, symlink,
};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use siftfs_client::{Compound, Entry, Level, Publish, Section, Source, publish};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What the mount adds to a user's number.
const FIRST: u32 = 100_000;
/// Users that are mapped.
const USERS: u32 = 10_000;

/// A process in a user namespace of its own, which is all it does.
struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--user", "sleep", "infinity"]).stdin(Stdio::null());
        let space = Self(command.spawn().unwrap());
        let own = std::fs::read_link("/proc/self/ns/user").unwrap();
        while std::fs::read_link(space.path("ns/user")).unwrap() == own {
            std::thread::yield_now();
        }
        for map in ["uid_map", "gid_map"] {
            std::fs::write(space.path(map), format!("0 {FIRST} {USERS}")).unwrap();
        }
        space
    }

    fn path(&self, what: &str) -> String {
        format!("/proc/{}/{what}", self.0.id())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Binds `from` to `to`, with its users mapped.
fn bind_mapped(from: &Path, to: &Path) -> Result<(), Errno> {
    let space = Namespace::new();
    let users = open(Path::new(&space.path("ns/user")), OFlags::RDONLY, 0)?;
    let tree =
        open_tree(CWD, from, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    map_users(&tree, &users)?;
    move_mount(&tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

#[allow(unsafe_code)]
fn map_users(tree: &OwnedFd, users: &OwnedFd) -> Result<(), Errno> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(users.as_raw_fd()).unwrap(),
    };
    let (at, size) = (&raw const attr, size_of::<libc::mount_attr>());
    // SAFETY: the path is empty and ends with NUL; the structure is as long as is said.
    let done = unsafe {
        let (tree, path) = (tree.as_raw_fd(), c"".as_ptr());
        libc::syscall(libc::SYS_mount_setattr, tree, path, libc::AT_EMPTY_PATH, at, size)
    };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("of the system")),
    }
}

/// `d`, and the same directory as `mapped`.
fn lay_out(c: &mut Place) {
    for dir in ["d", "mapped"] {
        c.dir(dir);
    }
    c.r("chmod", chmod(c.p("d"), Mode::from_raw_mode(0o777)));
    for (name, mode) in [("d/sticky", 0o1777), ("d/group", 0o2777)] {
        c.dir(name);
        c.r("chown", chown(c.p(name), None, Some(Gid::from_raw(2000))));
        c.r("chmod", chmod(c.p(name), Mode::from_raw_mode(mode)));
    }
    let bound = bind_mapped(&c.p("d"), &c.p("mapped"));
    c.r("an idmapped mount", bound).expect("both have it");
}

fn finish(c: &Place) {
    patient(|| run("umount", &[c.p("mapped").to_str().unwrap()])).ok();
}

/// Users as they act: root, one that is not mapped, and mapped ones.
const CALLERS: [(&str, u32, &[u32]); 5] = [
    ("root", 0, &[0]),
    ("not mapped", 1001, &[2000]),
    ("mapped", FIRST + 1001, &[FIRST + 2000]),
    ("another mapped", FIRST + 1002, &[FIRST + 3000]),
    ("mapped to root", FIRST, &[FIRST]),
];

fn use_names(c: &mut Place, dir: &str, who: &str) {
    let at = |name: &str| format!("{dir}/{name}");
    let p = |c: &Place, name: &str| c.p(&at(name));
    c.r("create", open(&p(c, "f"), OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o640));
    c.r("mkdir", mkdir(p(c, "dir"), Mode::from_raw_mode(0o755)));
    c.r("symlink", symlink("f", p(c, "s")));
    c.r("mknod", mknodat(CWD, p(c, "pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0));
    let unnamed = open(&c.p(dir), OFlags::TMPFILE | OFlags::RDWR, 0o600);
    if let Some(unnamed) = c.r("tmpfile", unnamed) {
        let path = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
        c.r("link", linkat(CWD, path, CWD, p(c, "named"), AtFlags::SYMLINK_FOLLOW));
    }
    for name in ["f", "dir", "s", "pipe", "named"] {
        c.stat(&at(name));
    }
    c.v("write", open(&p(c, "f"), OFlags::WRONLY, 0).and_then(|f| rustix::io::write(f, b"text")));
    c.content(&at("f"));
    c.r("setxattr", setxattr(p(c, "f"), "user.a", b"1", XattrFlags::empty()));
    c.r("trusted", setxattr(p(c, "f"), "trusted.a", b"1", XattrFlags::empty()));
    c.say(format!("{who} lists {:?}", names_of(&p(c, "f"))));
    c.r("chmod", chmod(p(c, "f"), Mode::from_raw_mode(0o604)));
    let me = rustix::process::geteuid().as_raw();
    for (uid, gid) in [(Some(me), None), (None, Some(FIRST + 2000)), (Some(FIRST + 5), None)] {
        let result = chown(p(c, "f"), uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        c.r(
            &format!("chown {}", uid.map_or("group", |u| if u == me { "me" } else { "other" })),
            result,
        );
        c.stat(&at("f"));
    }
    c.r("rename", rustix::fs::rename(p(c, "f"), p(c, "g")));
    c.r("link", rustix::fs::link(p(c, "g"), p(c, "linked")));
}

fn names_of(path: &Path) -> Result<Vec<u8>, Errno> {
    let mut buf = [0u8; 200];
    let len = rustix::fs::listxattr(path, &mut buf[..])?;
    Ok(buf[..len].to_vec())
}

/// Takes away what [`use_names`] left of another caller's.
fn remove_all(c: &mut Place, dir: &str) {
    for name in ["f", "s", "pipe", "named", "linked"] {
        c.r(&format!("unlink {name}"), rustix::fs::unlink(c.p(&format!("{dir}/{name}"))));
    }
    c.r("replace", rustix::fs::rename(c.p(&format!("{dir}/g")), c.p(&format!("{dir}/h"))));
    c.r("rmdir", rustix::fs::rmdir(c.p(&format!("{dir}/dir"))));
}

#[test]
fn names_of_mapped_users() {
    same_with("commit=1,idmap", |c| {
        lay_out(c);
        for (maker, uid, groups) in CALLERS {
            for (remover, other, other_groups) in CALLERS {
                for (made, seen) in [
                    ("mapped", "d"),
                    ("mapped/sticky", "mapped/sticky"),
                    ("d/group", "mapped/group"),
                ] {
                    c.say(format!("{made} by {maker}, {seen} by {remover}"));
                    as_user(uid, groups, || use_names(c, made, maker));
                    for name in ["g", "named", "linked"] {
                        c.stat(&format!("{seen}/{name}"));
                    }
                    as_user(other, other_groups, || remove_all(c, seen));
                    for name in ["f", "g", "h", "s", "pipe", "named", "linked"] {
                        let _ = std::fs::remove_file(c.p(&format!("{made}/{name}")));
                    }
                    let _ = std::fs::remove_dir(c.p(&format!("{made}/dir")));
                }
            }
        }
        finish(c);
    });
}

/// A program of user 1001's and group 2000's, which is `FIRST` more through the mapped mount, is
/// changed there, and executed through both.
#[test]
pub(crate) fn programs_of_mapped_users() {
    let content = program();
    same_with("commit=1,idmap", |c| {
        lay_out(c);
        for (bits, caps) in [(0o6777, false), (0o4777, false), (0o777, true)] {
            for change in CHANGES.into_iter().filter(|change| !CHOWNS.contains(change)) {
                for (who, uid, groups) in CALLERS {
                    c.file("d/f", &content);
                    chown(c.p("d/f"), Some(Uid::from_raw(1001)), Some(Gid::from_raw(2000)))
                        .unwrap();
                    if caps {
                        let cap = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                        let none = XattrFlags::empty();
                        setxattr(c.p("d/f"), "security.capability", &cap, none).unwrap();
                    }
                    chmod(c.p("d/f"), Mode::from_raw_mode(bits)).unwrap();
                    let path = c.p("mapped/f");
                    let passed =
                        (change == "passed").then(|| open(&path, OFlags::RDWR, 0).unwrap());
                    let result = as_user(uid, groups, || carry_out(&path, change, passed));
                    c.r(&format!("{bits:o} caps {caps}: {change} by {who}"), result);
                    if change == "O_TRUNC" && result.is_ok() {
                        let all = open(&c.p("d/f"), OFlags::WRONLY, 0).unwrap();
                        assert_eq!(rustix::io::write(all, &content), Ok(content.len()));
                    }
                    c.say(executed(&c.p("d/f")));
                    c.say(executed(&path));
                    c.stat("d/f");
                    c.stat("mapped/f");
                    c.say(format!("{:?}", xattrs(&c.p("d/f"))));
                    std::fs::remove_file(c.p("d/f")).unwrap();
                }
            }
        }
        finish(c);
    });
}

/// Permissions that we check ourselves, by whose files are whose, are not known of mapped users.
#[test]
fn what_only_we_decide_is_roots_alone() {
    let s = Setup::new();
    s.mount("idmap");
    for dir in [s.tmp.path(), Path::new(s.dir())] {
        chmod(dir, Mode::from_raw_mode(0o777)).unwrap();
    }
    let ask = || {
        let dir = open(Path::new(s.dir()), OFlags::RDONLY | OFlags::DIRECTORY, 0).unwrap();
        let mut steps = Compound::on(&dir);
        steps.create("by a compound", 0o644);
        let compound = match steps.run(Level::Visible) {
            Ok(_) => Ok(()),
            Err(e) => Err(std::io::Error::from(e).raw_os_error()),
        };
        let to = "published".into();
        let entry = Entry { source: Source::Path("by a compound".into()), to, replace: true };
        let names = Publish { entries: vec![entry], level: Level::Visible };
        let published = publish(dir.as_fd(), &names).map_err(|e| e.raw_os_error());
        let file = open(&s.path("own"), OFlags::RDWR | OFlags::CREATE, 0o600).unwrap();
        let section = Section::start(&file).map(drop).map_err(|e| e.raw_os_error());
        std::fs::remove_file(s.path("own")).unwrap();
        [compound, published, section]
    };
    let (perm, acces) = (Err(Some(libc::EPERM)), Err(Some(libc::EACCES)));
    assert_eq!(as_user(1001, &[1001], ask), [perm, perm, acces]);
    assert_eq!(as_user(0, &[0], ask), [Ok(()); 3]);
    s.umount();
    s.assert_plain_ext4();
}

/// Whose the files are that a publish or a compound makes is known on other mounts alone.
#[test]
fn none_of_our_operations_through_a_mapped_mount() {
    let s = Setup::new();
    s.mount("idmap");
    for dir in ["d", "mapped"] {
        std::fs::create_dir(s.path(dir)).unwrap();
    }
    bind_mapped(&s.path("d"), &s.path("mapped")).unwrap();
    for (dir, expected) in [("mapped", Err(Some(libc::EOPNOTSUPP))), ("d", Ok(()))] {
        let dir = open(&s.path(dir), OFlags::RDONLY | OFlags::DIRECTORY, 0).unwrap();
        let mut steps = Compound::on(&dir);
        steps.create("by a compound", 0o644);
        let done = steps.run(Level::Visible).map(drop);
        assert_eq!(done.map_err(|e| std::io::Error::from(e).raw_os_error()), expected);
        let source = Source::Path("by a compound".into());
        let entries = vec![Entry { source, to: "published".into(), replace: true }];
        let names = Publish { entries, level: Level::Visible };
        assert_eq!(publish(dir.as_fd(), &names).map_err(|e| e.raw_os_error()), expected);
    }
    run("umount", &[s.path("mapped").to_str().unwrap()]).ok();
    s.umount();
    s.assert_plain_ext4();
}

/// Without the option no mount is idmapped, and every caller is known.
#[test]
fn without_the_option() {
    let s = Setup::new();
    s.mount("");
    for dir in ["d", "mapped"] {
        std::fs::create_dir(s.path(dir)).unwrap();
    }
    let bound = bind_mapped(&s.path("d"), &s.path("mapped"));
    // The tests of modes mount with it.
    assert_eq!(bound.is_ok(), maps_users(), "{bound:?}");
    let _ = run("umount", &[s.path("mapped").to_str().unwrap()]);
    s.umount();
}
