//! Sections of several files of a mount that are committed together, by the client's guards.

use crate::calls::{Child, File};
use crate::mounted;
use crate::support::Setup;
use crate::support::caches;
use rustix::fs::OFlags;
use siftfs_client::{Level, Section, commit_all, raw, stage};
use std::io;
use std::os::fd::AsFd;

fn files(s: &Setup) -> [File; 2] {
    ["f", "g"].map(|name| File::create(&s.path(name), &[1; 5000]))
}

fn errno(result: io::Result<()>) -> Result<(), i32> {
    result.map_err(|e| e.raw_os_error().expect("of the mount"))
}

fn all(s: &Setup) -> [Vec<u8>; 2] {
    ["f", "g"].map(|name| std::fs::read(s.path(name)).expect("it is there"))
}

fn both<'f>([f, g]: &'f [File; 2], byte: u8) -> Vec<Section<'f>> {
    let sections = [f, g].map(|file| Section::start(&file.0).expect("a section"));
    f.write(0, &[byte; 100]);
    g.write(4990, &[byte; 100]);
    sections.into()
}

fn changed(byte: u8) -> [Vec<u8>; 2] {
    let (mut f, mut g) = (vec![1; 5000], vec![1; 5090]);
    f[..100].fill(byte);
    g[4990..].fill(byte);
    [f, g]
}

/// Durable on return, or with the next ticket that is; dropped or refused, they are nowhere.
#[test]
fn all_of_them_or_none() {
    for cache in caches() {
        let s = mounted(cache);
        let open = files(&s);
        open.iter().for_each(File::sync);
        drop(both(&open, 2));
        assert!(all(&s) == [[1; 5000]; 2], "{cache}: dropped");
        commit_all(both(&open, 3), Level::Durable).expect("committed");
        s.kill_and_mount(cache);
        drop(open);
        assert!(all(&s) == changed(3), "{cache}: durable");
        let open = files(&s);
        commit_all(both(&open, 4), Level::Atomic).expect("committed");
        assert!(all(&s) == changed(4), "{cache}: others see it");
        let dir = File::open(&s.path(""), OFlags::RDONLY | OFlags::DIRECTORY);
        stage(&dir.0).and_then(|later| later.wait(&dir.0)).expect("durable");
        siftfs_client::barrier(&dir.0).and_then(|all| all.wait(&dir.0)).expect("durable");
        s.kill_and_mount(cache);
        drop((open, dir));
        assert!(all(&s) == changed(4), "{cache}: nothing later without it");
        // One of them is void, so the other one is not committed either.
        let open = files(&s);
        let sections = both(&open, 5);
        let other = std::fs::OpenOptions::new().write(true).open(s.path("g")).expect("it opens");
        other.set_len(5000).expect("it is truncated");
        let refused = commit_all(sections, Level::Durable);
        assert_eq!(errno(refused), Err(libc::ECANCELED), "{cache}");
        assert!(all(&s) == [[1; 5000]; 2], "{cache}: refused");
        commit_all(both(&open, 6), Level::Durable).expect("they were aborted");
        drop((open, other));
        assert!(all(&s) == changed(6), "{cache}");
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Descriptors that are not the section's: of a file without one, of another process, of another
/// mount; and none at all.
#[test]
fn whose_they_are() {
    let (s, elsewhere) = (mounted("writethrough"), mounted("writethrough"));
    let (open, other) = (files(&s), files(&elsewhere));
    let [f, g] = &open;
    let commit = |files: &[&File]| {
        let files: Vec<_> = files.iter().map(|file| file.0.as_fd()).collect();
        errno(raw::commit_all(&files, Level::Durable))
    };
    let section = Section::start(&f.0).expect("a section");
    f.write(0, &[2; 100]);
    assert_eq!(commit(&[f, g]), Err(libc::EINVAL), "one has none");
    assert_eq!(commit(&[f, f]), Err(libc::EINVAL), "twice");
    assert_eq!(commit(&[f, &other[0]]), Err(libc::EXDEV), "of another mount");
    assert_eq!(commit(&[]), Err(libc::EINVAL));
    let reader = File::open(&s.path("f"), OFlags::RDONLY);
    assert_eq!(commit(&[f, &reader]), Err(libc::EBADF), "not open to write");
    let inherited = Child::start(|| i32::from(commit(&[f]) != Err(libc::EINVAL)));
    assert_eq!(inherited.wait(), 0, "another process's");
    section.commit().expect("it is as it was");
    assert!(all(&s)[0] == changed(2)[0]);
    drop((open, other, reader));
    [s, elsewhere].iter().for_each(|s| drop(s.umount()));
}
