//! What the daemon changes by itself is shown at once, although the kernel had cached it: times,
//! links and modes after each change, with attributes that were read before.

use crate::data::store_through_map;
use crate::pair::{Place, as_user, nanoseconds, open, same};
use crate::programs::{executed, program, spare_of};
use crate::support::Setup;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, IFlags, Mode, OFlags, Uid, XattrFlags, chmod, chown,
    fallocate, ftruncate, statat,
};
use rustix::io::{Errno, pwrite};
use siftfs_client::{Access, Compound, Entry, Level, NewAttributes, Publish, Source, publish};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

const CHANGES: [&str; 19] = [
    "chattr",
    "chattr back",
    "chmod",
    "chown",
    "setxattr",
    "removexattr",
    "link",
    "rename",
    "unlink",
    "write",
    "append",
    "splice",
    "mmap",
    "fallocate",
    "punch",
    "copy",
    "truncate",
    "O_TRUNC",
    "nothing",
];

fn carry_out(c: &Place, path: &Path, change: &str) -> Result<(), Errno> {
    let write = |flags| open(path, OFlags::RDWR | flags, 0);
    let none = XattrFlags::empty();
    match change {
        "chattr" | "chattr back" => {
            let file = open(path, OFlags::RDONLY, 0)?;
            let old = rustix::fs::ioctl_getflags(&file)?;
            let new = old.symmetric_difference(IFlags::NODUMP);
            rustix::fs::ioctl_setflags(&file, new)
        }
        "chmod" => chmod(path, Mode::from_raw_mode(0o640)),
        "chown" => rustix::fs::chown(path, Some(rustix::fs::Uid::from_raw(1001)), None),
        "setxattr" => rustix::fs::setxattr(path, "user.a", b"1", none),
        "removexattr" => rustix::fs::removexattr(path, "user.a"),
        "link" => rustix::fs::link(path, c.p("second")),
        "rename" => rustix::fs::rename(c.p("second"), c.p("third")),
        "unlink" => rustix::fs::unlink(c.p("third")),
        "write" => rustix::io::write(write(OFlags::empty())?, b"x").map(drop),
        "append" => rustix::io::write(write(OFlags::APPEND)?, b"x").map(drop),
        "splice" => crate::rights::splice(&write(OFlags::empty())?),
        "mmap" => {
            store_through_map(&write(OFlags::empty())?, 0, 9);
            Ok(())
        }
        "fallocate" => fallocate(write(OFlags::empty())?, FallocateFlags::empty(), 0, 20_000),
        "punch" => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(write(OFlags::empty())?, flags, 0, 4096)
        }
        "copy" => {
            let (from, to) = (open(path, OFlags::RDONLY, 0)?, write(OFlags::empty())?);
            rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 4096), 100).map(drop)
        }
        "truncate" => ftruncate(write(OFlags::empty())?, 9000),
        "O_TRUNC" => write(OFlags::TRUNC).map(drop),
        "nothing" => Ok(()),
        _ => unreachable!(),
    }
}

/// The size, links, mode and both times, as they are known without asking for them anew.
fn known(path: &Path) -> [(i64, u64); 4] {
    let s = statat(CWD, path, AtFlags::empty()).unwrap();
    [
        (s.st_size, u64::from(s.st_mode)),
        (0, s.st_nlink),
        (s.st_mtime, nanoseconds(s.st_mtime_nsec)),
        (s.st_ctime, nanoseconds(s.st_ctime_nsec)),
    ]
}

#[test]
pub(crate) fn every_change_is_shown_at_once() {
    same(|c| {
        c.file("f", &[7; 8192]);
        for change in CHANGES {
            let before = known(&c.p("f"));
            // Clocks of the kernel stand still for some milliseconds.
            std::thread::sleep(Duration::from_millis(40));
            let result = carry_out(c, &c.p("f"), change);
            c.r(change, result);
            let after = known(&c.p("f"));
            let chattr = change.starts_with("chattr");
            // The kernel that owns a file's times does not show this one.
            let ctime = (chattr && c.held_back()) || after[3] > before[3];
            c.say(format!(
                "{change}: {:?} mtime {} ctime {ctime}",
                &after[..2],
                after[2] > before[2]
            ));
        }
    });
}

/// A program of user 1001's that every user may write, with its mode as it is before.
fn lay_out(s: &Setup, mode: u32) -> PathBuf {
    for dir in [s.tmp.path(), Path::new(s.dir())] {
        chmod(dir, Mode::from_raw_mode(0o755)).unwrap();
    }
    let path = s.path("f");
    std::fs::write(&path, program()).unwrap();
    chown(&path, Some(Uid::from_raw(1001)), Some(Gid::from_raw(2000))).unwrap();
    chmod(&path, Mode::from_raw_mode(mode)).unwrap();
    path
}

