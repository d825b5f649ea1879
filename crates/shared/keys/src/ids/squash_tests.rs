use super::*;
use crate::ids::IdRange;
use proptest::prelude::*;

fn ids(squash: Squash) -> Ids {
    Ids { squash, anon: (99, 98), ..Ids::as_they_are() }
}

fn claimed(uid: u32, gid: u32, groups: &[u32], keeps_capabilities: bool) -> Claimed {
    Claimed { uid, gid, groups: groups.to_vec(), keeps_capabilities }
}

#[test]
fn root_is_squashed_unless_said_otherwise() {
    let root = ids(Squash::Root);
    assert_eq!(root.squash(0, 0, &[0, 4, 5]), claimed(99, 98, &[], false));
    assert_eq!(root.squash(0, 7, &[4]), claimed(99, 98, &[], false));
    assert_eq!(root.squash(1000, 0, &[4, 0, 5]), claimed(1000, 98, &[4, 5], false));
    assert_eq!(root.squash(1000, 7, &[4]), claimed(1000, 7, &[4], false));
    let all = ids(Squash::All);
    assert_eq!(all.squash(1000, 7, &[4]), claimed(99, 98, &[], false));
    let none = ids(Squash::None);
    assert_eq!(none.squash(0, 0, &[0, 4]), claimed(0, 0, &[0, 4], true));
    assert_eq!(none.squash(u32::MAX, 0, &[0]), claimed(99, 98, &[], false));
}

#[test]
fn maps_bound_the_claim() {
    let map = |client, server, count| IdMap::new(vec![IdRange { client, server, count }]).unwrap();
    let mapped = Ids { uids: map(1000, 5000, 10), gids: map(0, 100, 10), ..ids(Squash::None) };
    assert_eq!(mapped.squash(1001, 3, &[0, 9, 10]), claimed(5001, 103, &[100, 109], false));
    assert_eq!(mapped.squash(999, 3, &[4]), claimed(99, 98, &[], false));
    assert_eq!(mapped.squash(1001, 11, &[4]), claimed(5001, 98, &[104], false));
    // Another user of the client that would be root here.
    let sly = Ids { uids: map(1000, 0, 2), gids: map(1000, 0, 2), ..ids(Squash::Root) };
    assert_eq!(sly.squash(1000, 1001, &[]), claimed(99, 98, &[], false));
    assert_eq!(sly.squash(1001, 1000, &[1000, 1001]), claimed(1, 98, &[1], false));
    // A client's root with an id of its own here is squashed all the same.
    let container = Ids { uids: map(0, 100_000, 65_536), ..ids(Squash::Root) };
    assert_eq!(container.squash(0, 5, &[]), claimed(99, 98, &[], false));
}

fn a_map() -> impl Strategy<Value = IdMap> {
    let range = (0u32..30, 0u32..30, 1u32..10);
    let ranges = prop::collection::vec(range, 0..3).prop_filter_map("overlap", |all| {
        let all = all.into_iter().map(|(client, server, count)| IdRange { client, server, count });
        IdMap::new(all.collect()).ok()
    });
    prop_oneof![Just(IdMap::identity()), ranges]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// No claim reaches user 0, group 0, a capability or an id that is not mapped.
    #[test]
    fn claims_stay_within_the_line(
        uids in a_map(), gids in a_map(), all: bool,
        uid in 0u32..40, gid in 0u32..40, groups in prop::collection::vec(0u32..40, 0..6),
    ) {
        let squash = if all { Squash::All } else { Squash::Root };
        let ids = Ids { uids, gids, squash, anon: (NOBODY, 60_000) };
        let got = ids.squash(uid, gid, &groups);
        prop_assert!(got.uid != 0 && got.gid != 0 && !got.groups.contains(&0));
        prop_assert!(!got.keeps_capabilities);
        let named = |map: &IdMap, id: u32| map.to_server(map.to_client(id)) == Some(id);
        prop_assert!(got.uid == NOBODY || named(&ids.uids, got.uid));
        prop_assert!(got.gid == 60_000 || named(&ids.gids, got.gid));
        for group in &got.groups {
            prop_assert!(named(&ids.gids, *group));
            prop_assert!(groups.contains(&ids.gids.to_client(*group)));
        }
        if got.uid == NOBODY || all {
            prop_assert_eq!((got.gid, got.groups.len()), (60_000, 0));
        }
        // The other way round: with nothing squashed, what is mapped is reached.
        let free = Ids { squash: Squash::None, ..ids.clone() };
        let got = free.squash(uid, gid, &groups);
        prop_assert_eq!(got.uid, ids.uids.to_server(uid).unwrap_or(NOBODY));
        prop_assert!(!got.keeps_capabilities || free.uids.is_identity() && free.gids.is_identity());
    }
}
