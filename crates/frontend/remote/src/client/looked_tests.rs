use super::*;
use crate::client::slots::Noted;
use siftfs_base::errno;
use siftfs_proto::{Attr, DirEntry, FileKind, Handle};

pub(in crate::client) fn attr(ino: InodeNr) -> Attr {
    let (kind, time) = (FileKind::Regular, siftfs_base::Timestamp::default());
    Attr {
        ino,
        generation: 0,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        held: false,
    }
}

fn look_up(table: &LookedUp, ino: InodeNr) {
    let asked = table.asks(&Request::Lookup { parent: 2, name: b"x".to_vec() });
    table.answered(asked, &(Ok(Reply::Entry(attr(ino))), Noted::default()));
}

#[test]
fn what_was_looked_up_is_known_until_it_is_forgotten() {
    let table = LookedUp::default();
    look_up(&table, 12);
    look_up(&table, 12);
    let listed = Request::ReadDir { handle: Handle(1), cookie: 0, max_bytes: 9, plus: true };
    let entry = |name: &[u8], ino| DirEntry {
        name: name.to_vec(),
        ino,
        kind: FileKind::Regular,
        cookie: 1,
        attr: Some(attr(ino)),
    };
    let asked = table.asks(&listed);
    let entries = vec![entry(b".", 2), entry(b"..", 3), entry(b"a", 13)];
    table.answered(asked, &(Ok(Reply::Dir(entries)), Noted::default()));
    let mut all = table.all();
    all.sort_unstable();
    assert_eq!(all, [12, 13]);
    assert_eq!(table.references(12), 2);
    assert_eq!(table.asks(&Request::Forget { ino: 12, count: 1 }), None);
    assert!(table.has(12));
    assert_eq!(table.references(12), 1);
    table.asks(&Request::Forget { ino: 12, count: 1 });
    table.asks(&Request::Forget { ino: 14, count: 1 });
    assert!(!table.has(12) && !table.has(14) && table.has(13));
}

/// An answer that was asked for before a notice came may tell of an inode as it was before.
#[test]
fn what_is_on_its_way_counts_as_looked_up() {
    let table = LookedUp::default();
    let name = b"x".to_vec();
    let asked = table.asks(&Request::Create { parent: 2, name, perm: 0 });
    assert!(!table.has(12), "no notice speaks of it");
    table.notice(&[12]);
    assert!(table.has(12) && !table.has(13));
    // What is asked for afterwards is told as it is after the change.
    let later = table.asks(&Request::Lookup { parent: 2, name: b"y".to_vec() });
    table.answered(asked, &(Err(errno(libc::ENOENT)), Noted::default()));
    assert!(!table.has(12));
    table.notice(&[12]);
    table.taken(&[12]);
    assert!(table.has(12), "one of two notices is not taken back");
    table.taken(&[12]);
    assert!(!table.has(12));
    table.answered(later, &(Ok(Reply::Entry(attr(12))), Noted::default()));
    assert!(table.has(12));
}
