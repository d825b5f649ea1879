//! The random numbers of tests, loads and injected faults.

/// A seeded generator (SplitMix64). Equal seeds give equal numbers on every machine and in every
/// version: the pages name sequences by their seeds, which no library's generator promises.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that starts at `seed`; every seed is good.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits: a counter, mixed so that each output bit depends on all of it.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`; `n` must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "an empty choice");
        self.bits() % n
    }

    /// A number from `lo` up to, not including, `hi`.
    pub fn between(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.below(hi - lo)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, or `None` if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            return None;
        }
        let i = usize::try_from(self.below(items.len() as u64)).expect("below a length");
        items.get(i)
    }

    /// This many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.bits() as u8).take(len).collect()
    }
}

/// Scrambles 64 bits.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
#[path = "rng_tests.rs"]
mod tests;
