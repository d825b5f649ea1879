//! Tests of the table of inodes.

use super::*;

/// Files come and go: the table does not keep the room of all that ever were.
#[test]
fn what_goes_is_given_back() {
    let mut map: HashMap<u32, u64> = HashMap::default();
    for i in 0..100_000 {
        map.insert(i, 1);
    }
    let full = map.capacity();
    for i in 0..99_900 {
        map.remove(&i);
        give_back(&mut map);
    }
    assert!(full >= 100_000 && map.capacity() < 4 * SMALL, "{full}, then {}", map.capacity());
    assert!((99_900..100_000).all(|i| map.contains_key(&i)));
}
