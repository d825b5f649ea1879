use super::*;
use crate::ids::{IdMap, IdRange, NOBODY, Squash};
use proptest::prelude::*;

fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = VERSION.to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

const NONE: u32 = u32::MAX;

fn ids() -> Ids {
    let map = |client, server| IdMap::new(vec![IdRange { client, server, count: 10 }]).unwrap();
    Ids { uids: map(1000, 5000), gids: map(1000, 7000), ..Ids::as_they_are() }
}

#[test]
fn users_and_groups_are_mapped_and_nothing_else() {
    let of = |user, group| {
        list(&[
            (1, 7, NONE),
            (2, 6, user),
            (4, 5, NONE),
            (8, 4, group),
            (16, 7, NONE),
            (32, 0, NONE),
        ])
    };
    let (here, there) = (of(1001, 1002), of(5001, 7002));
    assert_eq!(to_server(&here, &ids()), Some(there.clone()));
    assert_eq!(to_client(&there, &ids()), Some(here));
    assert_eq!(to_client(&of(5001, 5001), &ids()), Some(of(1001, NOBODY)));
    for (user, group) in [(0, 1002), (1001, 0), (1010, 1002), (NOBODY, 1002), (NONE, 1002)] {
        assert_eq!(to_server(&of(user, group), &ids()), None, "{user} {group}");
    }
    // What was shown as nobody's cannot be written back, as somebody's or as nobody's.
    let shown = to_client(&of(123, 7002), &ids()).unwrap();
    assert_eq!(to_server(&shown, &ids()), None);
}

#[test]
fn what_is_no_list() {
    let good = list(&[(1, 7, NONE), (4, 5, NONE), (32, 0, NONE)]);
    let same = Ids { squash: Squash::Root, ..Ids::as_they_are() };
    assert_eq!(to_server(&good, &same).as_deref(), Some(&*good));
    assert_eq!(to_server(&list(&[]), &same), Some(list(&[])));
    let mut newer = good.clone();
    newer[0] = 3;
    let long = list(&vec![(1, 7, NONE); 8192]);
    let tag = list(&[(3, 7, NONE)]);
    for bad in [&[][..], &good[..3], &good[..good.len() - 1], &newer, &long, &tag] {
        assert_eq!((to_server(bad, &same), to_client(bad, &same)), (None, None));
    }
    assert!(is_list(b"system.posix_acl_default") && is_list(b"system.posix_acl_access"));
    assert!(!is_list(b"system.posix_acl") && !is_list(b"user.posix_acl_access"));
}

/// As the kernel writes it.
#[test]
fn a_list_of_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, "").unwrap();
    let entries =
        [(1, 6, NONE), (2, 4, 1001), (4, 4, NONE), (8, 4, 1002), (16, 4, NONE), (32, 0, NONE)];
    let name = "system.posix_acl_access";
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, name, &to_server(&list(&entries), &ids()).unwrap(), flags).unwrap();
    let mut value = [0u8; 256];
    let len = rustix::fs::getxattr(&path, name, &mut value).unwrap();
    assert_eq!(to_client(&value[..len], &ids()), Some(list(&entries)));
}

proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(bytes: Vec<u8>) {
        let whole = [VERSION.as_slice(), &bytes].concat();
        for list in [&bytes, &whole] {
            for there in [to_server(list, &ids()), to_client(list, &ids())].into_iter().flatten() {
                prop_assert_eq!(there.len(), list.len());
            }
        }
    }

    /// There and back, a list is what it was.
    #[test]
    fn lists_come_back(entries in prop::collection::vec(
        (prop::sample::select(vec![1u16, 2, 4, 8, 16, 32]), 0u16..8, 1000u32..1010), 0..20,
    )) {
        let here = list(&entries);
        let there = to_server(&here, &ids()).unwrap();
        prop_assert_eq!(to_client(&there, &ids()), Some(here));
    }
}
