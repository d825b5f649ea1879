//! A shared mount that is alone keeps what it knows for a day, and forgets it when it is one of
//! two.

use crate::{Beside, names, shared};
use siftfs_rig::hostile::NOBODY;
use siftfs_rig::hostile::lock::Held;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn lookups(dir: &str) -> u64 {
    crate::status(dir)["requests"]["lookup"].as_u64().unwrap_or(0)
}

/// Names, attributes, listings and pages that the first kernel knows from the time before.
///
/// Seen to fail when the kernel is not made to forget.
#[test]
fn what_was_known_before_the_second_mount_is_forgotten() {
    let s = shared();
    for n in 0..200 {
        fs::create_dir_all(s.path(&format!("d{}", n % 7))).unwrap();
        fs::write(s.path(&format!("d{}/f{n}", n % 7)), format!("first {n}")).unwrap();
    }
    let path = |n: usize| format!("d{}/f{n}", n % 7);
    let know = || {
        for n in 0..200 {
            let meta = fs::metadata(s.path(&path(n))).unwrap();
            assert_eq!(meta.len() as usize, format!("first {n}").len());
            fs::read(s.path(&path(n))).unwrap();
        }
        (0..7).for_each(|d| drop(names(&s.path(&format!("d{d}")))));
    };
    know();
    // Longer than a term: what is known does not run out.
    std::thread::sleep(Duration::from_millis(2500));
    let before = lookups(s.dir());
    know();
    assert_eq!(lookups(s.dir()), before, "a mount that is alone asks for no name again");
    let mut open = File::open(s.path(&path(3))).unwrap();
    let other = Beside::of(&s, "other");
    other.attach(&s, "").ok();
    for n in 0..200 {
        let (old, new) = (other.path(&path(n)), other.path(&format!("d{}/g{n}", n % 7)));
        match n % 4 {
            0 => fs::remove_file(old).unwrap(),
            1 => fs::rename(old, new).unwrap(),
            2 => fs::write(old, format!("second and longer {n}")).unwrap(),
            _ => fs::write(old, format!("2nd {n}")).unwrap(),
        }
        let mine = s.path(&path(n));
        match n % 4 {
            0 => assert!(!mine.exists(), "{n} is removed"),
            1 => {
                assert!(!mine.exists(), "{n} has another name");
                let moved = s.path(&format!("d{}/g{n}", n % 7));
                assert_eq!(fs::read_to_string(moved).unwrap(), format!("first {n}"));
            }
            2 => {
                let text = format!("second and longer {n}");
                assert_eq!(fs::metadata(&mine).unwrap().size() as usize, text.len());
                assert_eq!(fs::read_to_string(mine).unwrap(), text);
            }
            _ => assert_eq!(fs::read_to_string(mine).unwrap(), format!("2nd {n}")),
        }
    }
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "2nd 3");
    drop(open);
    for d in 0..7 {
        let dir = format!("d{d}");
        assert_eq!(names(&s.path(&dir)), names(&other.path(&dir)));
    }
    other.umount();
    s.umount();
    s.assert_plain_ext4();
}

/// A program keeps the lock of a directory that the first kernel knows names of: the second mount
/// is refused after a while, with one message, and the first one goes on.
#[test]
fn a_directory_that_is_kept_locked_refuses_the_second_mount() {
    let s = shared();
    fs::create_dir(s.path("d")).unwrap();
    fs::write(s.path("d/f"), "x").unwrap();
    fs::metadata(s.path("d/f")).unwrap();
    let silent = Path::new(s.dir()).with_file_name("silent");
    fs::create_dir(&silent).unwrap();
    let held = Held::new(&silent, &s.path("d"), NOBODY).unwrap();
    let other = Beside::of(&s, "other");
    let start = Instant::now();
    let ran = other.attach(&s, "");
    assert!(ran.code != 0 && ran.err.lines().count() == 1, "{ran:?}");
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(fs::read(s.path("d/f")).unwrap(), b"x");
    drop(held);
    other.attach(&s, "").ok();
    fs::write(other.path("d/f"), "y").unwrap();
    assert_eq!(fs::read(s.path("d/f")).unwrap(), b"y");
    other.umount();
    s.umount();
}

/// A user keeps a directory's lock on one mount. A change of a name there that this mount knows
/// waits until that name does not count any more, and no other call waits.
///
/// Seen to fail when names are waited for without an end.
#[test]
fn a_lock_that_is_kept_delays_names_of_its_directory_alone() {
    let s = shared();
    let other = Beside::of(&s, "other");
    other.attach(&s, "").ok();
    for dir in ["kept", "free"] {
        fs::create_dir(s.path(dir)).unwrap();
        (0..20).for_each(|n| fs::write(s.path(&format!("{dir}/f{n}")), "x").unwrap());
    }
    let silent = Path::new(s.dir()).with_file_name("silent");
    fs::create_dir(&silent).unwrap();
    // What the other mount knows of names counts when nobody has changed them for a while.
    std::thread::sleep(Duration::from_secs(3));
    for dir in ["kept", "free"] {
        for n in 0..20 {
            assert!(other.path(&format!("{dir}/f{n}")).exists());
        }
    }
    let held = Held::new(&silent, &other.path("kept"), NOBODY).unwrap();
    for n in 0..20 {
        for dir in ["free", "kept"] {
            let path = |name| s.path(&format!("{dir}/{name}{n}"));
            fs::rename(path("f"), path("g")).unwrap();
        }
    }
    drop(held);
    for dir in ["kept", "free"] {
        let wanted: std::collections::BTreeSet<_> = (0..20).map(|n| format!("g{n}")).collect();
        let seen = names(&other.path(dir));
        assert_eq!(seen.into_iter().collect::<std::collections::BTreeSet<_>>(), wanted, "{dir}");
        (0..20).for_each(|n| assert!(!other.path(&format!("{dir}/f{n}")).exists()));
    }
    other.umount();
    s.umount();
    s.assert_plain_ext4();
}
