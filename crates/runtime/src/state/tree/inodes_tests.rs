//! Tests of the references to inodes, and of what is freed when there are none.

use super::*;
use siftfs_ext4::format::S_IFREG;
use siftfs_ext4::testing::fresh_inode;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);

/// Two sessions, and no inode.
fn empty() -> Inodes {
    let mut inodes = Inodes::new(BTreeSet::new());
    [ONE, TWO].into_iter().for_each(|session| inodes.references.begin(session));
    inodes
}

/// An inode in memory with this many names.
fn add(inodes: &mut Inodes, ino: InodeNr, nlink: u32) {
    let mut inode = fresh_inode(ino, S_IFREG | 0o644);
    inode.nlink = nlink;
    let version = inodes.next_version();
    inodes.add(ino, Node::new(inode, version));
}

/// The inode loses its last name.
fn unlink(inodes: &mut Inodes, ino: InodeNr) {
    inodes.get_mut(&ino).unwrap().inode.nlink = 0;
    inodes.orphaned(ino);
    inodes.queue_if_unreferenced(ino);
}

#[test]
fn an_unlinked_file_is_freed_when_its_last_reference_goes() {
    let mut inodes = empty();
    add(&mut inodes, 12, 1);
    inodes.references.looked_up(ONE, 12);
    inodes.references.looked_up(ONE, 12);
    let (one, two) =
        (inodes.open(12, ONE, Some(Access::Both)), inodes.open(12, ONE, Some(Access::Both)));
    assert!(
        one != two && inodes.references.opened(ONE, two).is_some_and(|opened| opened.ino == 12)
    );
    unlink(&mut inodes, 12);
    inodes.forget(ONE, 12, 1);
    assert!(
        inodes.close(one, ONE)
            && !inodes.close(one, ONE)
            && inodes.references.opened(ONE, one).is_none()
    );
    assert!(inodes.is_removed_in_use());
    assert!(inodes.close(two, ONE));
    assert!(inodes.is_removed_in_use() && inodes.is_referenced(12) && !inodes.has_to_free());
    inodes.forget(ONE, 12, 1);
    assert!(!inodes.is_referenced(12) && !inodes.is_removed_in_use() && inodes.has_to_free());
    assert_eq!((inodes.next_to_free(), inodes.next_to_free()), (Some(12), None));
}

#[test]
fn a_file_with_a_name_is_not_freed() {
    let mut inodes = empty();
    add(&mut inodes, 12, 1);
    let handle = inodes.open(12, ONE, Some(Access::Both));
    inodes.references.looked_up(ONE, 12);
    inodes.forget(ONE, 12, 9);
    assert!(inodes.close(handle, ONE) && !inodes.has_to_free());
}

/// Rule R31: a handle belongs to its session, and ends with it.
#[test]
fn r31_a_handle_belongs_to_its_session_and_ends_with_it() {
    let mut inodes = empty();
    add(&mut inodes, 12, 1);
    let handles = [ONE, ONE, TWO].map(|session| inodes.open(12, session, Some(Access::Read)));
    assert!(inodes.references.opened(TWO, handles[0]).is_none() && !inodes.close(handles[0], TWO));
    assert!(
        inodes
            .references
            .opened(ONE, handles[0])
            .is_some_and(|opened| opened.access == Some(Access::Read))
    );
    unlink(&mut inodes, 12);
    inodes.end_session(ONE);
    assert!(inodes.references.opened(ONE, handles[1]).is_none() && !inodes.has_to_free());
    assert!(inodes.references.opened(TWO, handles[2]).is_some());
    inodes.end_session(TWO);
    assert!(inodes.has_to_free(), "the last reference is gone");
}

#[test]
fn the_queue_skips_what_is_no_orphan_any_more() {
    let mut inodes = Inodes::new(BTreeSet::from([12, 13, 14]));
    inodes.not_orphaned(12);
    assert_eq!(inodes.next_to_free(), Some(13));
    inodes.free_later(13);
    assert_eq!(inodes.next_to_free(), Some(13));
    inodes.freed(13);
    assert_eq!((inodes.next_to_free(), inodes.next_to_free()), (Some(14), None));
    assert!(inodes.is_orphan(14) && !inodes.is_orphan(13) && inodes.orphans() == 1);
}

#[test]
fn at_unmount_no_reference_counts() {
    let mut inodes = empty();
    add(&mut inodes, 12, 1);
    inodes.open(12, ONE, Some(Access::Both));
    inodes.references.looked_up(ONE, 12);
    unlink(&mut inodes, 12);
    assert!(!inodes.has_to_free());
    inodes.forget_all();
    assert!(!inodes.is_referenced(12));
    assert_eq!(inodes.next_to_free(), Some(12));
}

#[test]
fn orphans_that_recovery_found_a_name_for_are_not_counted() {
    let mut inodes = Inodes::new(BTreeSet::from([12, 13, 14]));
    add(&mut inodes, 12, 1);
    add(&mut inodes, 13, 0);
    assert_eq!(inodes.unnamed_orphans(), 2);
}

/// What is busy stays; what goes is told of, and its newest record is remembered.
#[test]
fn idle_inodes_leave_memory() {
    let mut inodes = empty();
    for ino in 12..22 {
        add(&mut inodes, ino, 1);
        inodes.staged(ino, Lsn(ino.into()));
    }
    let handle = inodes.open(13, ONE, Some(Access::Both));
    let mut gone = Vec::new();
    inodes.shrink(4, |ino| ino == 12, |ino| gone.push(ino));
    assert_eq!((inodes.len(), &gone[..]), (4, &[14, 15, 16, 17, 18, 19][..]));
    assert!(inodes.contains(12) && inodes.contains(13) && !inodes.contains(14));
    assert_eq!(inodes.evicted_staged(), Lsn(19));
    assert!(inodes.close(handle, ONE));
    inodes.staged(14, Lsn(40));
    assert_eq!(inodes.evicted_staged(), Lsn(40));
}

/// What was read of the area before may not be the file's any more, in memory or not.
#[test]
fn reclamation_draws_new_versions() {
    let mut inodes = empty();
    add(&mut inodes, 12, 1);
    let before = inodes.get(&12).unwrap().map_version;
    inodes.reclaimed(&[13, 12], TxnSeq(1));
    assert!(inodes.get(&12).unwrap().map_version > before);
    assert_eq!(inodes.next_version(), before + 3);
}
