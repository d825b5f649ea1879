//! Directories in directories, far beyond the longest path that the kernel takes.

use crate::listing::{assert_kernel_agrees, open_below};
use crate::support::{Setup, run};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fsync, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::{pwrite, read};
use rustix::process::Signal;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

/// With names of this length, far more than PATH_MAX (4096).
const LEVELS: usize = 600;
const NAME: usize = 120;

fn name(level: usize) -> CString {
    CString::new(format!("{level:0>NAME$}")).unwrap()
}

fn root(s: &Setup) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, s.dir(), flags, Mode::empty()).unwrap()
}

fn down(s: &Setup, levels: usize) -> OwnedFd {
    let mut dir = root(s);
    for level in 0..levels {
        dir = open_below(dir.as_fd(), &name(level), OFlags::RDONLY | OFlags::DIRECTORY);
    }
    dir
}

fn put(dir: &OwnedFd, level: usize) -> OwnedFd {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let f = openat(dir, "file", flags, Mode::from_raw_mode(0o600)).unwrap();
    let text = format!("level {level}");
    assert_eq!(pwrite(&f, text.as_bytes(), 0), Ok(text.len()));
    f
}

#[track_caller]
fn expect(dir: &OwnedFd, level: usize) {
    let f = open_below(dir.as_fd(), &CString::new("file").unwrap(), OFlags::RDONLY);
    let mut buf = [0; 64];
    let n = read(&f, &mut buf[..]).unwrap();
    assert_eq!(String::from_utf8_lossy(&buf[..n]), format!("level {level}"));
}

#[test]
fn a_tree_of_hundreds_of_levels() {
    let s = Setup::new();
    s.mount("commit=3600");
    let mut dir = root(&s);
    for level in 0..LEVELS {
        mkdirat(&dir, name(level), Mode::from_raw_mode(0o755)).unwrap();
        dir = open_below(dir.as_fd(), &name(level), OFlags::RDONLY | OFlags::DIRECTORY);
        drop(put(&dir, level));
    }
    // The file at the end, with all the names that lead to it.
    fsync(put(&dir, LEVELS - 1)).unwrap();
    drop(dir);
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    s.mount("");
    expect(&down(&s, LEVELS), LEVELS - 1);
    again(&s);
    moved(&s);
    assert_kernel_agrees(&s);
    s.mount("");
    run("rm", &["-r", s.path(name(0).to_str().unwrap()).to_str().unwrap()]).ok();
    assert_kernel_agrees(&s);
}

/// Every level once more, with the way up.
fn again(s: &Setup) {
    let mut dir = root(s);
    for level in 0..LEVELS {
        let above = dir;
        dir = open_below(above.as_fd(), &name(level), OFlags::RDONLY | OFlags::DIRECTORY);
        drop(put(&dir, level));
        let up = statat(&dir, "..", AtFlags::empty()).unwrap();
        assert_eq!(up.st_ino, statat(&above, ".", AtFlags::empty()).unwrap().st_ino);
    }
}

/// The lower half of the tree goes up and back, and cannot go into itself.
fn moved(s: &Setup) {
    let half = LEVELS / 2;
    let above = down(s, half);
    let lowest = down(s, LEVELS);
    let into_itself = renameat(&above, name(half), &lowest, "loop");
    assert_eq!(into_itself, Err(rustix::io::Errno::INVAL));
    renameat(&above, name(half), root(s), "half").unwrap();
    expect(&lowest, LEVELS - 1);
    assert_eq!(unlinkat(root(s), "half", AtFlags::REMOVEDIR), Err(rustix::io::Errno::NOTEMPTY));
    renameat(root(s), "half", &above, name(half)).unwrap();
}
