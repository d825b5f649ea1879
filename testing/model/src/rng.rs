//! A small seeded generator of numbers: the same seed gives the same run on every machine.

/// SplitMix64: one multiplication chain per number, every seed is good.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Next 64 random bits.
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
}

/// Scrambles 64 bits.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `len` bytes that belong to write number `id` at file offset `offset`. Never zero, so that a
/// zero read back is a hole or a loss, and different for every write, so that a byte of another
/// file or an older write shows.
pub fn pattern(id: u64, offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len)
        .map(|p| {
            let word = mix(id.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ (p >> 3));
            let byte = (word >> ((p & 7) * 8)) as u8;
            if byte == 0 { 0xa5 } else { byte }
        })
        .collect()
}
