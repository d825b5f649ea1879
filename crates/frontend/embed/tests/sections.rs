//! Atomic sections by the embedded handle: what other callers see, and when.

use siftfs::{Volume, commit_all};
use siftfs_placement::{MkfsOptions, mkfs};
use std::path::PathBuf;

fn volume(dir: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = dir.path().join(name);
    let opts = MkfsOptions { size: Some(64 << 20), ..MkfsOptions::default() };
    mkfs(&path, &opts, &mut |_, _, _| {}).expect("mkfs");
    path
}

/// Bytes written are invisible before the commit, visible behind it, and there after a crash.
#[test]
fn invisible_before_the_commit_and_durable_behind_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = volume(&dir, "v.img");
    let v = Volume::open(&path).expect("open");
    let f = v.create("/f", 0o644).expect("create");
    f.write_at(0, b"0123456789").expect("write");
    let section = f.section().expect("a section");
    section.write_at(2, b"ab").expect("write");
    section.write_at(3_000_000, &[7; 100_000]).expect("write");
    assert_eq!(f.read_at(0, 100).expect("read"), b"0123456789");
    assert_eq!(f.stat().expect("stat").size, 10);
    assert_eq!(section.read_at(0, 12).expect("read"), b"01ab456789\0\0");
    assert_eq!(section.read_at(2_999_999, 2_000_000).expect("read").len(), 100_001);
    section.commit().expect("commit");
    assert_eq!(f.read_at(0, 10).expect("read"), b"01ab456789");
    assert_eq!(f.stat().expect("stat").size, 3_100_000);
    drop(f);
    v.abandon();
    let v = Volume::open(&path).expect("recovery");
    let f = v.open_file("/f").expect("it was committed");
    assert_eq!(f.read_at(0, 11).expect("read"), b"01ab456789\0");
    assert_eq!(f.read_at(3_000_000, 200_000).expect("read"), [7; 100_000]);
    drop(f);
    v.close().expect("close");
}

/// Aborted or dropped it leaves nothing, and the file may have the next one.
#[test]
fn what_is_not_committed_is_gone() {
    let dir = tempfile::tempdir().expect("temp dir");
    let v = Volume::open(&volume(&dir, "v.img")).expect("open");
    let f = v.create("/f", 0o644).expect("create");
    f.write_at(0, b"kept").expect("write");
    let section = f.section().expect("a section");
    assert_eq!(f.section().err().expect("one at a time").errno(), libc::EBUSY);
    section.write_at(0, b"gone").expect("write");
    section.abort().expect("abort");
    let section = f.section().expect("the next one");
    section.write_at(0, b"gone").expect("write");
    drop(section);
    let section = f.section().expect("the next one");
    section.write_at(0, b"gone").expect("write");
    f.set_len(2).expect("truncation");
    assert_eq!(section.commit().expect_err("void").errno(), libc::ECANCELED);
    let section = f.section().expect("a commit that failed has ended it");
    section.write_at(2, b"pt").expect("write");
    // The section keeps the file open.
    drop(f);
    section.commit().expect("commit");
    let f = v.open_file("/f").expect("open");
    assert_eq!(f.read_at(0, 10).expect("read"), b"kept");
    drop(f);
    v.close().expect("close");
}

#[test]
fn several_files_of_one_volume() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = volume(&dir, "v.img");
    let v = Volume::open(&path).expect("open");
    let files: Vec<_> =
        (0..5).map(|i| v.create(&format!("/f{i}"), 0o644).expect("create")).collect();
    let sections = |what: &[u8]| -> Vec<_> {
        let one = |f: &siftfs::File| {
            let section = f.section().expect("a section");
            section.write_at(0, what).expect("write");
            section
        };
        files.iter().map(one).collect()
    };
    commit_all(sections(b"first")).expect("commit");
    let second = sections(b"other");
    files[3].write_at(1, b"!").expect("write");
    assert_eq!(commit_all(second).expect_err("one is void").errno(), libc::ECANCELED);
    for (i, f) in files.iter().enumerate() {
        let want: &[u8] = if i == 3 { b"f!rst" } else { b"first" };
        assert_eq!(f.read_at(0, 9).expect("read"), want);
    }
    let elsewhere = Volume::open(&volume(&dir, "w.img")).expect("open");
    let stranger = elsewhere.create("/f", 0o644).expect("create");
    let both = vec![files[0].section().expect("one"), stranger.section().expect("another")];
    assert_eq!(commit_all(both).expect_err("two volumes").errno(), libc::EXDEV);
    commit_all(Vec::new()).expect("of nothing");
    drop((files, stranger));
    elsewhere.close().expect("close");
    v.abandon();
    let v = Volume::open(&path).expect("recovery");
    for i in 0..5 {
        let f = v.open_file(&format!("/f{i}")).expect("it was committed");
        let found = f.read_at(0, 9).expect("read");
        assert!(found == b"first" || i == 3 && found == b"f!rst", "{found:?}");
    }
    v.close().expect("close");
}

/// Refused, void, or given up: nothing is applied, and others and the next section are as ever.
#[test]
fn what_is_refused_disturbs_nobody() {
    let dir = tempfile::tempdir().expect("temp dir");
    let v = Volume::open(&volume(&dir, "v.img")).expect("open");
    let f = v.create("/f", 0o644).expect("create");
    let other = v.create("/other", 0o644).expect("create");
    f.write_at(0, b"kept").expect("write");
    f.sync_all().expect("fsync");
    let written = |v: &Volume| v.status().expect("status").storage.total().write_bytes;
    let before = written(&v);
    let section = f.section().expect("a section");
    section.write_at(0, b"gone").expect("write");
    let far = section.write_at(u64::MAX - 2, b"gone").expect_err("behind the largest file");
    assert_eq!(far.errno(), libc::EFBIG);
    let piece = vec![2; 64 << 10];
    let much = (0..1024).find_map(|i| section.write_at(i << 16, &piece).err());
    assert_eq!(much.expect("more than a record").errno(), libc::EFBIG);
    assert_eq!(section.read_at(0, 1).expect("read"), [2], "it stayed as it was");
    assert_eq!(v.status().expect("status").operations.sections, 1);
    drop(section);
    assert_eq!(v.status().expect("status").operations.sections, 0);
    assert_eq!(written(&v), before, "nothing of it was written");
    let section = f.section().expect("the next one");
    section.write_at(0, b"gone").expect("write");
    v.remove_file("/f").expect("unlink");
    assert_eq!(section.commit().expect_err("no name is left").errno(), libc::ECANCELED);
    assert_eq!(f.section().err().expect("removed").errno(), libc::ENOENT);
    assert_eq!(f.read_at(0, 9).expect("read"), b"kept");
    other.write_at(0, b"other").expect("write");
    other.sync_all().expect("fsync");
    assert!(v.status().expect("status").failed.is_none());
    drop((f, other));
    v.close().expect("close");
}
