//! The interval map beside `rangemap` on the same histories.

use crate::spread::{cpu_seconds, spread};
use rangemap::RangeMap;
use rustix::time::ClockId;
use serde_json::{Value, json};
use siftfs_intervals::{IntervalMap, Source};

/// Live 4 KiB intervals.
const LIVE: u64 = 1_000_000;
/// Random insertions timed at that size.
const TIMED: u64 = 2_000_000;

/// A place in a record, as the Service has it.
#[derive(Clone, Copy, Default)]
struct Place(u64);

impl Source for Place {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    fn to_bits(self) -> u64 {
        self.0
    }
    fn skip(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
    fn join(self, len: u64, next: Self) -> Option<Self> {
        (self.0 + len == next.0).then_some(self)
    }
}

/// Inserts each block once, in random order, then [`TIMED`] random ones, of which only the
/// latter are timed. No two neighbours have sources that go on. Insertions per second of this
/// thread's processor time, so that other load counts as little as it can.
fn timed(mut insert: impl FnMut(u64, u64)) -> f64 {
    let mut rng = siftfs_base::Rng::new(0x5eed);
    let mut order: Vec<u64> = (0..LIVE).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let mut source = 0;
    let mut next = |block: u64| {
        source += 1;
        insert(block * 4096, source << 14);
    };
    order.into_iter().for_each(&mut next);
    let start = cpu_seconds(ClockId::ThreadCPUTime);
    (0..TIMED).for_each(|_| next(rng.below(LIVE)));
    TIMED as f64 / (cpu_seconds(ClockId::ThreadCPUTime) - start)
}

fn ours() -> (f64, usize) {
    let mut map = IntervalMap::<Place>::new();
    let rate = timed(|start, source| map.insert(start, 4096, Place(source)));
    assert_eq!(map.len() as u64, LIVE, "no interval was joined or lost");
    (rate, map.memory() / map.len())
}

fn theirs() -> f64 {
    let mut map = RangeMap::new();
    let rate = timed(|start, source| map.insert(start..start + 4096, source));
    assert_eq!(map.len() as u64, LIVE, "no interval was joined or lost");
    rate
}

pub fn run(rounds: u64) -> Value {
    let (mut a, mut b, mut bytes) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        if round % 2 == 0 {
            b.push(theirs());
        }
        let (rate, memory) = ours();
        a.push(rate);
        bytes = memory;
        if round % 2 == 1 {
            b.push(theirs());
        }
    }
    let ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a / b).collect();
    json!({
        "live": LIVE,
        "inserts": TIMED,
        "siftfs_inserts_per_second": spread(a),
        "rangemap_inserts_per_second": spread(b),
        "ratio": spread(ratios),
        "bytes_per_interval": bytes,
    })
}
