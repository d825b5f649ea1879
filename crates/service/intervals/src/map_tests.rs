use crate::check::{Op, Pair, Place, SPAN, history};
use crate::{Interval, IntervalMap, Source};
use proptest::prelude::*;

fn long() -> bool {
    std::env::var_os("SIFTFS_LONG").is_some()
}

fn random_op(rng: &mut siftfs_base::Rng, most: u64) -> Op {
    let start = rng.below(SPAN) as u16;
    let len = (1 + rng.below(most)) as u16;
    match rng.below(100) {
        0..25 => Op::Remove { start, len },
        25 if rng.below(400) == 0 => Op::Clear,
        26 => Op::Remove { start, len: rng.below(SPAN) as u16 },
        n => {
            let offset = if n % 2 == 0 { start } else { rng.below(SPAN) as u16 };
            Op::Insert { start, len, run: rng.below(6) as u8, offset }
        }
    }
}

/// Millions of random operations leave the map and a naive byte array with the same content,
/// with nodes so small that the tree is deep, and with the usual ones.
#[test]
fn random_histories_agree_with_a_byte_array() {
    fn run<const B: usize>(seed: u64, ops: u64, most: u64) {
        let (mut pair, mut rng) = (Pair::<B>::default(), siftfs_base::Rng::new(seed));
        for i in 0..ops {
            let op = random_op(&mut rng, most);
            pair.apply(op);
            pair.probe(rng.below(SPAN));
            if i % 256 == 0 {
                pair.compare();
            }
        }
        pair.compare();
    }
    let scale = if long() { 40 } else { 1 };
    for (i, most) in [2, 5, 30, 300].into_iter().enumerate() {
        let seed = 0x9e37_79b9_7f4a_7c15 ^ (i as u64) << 8;
        run::<4>(seed, 300_000 * scale, most);
        run::<7>(seed + 2, 100_000 * scale, most);
        run::<64>(seed + 4, 300_000 * scale, most);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// What the fuzzer calls.
    #[test]
    fn byte_driven_histories_agree(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        history(&bytes);
    }
}

fn all<const B: usize>(map: &IntervalMap<Place, B>) -> Vec<(u64, u32, u64)> {
    map.iter().map(|Interval { start, len, source }| (start, len, source.0)).collect()
}

#[test]
fn a_late_write_wins_and_leaves_residues() {
    let mut map = IntervalMap::<Place>::new();
    map.insert(100, 100, Place(1 << 20));
    map.insert(140, 20, Place(2 << 20));
    let rest = (1 << 20) + 60;
    assert_eq!(all(&map), [(100, 40, 1 << 20), (140, 20, 2 << 20), (160, 40, rest)]);
    map.remove(150, 170);
    assert_eq!(all(&map), [(100, 40, 1 << 20), (140, 10, 2 << 20), (170, 30, rest + 10)]);
}

#[test]
fn neighbours_join_only_if_the_source_goes_on() {
    let mut map = IntervalMap::<Place>::new();
    map.insert(0, 10, Place(1 << 20));
    map.insert(20, 10, Place((1 << 20) + 20));
    map.insert(10, 10, Place((1 << 20) + 10));
    assert_eq!(all(&map), [(0, 30, 1 << 20)]);
    map.insert(30, 10, Place((1 << 20) + 31));
    assert_eq!(map.len(), 2);
    // A length that 32 bits do not hold is never made.
    let mut map = IntervalMap::<Place>::new();
    map.insert(0, u32::MAX, Place(0));
    map.insert(u64::from(u32::MAX), u32::MAX, Place(0));
    assert_eq!(map.len(), 2);
}

/// At most 64 bytes per live interval, whether they come in order or not.
#[test]
fn an_interval_takes_little_memory() {
    const COUNT: u64 = 200_000;
    let block = |i: u64| (i * 4096, 4096, Place((i + 16) << 33));
    let mut map = IntervalMap::<Place>::new();
    for i in 0..COUNT {
        let (start, len, source) = block(i);
        map.insert(start, len, source);
    }
    let ascending = map.memory() / map.len();
    let mut map = IntervalMap::<Place>::new();
    let mut rng = siftfs_base::Rng::new(77);
    for _ in 0..3 * COUNT {
        let (start, len, source) = block(rng.below(COUNT));
        map.insert(start, len, source);
        assert!(map.len() < 10_000 || map.memory() <= 64 * map.len(), "{}", map.len());
    }
    let random = map.memory() / map.len();
    assert!(map.len() as u64 > COUNT * 9 / 10);
    assert!(ascending <= 32 && random <= 40, "{ascending} and {random} bytes per interval");
}

/// Sparse leftovers of many removals share nodes again.
#[test]
fn a_thinned_map_gives_nodes_back() {
    const COUNT: u64 = 100_000;
    let fill = |map: &mut IntervalMap<Place>, from: u64| {
        (from..from + COUNT).for_each(|i| map.insert(i * 4096, 4096, Place((i + 16) << 33)));
    };
    let mut map = IntervalMap::<Place>::new();
    fill(&mut map, 0);
    let full = map.memory();
    for i in (0..COUNT).filter(|i| i % 16 != 0) {
        map.remove(i * 4096, (i + 1) * 4096);
    }
    assert_eq!(map.len() as u64, COUNT.div_ceil(16));
    map.check();
    // What was given up takes in nearly as many again.
    fill(&mut map, COUNT);
    map.check();
    assert!(map.memory() < full + full / 4, "{} after {full}", map.memory());
}

#[test]
fn skip_and_join_are_inverse() {
    for place in [Place(0), Place(5 << 16)] {
        assert_eq!(place.join(7, place.skip(7)), Some(place));
    }
    assert_eq!(Place(5 << 16).join(7, Place((5 << 16) + 8)), None);
}
