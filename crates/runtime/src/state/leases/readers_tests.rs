use super::*;
use crate::state::tree::node::Node;
use siftfs_ext4::format::S_IFREG;
use siftfs_ext4::testing::fresh_inode;
use siftfs_proto::compound::Access;
use std::collections::BTreeSet;

const INO: InodeNr = 12;
const NOW: u64 = 5_000_000_000;

fn reader(session: u64, handle: u64) -> Reader {
    Reader { session: SessionId(session), handle: Handle(handle) }
}

/// A session, and a few files.
fn files() -> Inodes {
    let mut inodes = Inodes::new(BTreeSet::new());
    inodes.references.begin(SessionId(1));
    for ino in INO..INO + 3 {
        let version = inodes.next_version();
        inodes.add(ino, Node::new(fresh_inode(ino, S_IFREG | 0o644), version));
    }
    inodes
}

fn granted(readers: &mut Readers, ino: InodeNr, (of, id): (Reader, u64), inodes: &mut Inodes) {
    readers.ask((ino, NOW), (of, LeaseId(id)), inodes).unwrap();
    assert!(readers.offer(LeaseId(id)));
    readers.granted(LeaseId(id));
}

#[test]
fn several_read_a_file_until_it_changes() {
    let (mut readers, mut inodes) = (Readers::default(), files());
    assert!(readers.is_empty() && !readers.has(INO));
    for id in 1..=3 {
        granted(&mut readers, INO, (reader(id, 7), id), &mut inodes);
    }
    granted(&mut readers, INO + 1, (reader(1, 8), 4), &mut inodes);
    assert!(readers.has(INO) && readers.is_named(LeaseId(2)) && readers.count() == 4);
    for id in 1..=3 {
        assert_eq!(readers.end(Whose::File(INO), &mut inodes), Next::Revoke(LeaseId(id)));
    }
    // Another thread is at each of them.
    assert_eq!(readers.end(Whose::File(INO), &mut inodes), Next::Wait);
    for id in 1..=3 {
        readers.forget(LeaseId(id), &mut inodes);
    }
    assert_eq!(readers.end(Whose::File(INO), &mut inodes), Next::Nothing);
    assert!(!readers.has(INO) && readers.has(INO + 1));
}

#[test]
fn a_handles_and_a_sessions_end_leaves_the_others() {
    let (mut readers, mut inodes) = (Readers::default(), files());
    granted(&mut readers, INO, (reader(1, 7), 1), &mut inodes);
    granted(&mut readers, INO, (reader(1, 8), 2), &mut inodes);
    granted(&mut readers, INO, (reader(2, 7), 3), &mut inodes);
    let again = readers.ask((INO, NOW), (reader(1, 8), LeaseId(9)), &mut inodes);
    assert_eq!(again.unwrap_err().errno(), libc::EAGAIN, "one for each handle");
    let whose = Whose::Handle(reader(1, 8));
    assert_eq!(readers.end(whose, &mut inodes), Next::Revoke(LeaseId(2)));
    readers.forget(LeaseId(2), &mut inodes);
    assert_eq!(readers.end(whose, &mut inodes), Next::Nothing);
    let whose = Whose::Session(SessionId(1));
    assert_eq!(readers.end(whose, &mut inodes), Next::Revoke(LeaseId(1)));
    readers.forget(LeaseId(1), &mut inodes);
    assert_eq!((readers.end(whose, &mut inodes), readers.count()), (Next::Nothing, 1));
}

/// What changes a file waits for a target that is being told, and for no one who is only asking.
#[test]
fn a_change_goes_before_what_is_not_offered() {
    let (mut readers, mut inodes) = (Readers::default(), files());
    readers.ask((INO, NOW), (reader(1, 7), LeaseId(1)), &mut inodes).unwrap();
    assert_eq!(readers.end(Whose::File(INO), &mut inodes), Next::Nothing);
    assert!(!readers.offer(LeaseId(1)), "what was chosen is not offered");
    readers.ask((INO, NOW), (reader(1, 7), LeaseId(2)), &mut inodes).unwrap();
    assert!(readers.offer(LeaseId(2)));
    assert_eq!(readers.end(Whose::File(INO), &mut inodes), Next::Wait);
    readers.granted(LeaseId(2));
    assert_eq!(readers.end(Whose::File(INO), &mut inodes), Next::Revoke(LeaseId(2)));
}

/// Rule R29: what a program may still read is nobody else's, so its inode stays, whatever becomes
/// of its name and its handle.
#[test]
fn r29_what_is_granted_is_not_freed() {
    let (mut readers, mut inodes) = (Readers::default(), files());
    let handle = inodes.open(INO, SessionId(1), Some(Access::Read));
    granted(&mut readers, INO, (reader(1, handle), 1), &mut inodes);
    inodes.get_mut(&INO).unwrap().inode.nlink = 0;
    inodes.orphaned(INO);
    assert!(inodes.close(handle, SessionId(1)) && !inodes.has_to_free());
    let whose = Whose::Handle(reader(1, handle));
    assert_eq!(readers.end(whose, &mut inodes), Next::Revoke(LeaseId(1)));
    assert!(!inodes.has_to_free(), "the target may not have heard of it");
    readers.forget(LeaseId(1), &mut inodes);
    assert!(inodes.has_to_free());
}

#[test]
fn a_file_that_was_changed_is_left_quiet_for_a_while() {
    let (mut readers, mut inodes) = (Readers::default(), files());
    readers.note_change(INO, NOW);
    let mut ask = |ino, now, id| {
        let asked = readers.ask((ino, now), (reader(1, id), LeaseId(id)), &mut inodes);
        asked.map_err(|error| error.errno())
    };
    assert_eq!(ask(INO, NOW, 1), Err(libc::EAGAIN));
    assert_eq!(ask(INO, NOW + QUIET_NS - 1, 2), Err(libc::EAGAIN));
    assert_eq!(ask(INO + 1, NOW, 3), Ok(()));
    assert_eq!(ask(INO, NOW + QUIET_NS, 4), Ok(()));
    // However many files are changed, and by a clock that was set back.
    for ino in 0..100_000 {
        readers.note_change(ino, NOW + u64::from(ino) * QUIET_NS / 100);
    }
    assert!(readers.quiet.capacity() < 2000, "{}", readers.quiet.capacity());
    readers.ask((INO + 2, 0), (reader(1, 9), LeaseId(9)), &mut inodes).unwrap();
}

#[test]
fn there_is_an_end_of_readers() {
    let (mut readers, mut inodes) = (Readers::default(), files());
    let mut made = 0;
    let mut ask = |ino, session| loop {
        made += 1;
        if readers.ask((ino, NOW), (reader(session, made), LeaseId(made)), &mut inodes).is_err() {
            return readers.count();
        }
    };
    assert_eq!(ask(INO, 1), MOST_OF_FILE);
    assert_eq!(ask(INO, 2), MOST_OF_FILE, "of whichever session");
    assert_eq!(ask(INO + 1, 2), 2 * MOST_OF_FILE);
}