fn set_mode_by_compound(s: &Setup, perm: u16) {
    let dir = open(Path::new(s.dir()), OFlags::RDONLY | OFlags::DIRECTORY, 0).unwrap();
    let mut steps = Compound::on(&dir);
    let f = steps.open("f", Access::Read);
    steps.set_attributes(f, NewAttributes { perm: Some(perm), ..NewAttributes::default() });
    steps.run(Level::Visible).expect("carried out");
}

const SET_ID: &str = "executed as 1001:2000 with 0000000000000000, status Some(0)";
const PLAIN: &str = "executed as 1004:4000 with 0000000000000000, status Some(0)";

/// A compound sets set-id bits. The kernel, which has not asked since, takes the file for one that
/// a write changes nothing of, and announces none.
#[test]
pub(crate) fn bits_that_the_kernel_has_not_seen_go_as_well() {
    let spare = spare_of(u64::try_from(program().len()).unwrap());
    for change in ["none", "copy", "fallocate", "punch", "write", "splice"] {
        let s = Setup::new();
        s.mount("commit=1");
        let path = lay_out(&s, 0o777);
        let file = as_user(1002, &[3000], || {
            let file = open(&path, OFlags::RDWR, 0).unwrap();
            pwrite(&file, b"x", spare).unwrap();
            file
        });
        set_mode_by_compound(&s, 0o6777);
        as_user(1002, &[3000], || change_through(&file, spare, change)).unwrap();
        drop(file);
        let expected = if change == "none" { SET_ID } else { PLAIN };
        assert_eq!(executed(&path), expected, "after {change}");
        s.umount();
        s.assert_plain_ext4();
    }
}

fn file_len(file: &OwnedFd) -> u64 {
    u64::try_from(rustix::fs::fstat(file).unwrap().st_size).unwrap()
}

/// Asks for no attributes.
fn change_through(file: &OwnedFd, spare: u64, change: &str) -> Result<(), Errno> {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match change {
        "none" => Ok(()),
        "copy" => {
            let (mut from, mut to) = (0, spare);
            rustix::fs::copy_file_range(file, Some(&mut from), file, Some(&mut to), 10).map(drop)
        }
        "fallocate" => fallocate(file, FallocateFlags::empty(), spare, 20_000),
        "punch" => fallocate(file, punch, spare, 4096),
        "write" => pwrite(file, &[0], spare).map(drop),
        "splice" => crate::rights::splice(file),
        _ => unreachable!(),
    }
}

/// What changes a file's bytes past write(2) takes the bits away where the kernel grants them.
#[test]
fn compounds_and_sections_take_bits_away() {
    for how in ["compound", "section"] {
        let s = Setup::new();
        s.mount("commit=1");
        let path = lay_out(&s, 0o6777);
        assert_eq!(executed(&path), SET_ID);
        let user = if how == "section" { 1001 } else { 1002 };
        as_user(user, &[3000], || {
            let file = open(&path, OFlags::RDWR, 0).unwrap();
            let spare = spare_of(file_len(&file));
            if how == "compound" {
                let dir = open(Path::new(s.dir()), OFlags::RDONLY | OFlags::DIRECTORY, 0).unwrap();
                let mut steps = Compound::on(&dir);
                steps.write(&file, spare, &[0; 10]);
                steps.run(Level::Visible).expect("carried out");
            } else {
                let section = siftfs_client::Section::start(&file).expect("started");
                pwrite(&file, &[0; 10], spare).unwrap();
                section.commit().expect("committed");
            }
        });
        assert_eq!(executed(&path), PLAIN, "after a {how}");
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A file's links after the daemon itself took names away, and after a program did by another name.
#[test]
fn links_are_counted_anew() {
    let s = Setup::new();
    s.mount("commit=1");
    let links = |name: &str| statat(CWD, s.path(name), AtFlags::empty()).unwrap().st_nlink;
    std::fs::write(s.path("a"), "a").unwrap();
    for name in ["b", "c", "d"] {
        std::fs::hard_link(s.path("a"), s.path(name)).unwrap();
        std::fs::write(s.path(format!("{name}.new").as_str()), "new").unwrap();
    }
    let held = open(&s.path("a"), OFlags::RDONLY, 0).unwrap();
    assert_eq!(links("a"), 4);
    std::fs::remove_file(s.path("b")).unwrap();
    assert_eq!(links("a"), 3, "unlink of another name");
    let dir = open(Path::new(s.dir()), OFlags::RDONLY | OFlags::DIRECTORY, 0).unwrap();
    let over = Entry { source: Source::Path("c.new".into()), to: "c".into(), replace: true };
    publish(dir.as_fd(), &Publish { entries: vec![over], level: Level::Visible }).unwrap();
    assert_eq!((links("a"), links("c")), (2, 1), "a publish");
    let mut steps = Compound::on(&dir);
    steps.unlink("d");
    steps.run(Level::Visible).expect("carried out");
    assert_eq!(links("a"), 1, "a compound");
    std::fs::rename(s.path("b.new"), s.path("a")).unwrap();
    assert_eq!(rustix::fs::fstat(&held).unwrap().st_nlink, 0, "a rename");
    drop((held, dir));
    s.umount();
    s.assert_plain_ext4();
}
