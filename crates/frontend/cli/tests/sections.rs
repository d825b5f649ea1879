//! Atomic sections on a mount, by F2FS's ioctls, under both write caches. Needs root, `/dev/fuse`
//! and e2fsprogs.

#![allow(unsafe_code)]

#[path = "sections/calls.rs"]
mod calls;
#[path = "sections/ends.rs"]
mod ends;
#[path = "sections/killed.rs"]
mod killed;
#[path = "sections/leftovers.rs"]
mod leftovers;
#[path = "sections/refused.rs"]
mod refused;
#[allow(dead_code)] // each test program uses a part of it
mod support;
#[path = "sections/together.rs"]
mod together;

use calls::{ABORT, COMMIT, FEATURES, File, START, features};
use rustix::fs::{OFlags, chown};
use std::os::unix::fs::{FileExt, PermissionsExt};
use support::{Setup, caches, run, siftfs};

/// A volume mounted with this cache.
fn mounted(cache: &str) -> Setup {
    let s = Setup::new();
    s.mount(&format!("write_cache={cache},commit=3600"));
    s
}

#[test]
fn what_is_offered_and_what_is_refused() {
    for cache in caches() {
        let s = mounted(cache);
        let f = File::create(&s.path("f"), &[1; 5000]);
        assert_eq!(features(&f, FEATURES), Ok(4), "the bit of atomic writes");
        assert_eq!(features(&f, 0x8008_f50c), Err(libc::ENOTTY), "of another size");
        assert_eq!(f.call(0xf503), Err(libc::ENOTTY), "volatile writes");
        for (flags, errno) in [(OFlags::RDONLY, libc::EBADF), (OFlags::WRONLY, libc::EBADF)] {
            let other = File::open(&s.path("f"), flags);
            assert_eq!(features(&other, FEATURES), Ok(4));
            assert_eq!(other.call(START), Err(errno), "{flags:?}");
        }
        let dir = File::open(&s.path(""), OFlags::RDONLY | OFlags::DIRECTORY);
        assert_eq!(features(&dir, FEATURES), Err(libc::ENOTTY), "a directory");
        assert_eq!(f.call(COMMIT), Err(libc::EINVAL));
        assert_eq!(f.call(ABORT), Err(libc::EINVAL));
        f.call(START).unwrap();
        assert_eq!(f.call(START), Err(libc::EBUSY));
        let other = File::open(&s.path("f"), OFlags::RDWR);
        assert_eq!(other.call(START), Err(libc::EBUSY));
        assert_eq!(other.call(COMMIT), Err(libc::EINVAL), "it is not this one's");
        assert_eq!(other.call(ABORT), Err(libc::EINVAL));
        f.call(COMMIT).unwrap();
        other.call(START).unwrap();
        other.call(ABORT).unwrap();
        drop((f, other, dir));
        let open = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(s.path("f"), open).unwrap();
        let traversed = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(s.tmp.path(), traversed).unwrap();
        let path = s.path("f");
        calls::as_user(4711, move || {
            let f = File::open(&path, OFlags::RDWR);
            assert_eq!(f.call(START), Err(libc::EACCES), "another user's");
        });
        chown(s.path("f"), Some(rustix::fs::Uid::from_raw(4711)), None).unwrap();
        let path = s.path("f");
        calls::as_user(4711, move || {
            let f = File::open(&path, OFlags::RDWR);
            f.call(START).unwrap();
            f.write(0, b"owned");
            f.call(COMMIT).unwrap();
        });
        assert_eq!(std::fs::read(s.path("f")).unwrap()[..6], *b"owned\x01");
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Before the commit nothing survives the daemon, behind it everything does. The program that has
/// the section sees it all the time.
#[test]
fn durable_with_the_commit_and_not_before() {
    for cache in caches() {
        for direct in [OFlags::empty(), OFlags::DIRECT] {
            let s = mounted(cache);
            let old = vec![1; 5 * 4096 + 100];
            File::create(&s.path("f"), &old).sync();
            let changes = |f: &File| {
                f.write(4096, &[2; 4096]);
                f.write(3 * 4096, &[3; 4096]);
                f.write(6 * 4096, &[4; 2 * 4096]);
            };
            let mut new = old.clone();
            new.resize(8 * 4096, 0);
            new[4096..8192].fill(2);
            new[3 * 4096..4 * 4096].fill(3);
            new[6 * 4096..].fill(4);
            let f = File::open(&s.path("f"), OFlags::RDWR | direct);
            f.call(START).unwrap();
            changes(&f);
            assert!(f.all() == new, "{cache}: the owner sees its bytes");
            s.kill_and_mount(cache);
            drop(f);
            assert!(std::fs::read(s.path("f")).unwrap() == old, "{cache}: never committed");
            let f = File::open(&s.path("f"), OFlags::RDWR | direct);
            f.call(START).unwrap();
            changes(&f);
            f.call(COMMIT).unwrap();
            assert!(f.all() == new);
            s.kill_and_mount(cache);
            drop(f);
            assert!(std::fs::read(s.path("f")).unwrap() == new, "{cache}: committed");
            s.umount();
            s.assert_plain_ext4();
        }
    }
}

/// What another handle read during a section, because the kernel had let go of the page, is old
/// with the commit.
#[test]
fn pages_that_others_read_meanwhile_are_new() {
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("f"), &[1; 8192]).sync();
        let f = File::open(&s.path("f"), OFlags::RDWR);
        let other = File::open(&s.path("f"), OFlags::RDONLY);
        let map = other.map(8192);
        f.call(START).unwrap();
        f.write(0, &[2; 4096]);
        f.forget_pages();
        assert_eq!(other.all()[0], 1, "{cache}: a request of another handle");
        assert_eq!(map.at(0), 1);
        f.call(COMMIT).unwrap();
        assert_eq!((other.all()[0], map.at(0)), (2, 2), "{cache}");
        drop((f, other, map));
        s.umount();
    }
}

