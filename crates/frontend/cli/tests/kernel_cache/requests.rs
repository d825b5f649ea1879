//! What common programs cost in requests. Each number is a bound that a change must not cross
//! unseen, with the kernel's reason for what is left.

use crate::support::{Setup, run};
use crate::{mount, requests_of, writeback};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const FILES: u64 = 300;

/// A tree of 300 files in six directories.
fn tree(s: &Setup) {
    for d in 0..6 {
        fs::create_dir_all(s.path(&format!("a/{d}"))).unwrap();
        for f in 0..FILES / 6 {
            fs::write(s.path(&format!("a/{d}/{f}")), vec![d as u8; 3000]).unwrap();
        }
    }
}

/// A walk brings every entry's attributes along, the first time and later: no LOOKUP and no
/// GETATTR per file, and the second walk none at all.
#[test]
fn a_walk_asks_for_no_file_by_itself() {
    let s = Setup::new();
    mount(&s, "");
    tree(&s);
    s.umount();
    mount(&s, "");
    let a = s.path("a");
    let walk = || drop(run("du", &["-s", a.to_str().unwrap()]).ok());
    let kinds = ["lookup", "getattr", "statx", "opendir", "readdir", "readdirplus"];
    let first = requests_of(&s, &kinds, walk);
    assert!(first[..3].iter().sum::<u64>() <= 10, "{first:?}");
    assert!(first[5] >= 7 && first[5] <= 40, "{first:?}");
    // Each directory's atime is another since it was read.
    let second = requests_of(&s, &kinds, walk);
    assert!(second.iter().sum::<u64>() <= 10 && second[3..] == [0; 3], "{second:?}");
    assert_eq!(requests_of(&s, &kinds, walk), [0; 6]);
    s.umount();
}

/// Removing a tree that is not in the kernel's cache: one request per file.
#[test]
fn rm_looks_nothing_up() {
    let s = Setup::new();
    mount(&s, "");
    tree(&s);
    s.umount();
    mount(&s, "");
    let a = s.path("a");
    let sent = requests_of(&s, &["unlink", "lookup", "opendir"], || {
        run("rm", &["-rf", a.to_str().unwrap()]).ok();
    });
    assert!(sent[0] == FILES && sent[1] <= 10 && sent[2] <= 1, "{sent:?}");
    s.umount();
}

/// Making a file: the kernel sends LOOKUP for its name, asks for the directory's attributes anew
/// (each change makes it forget them) and for the capability that a write would have to clear; then
/// CREATE, the data in one WRITE, RELEASE. No FLUSH, unless the kernel writes pages back at
/// close(2): then it takes no word for it that a handle needs none.
#[test]
fn a_new_file_is_six_requests() {
    for (cache, flushes) in [("writethrough", 0), ("writeback", 100)] {
        let s = Setup::new();
        mount(&s, &format!("write_cache={cache}"));
        let sent = requests_of(
            &s,
            &["lookup", "getattr", "getxattr", "create", "write", "flush", "fsync", "release"],
            || {
                for i in 0..100 {
                    let f = File::create(s.path(&format!("f{i}"))).unwrap();
                    f.write_all_at(&[7; 3000], 0).unwrap();
                }
            },
        );
        assert_eq!(sent[0], 100, "{sent:?}");
        assert!(sent[1] <= 100 && sent[2] <= 100, "{sent:?}");
        assert_eq!(sent[3..5], [100, 100], "{sent:?}");
        assert_eq!(sent[5..7], [flushes, 0], "{sent:?}");
        s.umount();
    }
}

/// Appends of 512 bytes: a request per page and not per call, and fewer where pages meet.
#[test]
fn appends_meet_in_the_kernel() {
    let s = writeback();
    let f = File::create(s.path("f")).unwrap();
    let sent = requests_of(&s, &["write", "setattr"], || {
        for i in 0..20_000 {
            f.write_all_at(&[i as u8; 512], i * 512).unwrap();
        }
        f.sync_all().unwrap();
    });
    assert!(sent[0] <= 2_500, "{sent:?}");
    assert_eq!(f.metadata().unwrap().len(), 20_000 * 512);
    drop(f);
    s.umount();
    s.assert_plain_ext4();
}
