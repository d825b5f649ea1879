//! The map beside a naive model, driven by bytes: for fuzzing and for the tests.

use crate::{Interval, IntervalMap, Source};

/// Bytes of the space that the model knows.
pub const SPAN: u64 = 4096;

/// A source whose place can be read back: a number of 2^16 runs, and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Place(pub u64);

const RUN: u64 = 1 << 16;

impl Source for Place {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    fn to_bits(self) -> u64 {
        self.0
    }
    fn skip(self, bytes: u64) -> Self {
        // Run 0 stands for zeroes, whose source does not move.
        if self.0 < RUN { self } else { Self(self.0 + bytes) }
    }
    fn join(self, len: u64, next: Self) -> Option<Self> {
        (self.skip(len) == next).then_some(self)
    }
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Insert a range; run 0 is zeroes.
    Insert {
        /// First byte.
        start: u16,
        /// Length.
        len: u16,
        /// Source run.
        run: u8,
        /// Offset in it.
        offset: u16,
    },
    /// Remove a range.
    Remove {
        /// First byte.
        start: u16,
        /// Length.
        len: u16,
    },
    /// Forget everything.
    Clear,
}

/// A map of nodes of `B` entries and the source of each byte.
pub struct Pair<const B: usize> {
    map: IntervalMap<Place, B>,
    model: Vec<Option<Place>>,
}

impl<const B: usize> Default for Pair<B> {
    fn default() -> Self {
        Self { map: IntervalMap::new(), model: vec![None; SPAN as usize] }
    }
}

impl<const B: usize> Pair<B> {
    /// Applies `op` to both.
    pub fn apply(&mut self, op: Op) {
        match op {
            Op::Insert { start, len, run, offset } => {
                let start = u64::from(start) % SPAN;
                let len = u64::from(len).min(SPAN - start);
                let source = match run {
                    0 => Place(0),
                    run => Place(u64::from(run) * RUN + u64::from(offset) % SPAN),
                };
                self.map.insert(start, len as u32, source);
                for i in 0..len {
                    self.model[(start + i) as usize] = Some(source.skip(i));
                }
            }
            Op::Remove { start, len } => {
                let start = u64::from(start) % SPAN;
                let end = (start + u64::from(len)).min(SPAN);
                self.map.remove(start, end);
                self.model[start as usize..end as usize].fill(None);
            }
            Op::Clear => {
                self.map.clear();
                self.model.fill(None);
            }
        }
    }

    /// Both hold the same, and the map is as it promises to be.
    ///
    /// # Panics
    /// If not.
    pub fn compare(&self) {
        self.map.check();
        let mut held = vec![None; SPAN as usize];
        let mut before: Option<Interval<Place>> = None;
        for v in self.map.iter() {
            assert!(v.len > 0 && v.end() <= SPAN);
            if let Some(b) = before {
                assert!(b.end() <= v.start, "{b:?} overlaps {v:?}");
                assert_eq!(b.joined(&v), None, "{b:?} and {v:?} were not joined");
            }
            for i in 0..u64::from(v.len) {
                held[(v.start + i) as usize] = Some(v.source.skip(i));
            }
            before = Some(v);
        }
        assert!(held == self.model, "the map holds another content than the model");
    }

    /// The byte at `at` is found.
    ///
    /// # Panics
    /// If not.
    pub fn probe(&self, at: u64) {
        let got = self.map.get(at).map(|v| v.source.skip(at - v.start));
        assert_eq!(got, self.model[at as usize], "byte {at}");
    }

    /// The map.
    pub fn map(&self) -> &IntervalMap<Place, B> {
        &self.map
    }
}

/// Reads operations from `bytes`, applies them to small and usual nodes, and compares.
///
/// # Panics
/// If map and model differ.
pub fn history(bytes: &[u8]) {
    let (mut small, mut usual) = (Pair::<4>::default(), Pair::<64>::default());
    for (i, b) in bytes.chunks_exact(8).enumerate() {
        let word = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let op = match b[0] {
            0 => Op::Clear,
            // Whole space, so that removals over many leaves come up.
            1..=20 => Op::Remove { start: word(2), len: word(4) % SPAN as u16 },
            21..=80 => Op::Remove { start: word(2), len: word(4) % 64 },
            81..=110 => Op::Insert { start: word(2), len: word(4), run: b[1] % 8, offset: word(6) },
            kind => Op::Insert {
                start: word(2),
                len: word(4) % 32,
                run: b[1] % 8,
                // Often right where the destination is, so that sources go on.
                offset: if kind % 2 == 0 { word(2) % SPAN as u16 } else { word(6) },
            },
        };
        small.apply(op);
        usual.apply(op);
        small.probe(u64::from(word(2)) % SPAN);
        if i % 64 == 63 {
            small.compare();
            usual.compare();
        }
    }
    small.compare();
    usual.compare();
}
