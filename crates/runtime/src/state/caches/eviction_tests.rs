//! Tests of the order of eviction.

use super::*;
use std::collections::BTreeSet;

fn order(keys: std::ops::Range<u32>) -> (EvictionOrder<u32>, BTreeSet<u32>) {
    let mut order = EvictionOrder::default();
    keys.clone().for_each(|key| order.push(key));
    (order, keys.collect())
}

#[test]
fn the_oldest_go_first_and_what_is_kept_comes_last() {
    let (mut order, mut held) = order(0..10);
    let sweep = |order: &mut EvictionOrder<u32>, held: &mut BTreeSet<u32>, limit| {
        order.sweep(held.len(), limit, 1000, |key, evict| {
            assert!(evict);
            if key % 3 == 0 {
                return Fate::Kept;
            }
            held.remove(&key);
            Fate::Evicted
        });
    };
    sweep(&mut order, &mut held, 7);
    assert_eq!(held, BTreeSet::from([0, 3, 5, 6, 7, 8, 9]));
    order.push(10);
    held.insert(10);
    sweep(&mut order, &mut held, 4);
    assert_eq!(held, BTreeSet::from([0, 3, 6, 9]), "5, 7, 8, then 10, in their order");
}

#[test]
fn a_sweep_ends_where_nothing_can_go() {
    let (mut order, held) = order(0..100);
    let mut asked = 0;
    order.sweep(held.len(), 10, most(90), |_, _| {
        asked += 1;
        Fate::Kept
    });
    assert_eq!(asked, 200, "each twice: the second time it may be used no more");
    order.sweep(held.len(), 10, 7, |_, _| {
        asked += 1;
        Fate::Kept
    });
    assert_eq!(asked, 207, "no more than the caller allows");
}

/// What came and went leaves its keys behind: a cache within its bound tidies them, and gives
/// their memory back.
#[test]
fn keys_of_what_is_gone_are_forgotten() {
    let (mut order, _) = order(0..100_000);
    let full = order.bytes();
    let held = 99_990..100_000;
    while order.0.len() > 10 * 2 + SMALL {
        order.sweep(10, 1000, most(0), |key, evict| {
            assert!(!evict);
            if held.contains(&key) { Fate::Kept } else { Fate::Gone }
        });
    }
    assert!(held.clone().all(|key| order.0.contains(&key)));
    assert!(full >= 400_000 && order.bytes() <= 4 * ROOM as u64, "{full}, then {}", order.bytes());
}
