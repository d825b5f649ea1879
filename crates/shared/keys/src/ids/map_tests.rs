use super::*;
use proptest::prelude::*;

fn range(client: u32, server: u32, count: u32) -> IdRange {
    IdRange { client, server, count }
}

#[test]
fn nobody_is_nobody() {
    let all = IdMap::new(vec![range(0, 100_000, 65_536)]).unwrap();
    assert_eq!((all.to_server(0), all.to_server(65_533)), (Some(100_000), Some(165_533)));
    assert_eq!((all.to_server(65_534), all.to_server(65_535)), (None, Some(165_535)));
    assert_eq!((all.to_server(65_536), all.to_client(99_999)), (None, NOBODY));
    assert_eq!(all.to_client(165_534), NOBODY);
    let every = IdMap::identity();
    assert_eq!((every.to_server(NOBODY), every.to_server(0)), (Some(NOBODY), Some(0)));
    assert_eq!((every.to_server(u32::MAX), every.to_client(u32::MAX)), (None, NOBODY));
    let none = IdMap::new(Vec::new()).unwrap();
    assert_eq!((none.to_server(0), none.to_client(0)), (None, NOBODY));
}

fn ranges() -> impl Strategy<Value = Vec<IdRange>> {
    let id = prop_oneof![0u32..200, 65_500u32..65_560, u32::MAX - 100..=u32::MAX];
    let one = (id.clone(), id, prop_oneof![0u32..60, any::<u32>()]);
    prop::collection::vec(one.prop_map(|(c, s, n)| range(c, s, n)), 0..5)
}

/// Ids at the ends of the ranges and beside them.
fn edges(ranges: &[IdRange]) -> Vec<u32> {
    let mut ids = vec![0, NOBODY, u32::MAX];
    for r in ranges {
        for first in [r.client, r.server] {
            let last = first.saturating_add(r.count);
            ids.extend([first.saturating_sub(1), first, first.saturating_add(r.count / 2)]);
            ids.extend([last.saturating_sub(1), last]);
        }
    }
    ids
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// One to one: what goes to the server comes back, nothing else reaches that id, and what no
    /// range has is nobody's.
    #[test]
    fn maps_are_one_to_one(ranges in ranges(), more in prop::collection::vec(any::<u32>(), 8)) {
        let Ok(map) = IdMap::new(ranges.clone()) else { return Ok(()) };
        let ids: Vec<u32> = edges(&ranges).into_iter().chain(more).collect();
        let mut seen = std::collections::HashMap::new();
        for id in ids {
            let inside = |r: &IdRange| id >= r.client && id - r.client < r.count;
            match map.to_server(id) {
                Some(there) => {
                    prop_assert!(ranges.iter().any(inside) && id != NOBODY && there != u32::MAX);
                    prop_assert_eq!(map.to_client(there), id);
                    let before = seen.insert(there, id);
                    prop_assert!(before.is_none_or(|other| other == id));
                }
                None => prop_assert!(!ranges.iter().any(inside) || id == NOBODY),
            }
            let back = map.to_client(id);
            prop_assert!(back == NOBODY || map.to_server(back) == Some(id));
        }
    }

    /// Ranges are refused if and only if two share an id, or one has ids that there are not.
    #[test]
    fn overlaps_are_refused(ranges in ranges()) {
        let span = |first: u32, r: &IdRange| u64::from(first)..u64::from(first) + u64::from(r.count);
        let bad = ranges.iter().enumerate().any(|(n, r)| {
            let (c, s) = (span(r.client, r), span(r.server, r));
            let meets = |a: &std::ops::Range<u64>, b: std::ops::Range<u64>| a.start < b.end && b.start < a.end;
            let other = |o: &IdRange| meets(&c, span(o.client, o)) || meets(&s, span(o.server, o));
            r.count == 0
                || c.end > u64::from(u32::MAX)
                || s.end > u64::from(u32::MAX)
                || (r.client, r.count) == (NOBODY, 1)
                || ranges.iter().skip(n + 1).any(other)
        });
        prop_assert_eq!(IdMap::new(ranges).is_err(), bad);
    }
}
