//! Tests of the permission changes that are not durable.

use super::*;

fn pending(permissions: &Permissions) -> Vec<InodeNr> {
    permissions.pending().collect()
}

/// An fsync waits for a change that is in flight as well as for a new one.
#[test]
fn a_change_is_pending_until_its_transaction_is_durable() {
    let mut permissions = Permissions::default();
    permissions.changed(12);
    permissions.cut();
    permissions.changed(14);
    assert_eq!(pending(&permissions), [12, 14]);
    assert!(permissions.is_pending(12) && permissions.is_pending(14));
    permissions.journaled();
    assert_eq!(pending(&permissions), [14]);
    permissions.cut();
    permissions.journaled();
    assert!(permissions.is_empty());
}

/// A record makes a change durable whichever transaction had it, and remains the newest one.
#[test]
fn a_record_takes_changes_of_both_generations() {
    let mut permissions = Permissions::default();
    permissions.changed(12);
    permissions.cut();
    permissions.changed(12);
    permissions.changed(13);
    permissions.staged(&[12], Lsn(7));
    assert_eq!(pending(&permissions), [13]);
    permissions.staged(&[], Lsn(9));
    assert_eq!(permissions.last_staged(), Lsn(7));
}

/// A freed inode's change is taken out of the running transaction; what is in flight goes its way.
#[test]
fn a_freed_inode_owes_no_new_change() {
    let mut permissions = Permissions::default();
    permissions.changed(12);
    permissions.cut();
    permissions.changed(12);
    permissions.changed(13);
    permissions.freed(12);
    permissions.freed(13);
    assert_eq!(pending(&permissions), [12]);
}
