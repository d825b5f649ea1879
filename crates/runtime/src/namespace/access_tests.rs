//! Which directories a caller may search and change.

use super::*;
use siftfs_ext4::xattr::{ACL_ID_NONE, AclEntry};

const OWNER_GROUP: u32 = 100;

fn caller_is_granted(uid: u32, gid: u32, groups: &[u32], acl: &Acl) -> bool {
    let cred = Credentials { uid, gid, ..Credentials::default() };
    let rights = Rights { groups: groups.to_vec(), ..Rights::default() };
    Caller { cred: &cred, rights: &rights }.granted_by(acl, OWNER_GROUP, CHANGE)
}

fn list(named_user: u16, own_group: u16, named_group: u16, mask: u16, other: u16) -> Acl {
    let entry = |tag, perm, id| AclEntry { tag, perm, id };
    Acl::new(vec![
        entry(AclTag::UserObj, 7, ACL_ID_NONE),
        entry(AclTag::User, named_user, 7),
        entry(AclTag::GroupObj, own_group, ACL_ID_NONE),
        entry(AclTag::Group, named_group, 200),
        entry(AclTag::Mask, mask, ACL_ID_NONE),
        entry(AclTag::Other, other, ACL_ID_NONE),
    ])
    .unwrap()
}

#[test]
fn a_named_user_has_what_its_entry_and_the_mask_have_in_common() {
    assert!(caller_is_granted(7, 1, &[], &list(7, 0, 0, 7, 0)));
    assert!(!caller_is_granted(7, 1, &[], &list(7, 7, 7, 5, 7)));
    // Its own entry alone counts, whatever its groups would have.
    assert!(!caller_is_granted(7, OWNER_GROUP, &[200], &list(5, 7, 7, 7, 7)));
}

#[test]
fn any_group_entry_grants_and_keeps_the_caller_from_the_others() {
    assert!(caller_is_granted(8, OWNER_GROUP, &[], &list(0, 7, 0, 7, 0)));
    assert!(caller_is_granted(8, 1, &[200], &list(0, 0, 7, 7, 0)));
    assert!(caller_is_granted(8, OWNER_GROUP, &[200], &list(0, 0, 7, 7, 0)));
    assert!(!caller_is_granted(8, 1, &[200], &list(0, 0, 5, 7, 7)));
    assert!(!caller_is_granted(8, 1, &[200], &list(0, 0, 7, 5, 7)));
}

#[test]
fn the_others_have_their_entry_without_the_mask() {
    assert!(caller_is_granted(8, 1, &[], &list(0, 0, 0, 0, 7)));
    assert!(!caller_is_granted(8, 1, &[3], &list(7, 7, 7, 7, 5)));
}

/// As Linux does, which looks at a list only if the group's bits of the mode, its mask, are not
/// all zero.
#[test]
fn a_list_whose_mask_lets_nothing_through_is_not_looked_at() {
    let cred = Credentials { uid: 7, gid: 1, ..Credentials::default() };
    let rights = Rights::default();
    let caller = Caller { cred: &cred, rights: &rights };
    for (mode, mask, granted) in [(0o040_105, 0, true), (0o040_115, 1, false)] {
        let acl = Some(list(6, 7, 7, mask, 5).to_xattr());
        let guard = Guard { mode, uid: 1002, gid: OWNER_GROUP, acl };
        assert_eq!(caller.may(&guard, READ | SEARCH).is_ok(), granted, "{mode:o}");
    }
}
