//! Very many files.

use crate::listing::{assert_kernel_agrees, assert_kernel_shows, listing};
use crate::support::{Setup, siftfs};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};

/// A million with `SIFTFS_LONG`.
fn how_many() -> usize {
    if std::env::var_os("SIFTFS_LONG").is_some() { 1_000_000 } else { 20_000 }
}

fn path(s: &Setup, i: usize) -> PathBuf {
    s.path(&format!("d{:02}/file number {i}", i % 48))
}

/// Every tenth file has something in it.
fn text(i: usize) -> String {
    if i.is_multiple_of(10) {
        format!("this is file {i}\n").repeat(1 + i % 7)
    } else {
        String::new()
    }
}

#[test]
fn very_many_files() {
    let (s, count) = (Setup::empty(), how_many());
    // An inode for every 16 KiB; the file is sparse.
    let size = format!("{}M", 256 + count * 20 / 1024);
    siftfs(&["mkfs", s.volume(), "--size", &size, "--log-size", "64M"]).ok();
    s.mount("");
    for d in 0..48 {
        fs::create_dir(s.path(&format!("d{d:02}"))).unwrap();
    }
    for i in 0..count {
        fs::write(path(&s, i), text(i)).unwrap();
    }
    siftfs(&["sync", s.dir()]).ok();
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    s.mount("");
    let all = listing(Path::new(s.dir()));
    assert_eq!(all.len(), count + 48);
    for i in (0..count).step_by(97) {
        assert_eq!(fs::read_to_string(path(&s, i)).unwrap(), text(i));
    }
    s.umount();
    s.assert_plain_ext4();
    assert_kernel_shows(s.volume(), &all);
    s.mount("");
    for i in (0..count).filter(|i| i % 3 != 0) {
        fs::remove_file(path(&s, i)).unwrap();
    }
    assert_kernel_agrees(&s);
}
