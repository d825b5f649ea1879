//! chattr(1): immutable, append-only, no dump, no access times.

use crate::data::Map;
use crate::pair::{Place, as_user, open, same};
use crate::support::Setup;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags, Timespec,
    Timestamps, XattrFlags, chmod, chown, fallocate, ftruncate, ioctl_getflags, ioctl_setflags,
    renameat_with,
};
use rustix::io::{Errno, pwrite, write};
use rustix::mm::MapFlags;
use rustix::process::Signal;
use std::path::Path;

/// What both file systems show of a file's flags: not how ext4 keeps it.
const SHOWN: IFlags = IFlags::IMMUTABLE
    .union(IFlags::APPEND)
    .union(IFlags::NODUMP)
    .union(IFlags::NOATIME)
    .union(IFlags::SYNC);

fn flags(path: &Path) -> Result<IFlags, Errno> {
    ioctl_getflags(open(path, OFlags::RDONLY, 0)?)
}

/// As chattr(1): reads, changes, sets.
fn change(path: &Path, set: IFlags, clear: IFlags) -> Result<(), Errno> {
    let fd = open(path, OFlags::RDONLY, 0)?;
    let old = ioctl_getflags(&fd)?;
    ioctl_setflags(&fd, old.union(set).difference(clear))
}

fn set(c: &mut Place, name: &str, what: IFlags) {
    let result = change(&c.p(name), what, SHOWN.difference(what));
    c.r(&format!("set {name} {what:?}"), result);
    show(c, name);
}

fn show(c: &mut Place, name: &str) {
    let shown = flags(&c.p(name)).map(|f| f.intersection(SHOWN));
    c.v(&format!("flags {name}"), shown);
}

