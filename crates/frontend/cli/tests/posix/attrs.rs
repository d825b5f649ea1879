//! Times, extended attributes, statfs, locks.

use crate::data::Map;
use crate::pair::{Place, open, same};
use rustix::fs::{
    AtFlags, CWD, FlockOperation, OFlags, Timespec, Timestamps, XattrFlags, fcntl_lock, flock,
    ftruncate, getxattr, listxattr, removexattr, setxattr, statat, utimensat,
};
use rustix::io::{pread, pwrite};
use rustix::mm::MapFlags;
use std::time::Duration;

const UNITS: &[&str] = &["atime", "mtime", "ctime"];

/// Waits until the clock has moved by which a kernel stamps files. On a busy machine its ticks come
/// late, whatever the time that a thread has slept.
fn wait_for_a_tick() {
    let now = || rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let start = now();
    while now() == start {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Which of a file's times a change moved.
fn moved(c: &mut Place, what: &str, name: &str, change: impl FnOnce(&mut Place)) {
    let get = |c: &Place| {
        let s = statat(CWD, c.p(name), AtFlags::SYMLINK_NOFOLLOW).unwrap();
        [
            (s.st_atime, s.st_atime_nsec),
            (s.st_mtime, s.st_mtime_nsec),
            (s.st_ctime, s.st_ctime_nsec),
        ]
    };
    let before = get(c);
    wait_for_a_tick();
    change(c);
    let after = get(c);
    let list: Vec<_> = (1..3).filter(|i| before[*i] != after[*i]).map(|i| UNITS[i]).collect();
    assert!(before[2] <= after[2], "{what}: ctime goes back");
    c.say(format!("{what} of {name} moves {list:?}"));
}

#[test]
pub(crate) fn what_moves_times() {
    same(|c| {
        c.dir("d");
        c.file("d/f", &[1; 10_000]);
        let Some(f) = c.open("d/f", OFlags::RDWR) else { return };
        moved(c, "write", "d/f", |c| c.v("", pwrite(&f, b"x", 0)));
        moved(c, "empty write", "d/f", |c| c.v("", pwrite(&f, b"", 0)));
        moved(c, "read", "d/f", |c| c.v("", pread(&f, &mut [0u8; 10], 0)));
        moved(c, "truncate", "d/f", |c| c.v("", ftruncate(&f, 100)));
        moved(c, "truncate to the same", "d/f", |c| c.v("", ftruncate(&f, 100)));
        moved(c, "truncate up", "d/f", |c| c.v("", ftruncate(&f, 10_000)));
        moved(c, "truncate(2) to the same", "d/f", |c| {
            let set = std::fs::OpenOptions::new().write(true).open(c.p("d/f"));
            set.unwrap().set_len(10_000).unwrap();
        });
        moved(c, "chmod", "d/f", |c| c.v("", rustix::fs::fchmod(&f, 0o600.into())));
        moved(c, "chmod same", "d/f", |c| c.v("", rustix::fs::fchmod(&f, 0o600.into())));
        moved(c, "chown none", "d/f", |c| c.v("", rustix::fs::fchown(&f, None, None)));
        moved(c, "fsync", "d/f", |c| c.v("", rustix::fs::fsync(&f)));
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        moved(c, "prealloc", "d/f", |c| c.v("", rustix::fs::fallocate(&f, keep, 0, 50_000)));
        let none = rustix::fs::FallocateFlags::empty();
        moved(c, "grow", "d/f", |c| c.v("", rustix::fs::fallocate(&f, none, 0, 90_000)));
        let punch = keep | rustix::fs::FallocateFlags::PUNCH_HOLE;
        moved(c, "punch", "d/f", |c| c.v("", rustix::fs::fallocate(&f, punch, 0, 5000)));
        moved(c, "map", "d/f", |_| crate::data::store_through_map(&f, 0, 3));
        let flags = XattrFlags::empty();
        moved(c, "xattr", "d/f", |c| c.v("", setxattr(c.p("d/f"), "user.a", b"1", flags)));
        moved(c, "no xattr", "d/f", |c| c.v("", removexattr(c.p("d/f"), "user.a")));
        moved(c, "open with O_TRUNC", "d/f", |c| drop(c.open("d/f", OFlags::RDWR | OFlags::TRUNC)));
        moved(c, "O_TRUNC of empty", "d/f", |c| drop(c.open("d/f", OFlags::RDWR | OFlags::TRUNC)));
        names_move_times(c);
    });
}

fn names_move_times(c: &mut Place) {
    let link = |c: &mut Place, a: &str, b: &str| {
        c.v("", rustix::fs::linkat(CWD, c.p(a), CWD, c.p(b), AtFlags::empty()));
    };
    moved(c, "link", "d/f", |c| link(c, "d/f", "g"));
    moved(c, "link", "d", |c| link(c, "d/f", "d/g"));
    moved(c, "failed link", "d", |c| link(c, "d/f", "d/g"));
    moved(c, "unlink", "d/f", |c| c.v("", rustix::fs::unlink(c.p("g"))));
    moved(c, "unlink", "d", |c| c.v("", rustix::fs::unlink(c.p("d/g"))));
    moved(c, "rename", "d", |c| c.v("", rustix::fs::rename(c.p("d/f"), c.p("d/h"))));
    moved(c, "rename back", "d/h", |c| {
        c.v("", rustix::fs::rename(c.p("d/h"), c.p("d/f")));
        c.v("", rustix::fs::rename(c.p("d/f"), c.p("d/h")));
    });
    moved(c, "mkdir", "d", |c| c.dir("d/sub"));
    moved(c, "create below", "d", |c| c.file("d/sub/x", b"1"));
    moved(c, "rename from below", "d/sub", |c| {
        c.v("", rustix::fs::rename(c.p("d/sub/x"), c.p("x")));
    });
    moved(c, "move of a directory", "d/sub", |c| {
        c.v("", rustix::fs::rename(c.p("d/sub"), c.p("sub")));
        c.v("", rustix::fs::rename(c.p("sub"), c.p("d/sub")));
    });
    moved(c, "rmdir", "d", |c| c.v("", rustix::fs::rmdir(c.p("d/sub"))));
    moved(c, "write below", "d", |c| c.file("d/h", b"1"));
}

/// A time that is set is later than what was stored through a mapping before, whenever that is
/// written; and what is stored after it is later.
#[test]
pub(crate) fn times_are_set_after_stores() {
    same(|c| {
        let Some(f) = c.open("f", OFlags::CREATE | OFlags::RDWR) else { return };
        c.r("truncate", ftruncate(&f, 1 << 16));
        let map = Map::new(&f, 0, 1 << 16, MapFlags::SHARED).unwrap();
        let t = Timespec { tv_sec: 1_234_567_890, tv_nsec: 5 };
        let both = Timestamps { last_access: t, last_modification: t };
        let shown = |c: &mut Place, when: &str| {
            let s = statat(CWD, c.p("f"), AtFlags::empty()).unwrap();
            c.say(format!("{when}: {}", s.st_mtime == t.tv_sec && s.st_mtime_nsec == 5));
        };
        for (round, by_path) in [(1, true), (2, false)] {
            map.store(round * 5000, &[1; 3]);
            match by_path {
                true => c.r("utimensat", utimensat(CWD, c.p("f"), &both, AtFlags::empty())),
                false => c.r("futimens", rustix::fs::futimens(&f, &both)),
            };
            shown(c, "set");
            c.r("msync", map.sync());
            shown(c, "synced");
            map.store(round * 5000, &[2; 3]);
            c.r("msync", map.sync());
            shown(c, "stored again");
        }
        map.store(20_000, &[1; 3]);
        c.r("futimens", rustix::fs::futimens(&f, &both));
        drop((map, f));
        shown(c, "closed");
    });
}

#[test]
pub(crate) fn times_are_set() {
    same(|c| {
        c.file("f", b"x");
        c.dir("d");
        c.r("symlink", rustix::fs::symlink("f", c.p("s")));
        let omit = libc::UTIME_OMIT;
        let times = [
            (0, 0),
            (1, 999_999_999),
            (-1, 0),
            (-1, 999_999_999),
            (-2_147_483_648, 5),
            (2_147_483_647, 999_999_999),
            (2_147_483_648, 1),
            (4_294_967_295, 0),
            (4_294_967_296, 7),
            (8_589_934_592, 3),
            (15_032_385_535, 0),
            (0, 1_000_000_000),
            (0, -1),
            (12, omit),
            (1_700_000_000, 123_456_789),
        ];
        for name in ["f", "d", "s"] {
            for (sec, nsec) in times {
                let t = Timespec { tv_sec: sec, tv_nsec: nsec };
                let other = Timespec { tv_sec: 1_600_000_000, tv_nsec: 17 };
                for (a, m) in [(t, other), (other, t)] {
                    let both = Timestamps { last_access: a, last_modification: m };
                    let set = utimensat(CWD, c.p(name), &both, AtFlags::SYMLINK_NOFOLLOW);
                    c.r(&format!("utimensat {name} {sec}.{nsec}"), set);
                    let s = statat(CWD, c.p(name), AtFlags::SYMLINK_NOFOLLOW).unwrap();
                    let (m, m_nsec) = c.mtime(&s);
                    c.say(format!("{} {} {m} {m_nsec}", s.st_atime, s.st_atime_nsec));
                }
            }
        }
        // The reference clamps what ext4's format cannot say, at both ends.
        for sec in [
            -2_147_483_649,
            15_032_385_536,
            i64::MAX / 2,
            i64::MIN / 2,
            i64::MIN,
            i64::MIN + 1,
            i64::MAX,
        ] {
            let t = Timespec { tv_sec: sec, tv_nsec: 5 };
            let both = Timestamps { last_access: t, last_modification: t };
            c.r("utimensat", utimensat(CWD, c.p("f"), &both, AtFlags::empty()));
            let s = statat(CWD, c.p("f"), AtFlags::empty()).unwrap();
            // With the writeback cache the kernel keeps any time until the inode leaves memory.
            assert!(!c.held_back() || s.st_mtime == sec, "{sec}: {}", s.st_mtime);
            c.say(format!("{sec}: {} {}", s.st_atime, c.mtime(&s).0));
        }
        c.file("after", b"the file system still answers");
        c.content("after");
    });
}

/// Every file has a creation time, and nothing moves it.
#[test]
fn creation_times() {
    same(|c| {
        c.file("f", b"x");
        let birth = |c: &Place| {
            let all = rustix::fs::StatxFlags::ALL;
            let x = rustix::fs::statx(CWD, c.p("f"), AtFlags::empty(), all).unwrap();
            assert!(x.stx_mask & rustix::fs::StatxFlags::BTIME.bits() != 0, "no creation time");
            (x.stx_btime.tv_sec, x.stx_btime.tv_nsec)
        };
        let made = birth(c);
        wait_for_a_tick();
        c.file("f", b"longer than before");
        let t = Timespec { tv_sec: 5, tv_nsec: 5 };
        let both = Timestamps { last_access: t, last_modification: t };
        c.r("utimensat", utimensat(CWD, c.p("f"), &both, AtFlags::empty()));
        let same = made == birth(c);
        c.say(format!("the same creation time: {same}"));
    });
}

#[test]
fn extended_attributes() {
    same(|c| {
        c.file("f", b"x");
        c.dir("d");
        c.r("symlink", rustix::fs::symlink("f", c.p("s")));
        let none = XattrFlags::empty();
        for (name, len) in [
            ("user.a", 0),
            ("user.a", 1),
            ("user.b", 50),
            ("user.c", 300),
            ("user.b", 3000),
            ("user.d", 900),
            ("user.e", 4000),
            ("user.f", 5000),
            ("user.g", 65_536),
            ("user.h", 65_537),
            ("trusted.a", 10),
            ("security.x", 10),
            ("system.x", 3),
            ("nothing", 3),
            ("user.", 3),
            ("user", 1),
            ("trusted.", 1),
            ("other.x", 1),
        ] {
            for file in ["f", "d"] {
                let set = setxattr(c.p(file), name, &vec![7; len], none);
                c.r(&format!("set {name} {len} on {file}"), set);
                let got = getxattr(c.p(file), name, &mut vec![0; 70_000][..]);
                c.v("get", got);
                list(c, file);
            }
        }
        let long = format!("user.{}", "n".repeat(250));
        c.r("longest name", setxattr(c.p("d"), long.as_str(), b"v", none));
        let long = format!("user.{}", "n".repeat(251));
        c.r("too long a name", setxattr(c.p("d"), long.as_str(), b"v", none));
        c.r("create", setxattr(c.p("f"), "user.a", b"2", XattrFlags::CREATE));
        c.r("replace", setxattr(c.p("f"), "user.z", b"2", XattrFlags::REPLACE));
        c.r("replace", setxattr(c.p("f"), "user.a", b"33", XattrFlags::REPLACE));
        c.v("too small", getxattr(c.p("f"), "user.a", &mut [0u8; 1][..]));
        c.v("size", getxattr(c.p("f"), "user.a", &mut [0u8; 0][..]));
        c.v("missing", getxattr(c.p("f"), "user.zz", &mut [0u8; 9][..]));
        c.v("list too small", listxattr(c.p("f"), &mut [0u8; 3][..]));
        c.r("remove", removexattr(c.p("f"), "user.a"));
        c.r("remove again", removexattr(c.p("f"), "user.a"));
        for name in ["user.x", "trusted.x", "security.x"] {
            let set = rustix::fs::lsetxattr(c.p("s"), name, b"v", none);
            c.r(&format!("{name} on a symlink"), set);
        }
        list(c, "s");
        crate::pair::as_user(1001, &[1001], || {
            for name in ["user.u", "trusted.u", "security.u"] {
                c.r("set as a user", setxattr(c.p("f"), name, b"v", none));
                c.v("get as a user", getxattr(c.p("f"), name, &mut [0u8; 9][..]));
            }
            c.v("trusted", getxattr(c.p("f"), "trusted.a", &mut [0u8; 99][..]));
            c.v("user", getxattr(c.p("f"), "user.b", &mut [0u8; 9999][..]));
            list(c, "f");
        });
        many_small(c);
    });
}

fn list(c: &mut Place, file: &str) {
    let mut names: Vec<(String, u64)> = crate::pair::xattrs(&c.p(file));
    names.sort();
    c.say(format!("{file}: {names:?}"));
}

/// Extended attributes until no more fit, in any order.
fn many_small(c: &mut Place) {
    c.file("many", b"");
    let none = XattrFlags::empty();
    for i in 0..200 {
        let set = setxattr(c.p("many"), format!("user.{i}"), &vec![b'v'; i % 30], none);
        c.r(&format!("set {i}"), set);
    }
    for i in (0..200).step_by(3) {
        c.r(&format!("remove {i}"), removexattr(c.p("many"), format!("user.{i}")));
    }
    list(c, "many");
}

#[test]
fn statfs_counts() {
    same(|c| {
        let s = rustix::fs::statvfs(c.p(".")).unwrap();
        c.say(format!("{} {}", s.f_bsize, s.f_namemax));
        c.file("f", &vec![1; 4 << 20]);
        let Some(f) = c.open("f", OFlags::RDWR) else { return };
        c.r("fsync", rustix::fs::fsync(&f));
        let t = rustix::fs::statvfs(c.p(".")).unwrap();
        c.say(format!("{} blocks, {} inodes", s.f_bfree - t.f_bfree, s.f_ffree - t.f_ffree));
        assert!(t.f_bavail < t.f_bfree);
        drop(f);
        c.r("unlink", rustix::fs::unlink(c.p("f")));
        // The kernel's ext4 may free the inode a moment after unlink(2) returned.
        let mut u = rustix::fs::statvfs(c.p(".")).unwrap();
        for _ in 0..250 {
            if u.f_ffree > t.f_ffree {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            u = rustix::fs::statvfs(c.p(".")).unwrap();
        }
        c.say(format!("{} inodes back", u.f_ffree - t.f_ffree));
        assert!(u.f_bfree <= s.f_bfree);
    });
}

#[test]
fn locks_between_processes() {
    same(|c| {
        c.file("f", &[1; 100]);
        let Some(a) = c.open("f", OFlags::RDWR) else { return };
        let Some(b) = c.open("f", OFlags::RDWR) else { return };
        c.r("shared", flock(&a, FlockOperation::NonBlockingLockShared));
        c.r("shared", flock(&b, FlockOperation::NonBlockingLockShared));
        c.r("exclusive", flock(&b, FlockOperation::NonBlockingLockExclusive));
        c.r("unlock", flock(&a, FlockOperation::Unlock));
        c.r("exclusive", flock(&b, FlockOperation::NonBlockingLockExclusive));
        let path = c.p("f");
        let script = "import fcntl,sys\nf=open(sys.argv[1],'r+')\n\
            try: fcntl.flock(f,fcntl.LOCK_SH|fcntl.LOCK_NB); print('flock')\n\
            except OSError as e: print('flock',e.errno)\n\
            try: fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,10,5); print('lockf')\n\
            except OSError as e: print('lockf',e.errno)\n";
        let other = |c: &mut Place| {
            let mut python = std::process::Command::new("python3");
            let out = python.arg("-c").arg(script).arg(&path).output().unwrap();
            c.say(String::from_utf8_lossy(&out.stdout).replace('\n', ","));
        };
        other(c);
        c.r("fcntl", fcntl_lock(&a, FlockOperation::NonBlockingLockExclusive));
        other(c);
        c.r("fcntl", fcntl_lock(&a, FlockOperation::Unlock));
        drop(b);
        other(c);
        // A waiter gets the lock when its holder closes the file.
        c.r("hold", flock(&a, FlockOperation::LockExclusive));
        let waiter = std::thread::spawn(move || {
            let f = open(&path, OFlags::RDWR, 0).unwrap();
            flock(&f, FlockOperation::LockExclusive)
        });
        std::thread::sleep(Duration::from_millis(100));
        drop(a);
        c.r("waited", waiter.join().unwrap());
    });
}
