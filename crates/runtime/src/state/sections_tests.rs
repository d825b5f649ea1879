use super::*;
use siftfs_base::{BLOCK_SIZE, SharedBlock};

const OWNER: SessionId = SessionId(1);

fn one() -> (Sections, SectionId) {
    let mut sections = Sections::default();
    let id = sections.start((OWNER, 0), 12).unwrap();
    (sections, id)
}

fn read(sections: &Sections, id: SectionId, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![b'.'; len];
    sections.get(OWNER, id).unwrap().shadow().lay_over(offset, &mut out);
    out
}

#[test]
fn what_was_written_lies_over_the_file() {
    let (mut sections, id) = one();
    let mut write = |offset, data: &[u8]| {
        sections.write(OWNER, id, offset, &WriteData::copy_of(offset, data)).unwrap();
    };
    write(4094, b"abcd");
    write(4090, b"xy");
    write(4095, b"B");
    write(8192, &[b'z'; 4096]);
    assert_eq!(read(&sections, id, 4088, 12), b"..xy..aBcd..");
    assert_eq!(read(&sections, id, 8190, 4), b"..zz");
    assert_eq!(read(&sections, id, 12_287, 3), b"z..");
    let section = sections.get(OWNER, id).unwrap();
    let ranges: Vec<_> = section.written().iter().collect();
    assert_eq!(ranges, [(4090, 4092), (4094, 4098), (8192, 12_288)]);
    let pieces: Vec<_> =
        section.shadow().pieces(4094, 4098).map(|(at, bytes, _)| (at, bytes)).collect();
    assert_eq!(pieces, [(4094, &b"aB"[..]), (4096, &b"cd"[..])]);
    assert_eq!(sections.pages(), 3);
    assert!(sections.bytes() >= 3 * 4096);
    drop(sections.end(OWNER, id).unwrap());
    assert_eq!((sections.pages(), sections.bytes()), (0, 0));
}

/// A page that was handed over as a block is not changed behind the back of who else has it.
#[test]
fn blocks_are_copied_before_they_are_changed() {
    let (mut sections, id) = one();
    let block = SharedBlock::from([7; BLOCK_SIZE]);
    sections.write(OWNER, id, 0, &WriteData::Blocks(vec![block.clone()])).unwrap();
    sections.write(OWNER, id, 1, &WriteData::Bytes(vec![8])).unwrap();
    assert_eq!(block[..3], [7, 7, 7]);
    assert_eq!(read(&sections, id, 0, 3), [7, 8, 7]);
}

#[test]
fn one_per_file_each_of_its_session() {
    let (mut sections, id) = one();
    assert_eq!(sections.start((SessionId(2), 0), 12), Err(errno(libc::EBUSY)));
    assert!(sections.get(SessionId(2), id).is_err());
    assert!(sections.write(SessionId(2), id, 0, &vec![1].into()).is_err());
    assert!(sections.end(SessionId(2), id).is_err());
    drop(sections.end(OWNER, id).unwrap());
    assert!(sections.get(OWNER, id).is_err() && sections.end(OWNER, id).is_err());
    let next = sections.start((SessionId(2), 0), 12).unwrap();
    assert_ne!(next, id, "a number is not used again");
    for ino in 100..100 + MOST_SECTIONS as InodeNr - 1 {
        sections.start((OWNER, 0), ino).unwrap();
    }
    assert_eq!(sections.start((OWNER, 0), 9), Err(errno(libc::EMFILE)));
}

#[test]
fn void_by_what_overlaps() {
    type Change = fn(&mut Sections);
    let cases: [(Change, bool); 6] = [
        (|s| s.changed(12, 0, 10), false),
        (|s| s.changed(12, 0, 11), true),
        (|s| s.changed(12, 20, 30), false),
        (|s| s.changed(13, 0, 100), false),
        (|s| s.resized(12), true),
        (|s| s.removed(12), true),
    ];
    for (i, (change, void)) in cases.into_iter().enumerate() {
        let (mut sections, id) = one();
        sections.write(OWNER, id, 10, &vec![1; 10].into()).unwrap();
        change(&mut sections);
        assert_eq!(sections.get(OWNER, id).unwrap().is_void(), void, "{i}");
    }
}

#[test]
fn a_removed_files_number_is_free() {
    let (mut sections, id) = one();
    sections.removed(12);
    let other = sections.start((OWNER, 0), 12).unwrap();
    sections.changed(12, 0, 1);
    drop(sections.end(OWNER, id).unwrap());
    assert_eq!(
        sections.start((OWNER, 0), 12),
        Err(errno(libc::EBUSY)),
        "the other one is still there"
    );
    drop(sections.end(OWNER, other).unwrap());
    sections.start((OWNER, 0), 12).unwrap();
}

/// Rule R31: sections end with their session.
#[test]
fn r31_sections_end_with_their_session() {
    let (mut sections, id) = one();
    let other = SessionId(2);
    let kept = sections.start((other, 0), 13).unwrap();
    sections.end_all(OWNER);
    assert!(sections.get(OWNER, id).is_err() && sections.get(other, kept).is_ok());
    assert!(sections.start((other, 0), 12).is_ok(), "the file may have another one");
}
