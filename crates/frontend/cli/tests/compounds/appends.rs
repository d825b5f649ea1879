//! Appends by write(2) beside compounds that make the same file longer (rule R50).

use crate::calls::File;
use crate::{mounted, read, root};
use rustix::fs::OFlags;
use siftfs_client::{Compound, Level};
use std::collections::BTreeSet;

const RECORDS: u32 = 300;

fn record(by: &str, number: u32) -> Vec<u8> {
    let mut text = format!("{by} {number} ").into_bytes();
    text.resize(63, b'.');
    text.push(b'\n');
    text
}

/// A kernel takes the offset of an append from the size that it knows, and a compound may make the
/// file longer before the request arrives: each record is in the file, whole and once. (A kernel
/// that keeps back what is written has bytes beyond the end that nobody else knows:
/// `docs/limits.md`.)
///
/// Seen to fail when an append is put at its offset.
#[test]
fn appends_beside_compounds_are_all_there() {
    let s = mounted("writethrough");
    drop(File::create(&s.path("log"), b""));
    let path = s.path("log");
    std::thread::scope(|scope| {
        for by in ["one", "two"] {
            let path = &path;
            scope.spawn(move || {
                let log = File::open(path, OFlags::WRONLY | OFlags::APPEND);
                for number in 0..RECORDS {
                    assert_eq!(rustix::io::write(&log.0, &record(by, number)), Ok(64));
                }
            });
        }
        let dir = root(&s);
        let log = File::open(&path, OFlags::RDWR);
        for number in 0..RECORDS {
            let mut steps = Compound::on(&dir.0);
            let end = steps.append(&log.0, record("compound", number));
            steps.want(end);
            steps.run(Level::Visible).expect("carried out");
        }
    });
    let mut wanted: BTreeSet<Vec<u8>> = BTreeSet::new();
    for by in ["one", "two", "compound"] {
        wanted.extend((0..RECORDS).map(|number| record(by, number)));
    }
    for piece in read(&s, "log").chunks(64) {
        let text = String::from_utf8_lossy(piece).into_owned();
        assert!(wanted.remove(piece), "torn, or there twice: {text}");
    }
    assert!(wanted.is_empty(), "{} records are lost", wanted.len());
    s.umount();
    s.assert_plain_ext4();
}