/// Everything that could change `f`, or a name in `d`.
fn try_all(c: &mut Place, f: &str, d: &str) {
    let p = |c: &Place, name: &str| c.p(&format!("{d}/{name}"));
    for flags in [
        OFlags::WRONLY,
        OFlags::RDWR,
        OFlags::WRONLY | OFlags::APPEND,
        OFlags::WRONLY | OFlags::TRUNC,
        OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC,
    ] {
        if let Some(fd) = c.open(f, flags) {
            c.v("write", write(&fd, b"more"));
            c.r("truncate", ftruncate(&fd, 3));
            for mode in [
                FallocateFlags::empty(),
                FallocateFlags::KEEP_SIZE,
                FallocateFlags::ZERO_RANGE,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            ] {
                c.r(&format!("fallocate {mode:?}"), fallocate(&fd, mode, 0, 10));
            }
            if let Some(from) = c.open("other", OFlags::RDONLY) {
                let n = rustix::fs::copy_file_range(&from, Some(&mut 0), &fd, None, 5);
                c.v("copy", n);
            }
        }
    }
    c.r("chmod", chmod(c.p(f), Mode::from_raw_mode(0o600)));
    c.r("chown", chown(c.p(f), Some(rustix::fs::Uid::from_raw(7)), None));
    c.r("chown of nothing", chown(c.p(f), None, None));
    for (tv_sec, tv_nsec) in [(0, libc::UTIME_NOW), (5, 5)] {
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        c.r("utimes", rustix::fs::utimensat(CWD, c.p(f), &times, AtFlags::empty()));
    }
    let none = XattrFlags::empty();
    c.r("setxattr", rustix::fs::setxattr(c.p(f), "user.a", b"1", none));
    c.r("removexattr", rustix::fs::removexattr(c.p(f), "user.a"));
    c.r("link", rustix::fs::link(c.p(f), c.p("linked")));
    c.r("create", open(&p(c, "new"), OFlags::CREATE | OFlags::WRONLY, 0o644).map(drop));
    let unnamed = open(&c.p(d), OFlags::TMPFILE | OFlags::WRONLY, 0o600);
    c.r("tmpfile", unnamed.map(drop));
    c.r("mkdir", rustix::fs::mkdir(p(c, "newdir"), Mode::from_raw_mode(0o755)));
    c.r("symlink", rustix::fs::symlink("x", p(c, "link")));
    let pipe =
        rustix::fs::mknodat(CWD, p(c, "pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0);
    c.r("mknod", pipe);
    c.r("link into", rustix::fs::link(c.p("other"), p(c, "hard")));
    c.r("rename into", rustix::fs::rename(c.p("mover"), p(c, "moved")));
    c.r("rename over", rustix::fs::rename(p(c, "a"), p(c, "b")));
    c.r("rename out", rustix::fs::rename(p(c, "b"), c.p("out")));
    let both = renameat_with(CWD, p(c, "c"), CWD, c.p("other"), RenameFlags::EXCHANGE);
    c.r("exchange", both);
    c.r("unlink", rustix::fs::unlink(p(c, "e")));
    c.r("rmdir", rustix::fs::rmdir(p(c, "sub")));
    c.r("rename onto it", rustix::fs::rename(c.p("last"), c.p(f)));
    c.r("rename it", rustix::fs::rename(c.p(f), c.p("renamed")));
    c.r("unlink it", rustix::fs::unlink(c.p(f)));
    for name in [f, d, "linked", "renamed", "other"] {
        c.stat(name);
    }
}

fn populate(c: &mut Place) {
    c.dir("d");
    c.dir("d/sub");
    for name in ["f", "other", "mover", "last", "d/a", "d/b", "d/c", "d/e"] {
        c.file(name, name.as_bytes());
    }
}

#[test]
fn immutable_files_and_directories() {
    same(|c| {
        populate(c);
        set(c, "f", IFlags::IMMUTABLE);
        set(c, "d", IFlags::IMMUTABLE);
        try_all(c, "f", "d");
        set(c, "f", IFlags::IMMUTABLE | IFlags::NODUMP);
        set(c, "f", IFlags::empty());
        set(c, "d", IFlags::empty());
        try_all(c, "f", "d");
    });
}

#[test]
pub(crate) fn append_only_files_and_directories() {
    same(|c| {
        populate(c);
        set(c, "f", IFlags::APPEND);
        set(c, "d", IFlags::APPEND);
        try_all(c, "f", "d");
        c.content("f");
        set(c, "f", IFlags::APPEND | IFlags::IMMUTABLE);
        set(c, "d", IFlags::empty());
        set(c, "f", IFlags::empty());
        try_all(c, "f", "d");
    });
}

#[test]
pub(crate) fn who_may_set_which() {
    same(|c| {
        populate(c);
        c.r("chown", chown(c.p("f"), Some(rustix::fs::Uid::from_raw(1001)), None));
        for (uid, what) in [
            (1001, IFlags::NODUMP),
            (1001, IFlags::NODUMP | IFlags::NOATIME),
            (1001, IFlags::IMMUTABLE),
            (1002, IFlags::empty()),
            (0, IFlags::IMMUTABLE),
            (1001, IFlags::empty()),
            (0, IFlags::empty()),
        ] {
            let path = c.p("f");
            let result = as_user(uid, &[uid], || change(&path, what, SHOWN.difference(what)));
            c.r(&format!("{uid} sets {what:?}"), result);
            show(c, "f");
        }
        c.ctime_is_stale("f");
        set(c, "d", IFlags::NODUMP | IFlags::NOATIME);
        for name in ["d/child", "d/other"] {
            c.file(name, b"x");
            show(c, name);
        }
        c.dir("d/dir");
        show(c, "d/dir");
        let unknown = change(&c.p("f"), IFlags::from_bits_retain(0x8000_0000), IFlags::empty());
        c.r("unknown", unknown);
    });
}

/// A descriptor from before chattr(1), and a mapping: what the descriptor is asked for is answered
/// as ever, but nothing is written through it, whether or not a program has read the file's
/// attributes in between.
#[test]
pub(crate) fn an_open_descriptor_changes_nothing_either() {
    same(|c| {
        c.file("f", &[b'x'; 8192]);
        let Some(fd) = c.open("f", OFlags::RDWR) else { return };
        let map = Map::new(&fd, 0, 8192, MapFlags::SHARED).unwrap();
        map.store(100, b"before");
        c.v("write", pwrite(&fd, b"first", 0));
        set(c, "f", IFlags::IMMUTABLE);
        for _ in 0..20 {
            c.v("write", pwrite(&fd, b"after", 0));
            c.stat("f");
            c.v("write", pwrite(&fd, b"after", 8190));
            c.v("fstat", rustix::fs::fstat(&fd).map(|s| (s.st_size, s.st_mode)));
            c.v("read", rustix::io::pread(&fd, &mut [0u8; 100][..], 8180));
            c.v("end", rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0)));
            c.v("list", std::fs::read_dir(c.p(".")).map(Iterator::count).map_err(|_| Errno::IO));
        }
        c.r("truncate", ftruncate(&fd, 0));
        c.content("f");
        set(c, "f", IFlags::empty());
        c.v("write", pwrite(&fd, b"again", 0));
        drop(map);
        c.content("f");
    });
}

/// Flags are durable when chattr(1) returns, with all that the file was before; flags that cannot
/// be set say so.
#[test]
fn flags_survive_a_kill() {
    let setup = Setup::new();
    setup.mount("commit=30");
    for (name, what) in [("i", IFlags::IMMUTABLE), ("a", IFlags::APPEND), ("d", IFlags::NODUMP)] {
        std::fs::write(setup.path(name), name).unwrap();
        change(&setup.path(name), what, IFlags::empty()).unwrap();
    }
    let refused = change(&setup.path("d"), IFlags::SYNC, IFlags::empty());
    assert_eq!(refused, Err(Errno::OPNOTSUPP));
    let daemon = setup.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    setup.mount("commit=30");
    for (name, what) in [("i", IFlags::IMMUTABLE), ("a", IFlags::APPEND), ("d", IFlags::NODUMP)] {
        assert_eq!(flags(&setup.path(name)).unwrap().intersection(SHOWN), what);
        assert_eq!(std::fs::read_to_string(setup.path(name)).unwrap(), name);
        let removed = std::fs::remove_file(setup.path(name));
        assert_eq!(removed.is_ok(), name == "d", "{name}");
    }
    setup.umount();
    setup.assert_plain_ext4();
    let kernel = crate::pair::Ext4::mount(Path::new(setup.volume()), "loop,ro");
    assert_eq!(flags(&kernel.dir.join("i")).unwrap().intersection(SHOWN), IFlags::IMMUTABLE);
}
