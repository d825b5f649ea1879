//! What a request names, to be read and to be changed.

use super::*;
use crate::Handle;
use crate::compound::Access;

fn numbers(mut req: Request) -> Vec<InodeNr> {
    let mut seen = Vec::new();
    for ino in req.inodes_mut() {
        seen.push(*ino);
        *ino += 100;
    }
    let changed: Vec<_> = req.inodes_mut().map(|ino| *ino - 100).collect();
    assert_eq!(changed, seen, "{req:?}");
    seen
}

#[test]
fn inodes_are_named_as_files_or_by_themselves() {
    let read = |file: Target| Request::Read { file, offset: 0, len: 1 };
    assert_eq!(read(Target::Inode(12)).names(), Names::file(&Target::Inode(12)));
    assert_eq!(numbers(read(Target::Inode(12))), [12]);
    let open = Target::Open(Handle(12));
    assert_eq!(read(open).names(), Names::file(&open));
    assert_eq!(numbers(read(open)), []);
    assert_eq!(Request::open(12, Access::Read).names(), Names::one(&12));
    let link = Request::Link { ino: 12, parent: 13, name: b"x".to_vec() };
    assert_eq!(link.names(), Names::both(&12, &13));
    assert_eq!(numbers(link), [12, 13]);
    assert_eq!(Request::StatFs.names(), Names::nothing());
    assert_eq!(numbers(Request::Forget { ino: 12, count: 1 }), [12]);
}
