//! Directories are read from the kernel's cache, and show every change all the same.

use crate::support::{Setup, siftfs};
use crate::{mount, requests_of};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

fn names(dir: &Path) -> BTreeSet<String> {
    let list = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let list: Vec<String> = list.collect();
    let set: BTreeSet<String> = list.iter().cloned().collect();
    assert_eq!(list.len(), set.len(), "each name once");
    set
}

#[test]
fn a_directory_that_was_read_costs_no_request_until_it_changes() {
    let s = Setup::empty();
    siftfs(&["mkfs", s.volume(), "--size", "512M"]).ok();
    mount(&s, "");
    let d = s.path("d");
    fs::create_dir(&d).unwrap();
    for i in 0..10_000 {
        File::create(d.join(format!("file {i}"))).unwrap();
    }
    let kinds = ["opendir", "readdir", "readdirplus", "releasedir", "lookup"];
    assert_eq!(names(&d).len(), 10_000);
    // The kernel may take the pages of its cache for something else at any moment.
    let again = || requests_of(&s, &kinds, || assert_eq!(names(&d).len(), 10_000));
    let fewest = (0..5).map(|_| again()).min().expect("five");
    assert_eq!(fewest, [0; 5]);
    let mut want = names(&d);
    let mut check = |changed: &[&str], gone: &[&str]| {
        want.extend(changed.iter().map(|n| n.to_string()));
        gone.iter().for_each(|n| assert!(want.remove(*n)));
        assert!(names(&d) == want, "{changed:?} {gone:?}");
    };
    fs::write(d.join("new"), b"x").unwrap();
    check(&["new"], &[]);
    fs::rename(d.join("new"), d.join("renamed")).unwrap();
    check(&["renamed"], &["new"]);
    fs::write(s.path("outside"), b"x").unwrap();
    fs::rename(s.path("outside"), d.join("came in")).unwrap();
    check(&["came in"], &[]);
    fs::rename(d.join("renamed"), s.path("went out")).unwrap();
    check(&[], &["renamed"]);
    fs::hard_link(s.path("went out"), d.join("linked")).unwrap();
    check(&["linked"], &[]);
    let tmp = rustix::fs::open(&d, OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o600)).unwrap();
    check(&[], &[]);
    let proc = format!("/proc/self/fd/{}", tmp.as_raw_fd());
    rustix::fs::linkat(CWD, proc, CWD, d.join("was nameless"), AtFlags::SYMLINK_FOLLOW).unwrap();
    check(&["was nameless"], &[]);
    fs::remove_file(d.join("linked")).unwrap();
    check(&[], &["linked"]);
    fs::create_dir(d.join("sub")).unwrap();
    check(&["sub"], &[]);
    fs::remove_dir(d.join("sub")).unwrap();
    check(&[], &["sub"]);
    std::os::unix::fs::symlink("x", d.join("symbolic")).unwrap();
    check(&["symbolic"], &[]);
    drop(tmp);
    s.umount();
    s.assert_plain_ext4();
}

/// A stream that is open sees new names after rewinddir(3), and finds its way back by position.
#[test]
fn an_open_stream_rewinds_and_seeks() {
    let s = Setup::new();
    mount(&s, "");
    let d = s.path("d");
    fs::create_dir(&d).unwrap();
    for i in 0..3000 {
        File::create(d.join(format!("file {i}"))).unwrap();
    }
    let all = |stream: &mut Dir| -> Vec<(i64, String)> {
        let entry = |e: rustix::io::Result<rustix::fs::DirEntry>| {
            let e = e.unwrap();
            (e.offset(), e.file_name().to_str().unwrap().to_string())
        };
        stream.map(entry).collect()
    };
    let mut stream = Dir::read_from(File::open(&d).unwrap()).unwrap();
    let first = all(&mut stream);
    assert_eq!(first.len(), 3002);
    for at in [0, 1, 1000, 2999, 3000] {
        stream.seek(first[at].0).unwrap();
        let rest: Vec<_> = all(&mut stream).into_iter().map(|e| e.1).collect();
        let want: Vec<_> = first[at + 1..].iter().map(|e| e.1.clone()).collect();
        assert!(rest == want, "from position {at}: {} of {}", rest.len(), want.len());
    }
    File::create(d.join("late")).unwrap();
    fs::remove_file(d.join("file 17")).unwrap();
    stream.rewind();
    let names: BTreeSet<String> = all(&mut stream).into_iter().map(|e| e.1).collect();
    assert!(names.len() == 3002 && names.contains("late") && !names.contains("file 17"));
    // Changes while the stream is in the middle: what was there all the time comes once.
    stream.rewind();
    let half: Vec<String> = stream
        .by_ref()
        .take(1500)
        .map(|e| e.unwrap().file_name().to_str().unwrap().into())
        .collect();
    for i in 0..200 {
        File::create(d.join(format!("while {i}"))).unwrap();
    }
    let mut seen: Vec<String> =
        half.into_iter().chain(all(&mut stream).into_iter().map(|e| e.1)).collect();
    seen.retain(|n| n.starts_with("file "));
    let set: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!((seen.len(), set.len()), (2999, 2999));
    drop(stream);
    s.umount();
}

/// A directory that is gone while a program has it open: nothing is in it, and nothing breaks.
#[test]
fn a_removed_directory_that_is_open_is_empty() {
    let s = Setup::new();
    mount(&s, "");
    fs::create_dir(s.path("d")).unwrap();
    let open = File::open(s.path("d")).unwrap();
    fs::remove_dir(s.path("d")).unwrap();
    let mut stream = Dir::read_from(&open).unwrap();
    let left: Vec<_> = stream.by_ref().filter_map(Result::ok).collect();
    let left = left.iter().filter(|e| ![c".", c".."].contains(&e.file_name())).count();
    assert_eq!(left, 0);
    open.sync_all().unwrap();
    drop((stream, open));
    s.umount();
    s.assert_plain_ext4();
}