/// A file's times and size are those of the commit, whatever was asked meanwhile.
#[test]
fn attributes_behind_the_commit() {
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("f"), &[1; 100]).sync();
        let before = std::fs::metadata(s.path("f")).unwrap();
        let f = File::open(&s.path("f"), OFlags::RDWR);
        // The kernel's own times move by ticks.
        std::thread::sleep(std::time::Duration::from_millis(20));
        f.call(START).unwrap();
        f.write(50, &[2; 5000]);
        assert_eq!(std::fs::metadata(s.path("f")).unwrap().len(), 5050, "the kernel has one size");
        assert!(f.all().len() == 5050, "and a question for it takes nothing away");
        f.call(COMMIT).unwrap();
        let after = std::fs::metadata(s.path("f")).unwrap();
        assert_eq!(after.len(), 5050);
        assert!(after.modified().unwrap() > before.modified().unwrap(), "{cache}");
        let listed = std::fs::read_dir(s.path("")).unwrap();
        let listed = listed.map(|e| e.unwrap()).find(|e| e.file_name() == "f").unwrap();
        assert_eq!(listed.metadata().unwrap().len(), 5050);
        drop((f, listed));
        s.umount();
    }
}

/// Truncated by another program, the section is void: its commit applies nothing, and the file
/// stays as that program left it.
#[test]
fn void_sections_are_refused() {
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("f"), &[1; 10_000]).sync();
        let f = File::open(&s.path("f"), OFlags::RDWR);
        f.call(START).unwrap();
        f.write(0, &[2; 4096]);
        f.write(10_000, &[3; 4096]);
        run("truncate", &["-s", "5000", s.path("f").to_str().unwrap()]).ok();
        assert_eq!(f.call(COMMIT), Err(libc::ECANCELED), "{cache}");
        f.call(ABORT).unwrap();
        assert!(std::fs::read(s.path("f")).unwrap() == [1; 5000], "{cache}");
        if cache == "writethrough" {
            f.call(START).unwrap();
            f.write(0, &[2; 4096]);
            let other = std::fs::OpenOptions::new().write(true).open(s.path("f")).unwrap();
            other.write_all_at(b"other", 4000).unwrap();
            assert_eq!(f.call(COMMIT), Err(libc::ECANCELED));
            f.call(ABORT).unwrap();
            let now = std::fs::read(s.path("f")).unwrap();
            assert!(now[..4000] == [1; 4000] && &now[4000..4005] == b"other", "{cache}");
        }
        drop(f);
        s.umount();
        s.assert_plain_ext4();
    }
}

/// More than a commit takes: write(2) or the commit says so, nothing is applied, and the file is as
/// it was.
#[test]
fn more_than_a_section_takes() {
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("f"), &[1; 8192]).sync();
        let f = File::open(&s.path("f"), OFlags::RDWR);
        f.call(START).unwrap();
        let piece = vec![2; 1 << 20];
        let refused = (0..64).find_map(|i| f.try_write(i << 20, &piece).err());
        let committed = f.call(COMMIT);
        match cache {
            "writethrough" => {
                assert_eq!(refused, Some(libc::EFBIG));
                committed.unwrap();
                f.call(START).unwrap();
                f.write(0, &[1; 8192]);
                f.call(COMMIT).unwrap();
                f.truncate(8192);
            }
            _ => {
                assert_eq!((refused, committed), (None, Err(libc::EFBIG)));
                f.call(ABORT).unwrap();
            }
        }
        assert!(f.all() == [1; 8192], "{cache}");
        drop(f);
        assert!(std::fs::read(s.path("f")).unwrap() == [1; 8192], "{cache}");
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A store through a mapping from before the section is no part of it, and one during it is.
#[test]
fn stores_through_mappings() {
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("f"), &[1; 8192]).sync();
        let f = File::open(&s.path("f"), OFlags::RDWR);
        let mut map = f.map(8192);
        map.store(10, 7);
        f.call(START).unwrap();
        map.store(20, 8);
        f.write(4096, &[2; 10]);
        f.call(ABORT).unwrap();
        let all = f.all();
        assert_eq!((all[10], all[20], all[4096]), (7, 1, 1), "{cache}");
        assert_eq!((map.at(10), map.at(20), map.at(4096)), (7, 1, 1), "{cache}");
        map.store(30, 9);
        drop(map);
        drop(f);
        siftfs(&["sync", s.dir()]).ok();
        s.kill_and_mount(cache);
        let all = std::fs::read(s.path("f")).unwrap();
        assert_eq!((all[10], all[20], all[30], all[4096]), (7, 1, 9, 1), "{cache}");
        s.umount();
    }
}
