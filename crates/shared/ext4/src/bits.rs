//! Word-wise search and change of bitmaps of one block.

use siftfs_base::BLOCK_SIZE;

/// A bitmap of one block, lowest bit first.
pub type Bitmap = [u8; BLOCK_SIZE];

fn word(map: &Bitmap, w: usize) -> u64 {
    let (words, _) = map.as_chunks();
    u64::from_le_bytes(*words.get(w).expect("a bit of the block"))
}

fn next(map: &Bitmap, from: u32, end: u32, flip: u64) -> u32 {
    debug_assert!(end as usize <= BLOCK_SIZE * 8);
    if from >= end {
        return end;
    }
    let mut w = from as usize / 64;
    let mut bits = (word(map, w) ^ flip) & (!0 << (from % 64));
    loop {
        if bits != 0 {
            return (w as u32 * 64 + bits.trailing_zeros()).min(end);
        }
        w += 1;
        if w as u32 * 64 >= end {
            return end;
        }
        bits = word(map, w) ^ flip;
    }
}

/// First clear bit in `[from, end)`, or `end`.
pub fn next_zero(map: &Bitmap, from: u32, end: u32) -> u32 {
    next(map, from, end, !0)
}

/// First set bit in `[from, end)`, or `end`.
pub fn next_one(map: &Bitmap, from: u32, end: u32) -> u32 {
    next(map, from, end, 0)
}

/// Is this bit set?
pub fn test(map: &Bitmap, bit: u32) -> bool {
    map.get(bit as usize / 8).expect("a bit of the block") & (1 << (bit % 8)) != 0
}

/// Clear bits in `[0, end)`.
pub fn count_zeros(map: &Bitmap, end: u32) -> u32 {
    let whole = end as usize / 64;
    let mut zeros: u32 = (0..whole).map(|w| word(map, w).count_zeros()).sum();
    if !end.is_multiple_of(64) {
        let mask = (1u64 << (end % 64)) - 1;
        zeros += (!word(map, whole) & mask).count_ones();
    }
    zeros
}

/// Sets or clears `[from, end)`.
pub fn fill(map: &mut Bitmap, from: u32, end: u32, set: bool) {
    let mut bit = from;
    while bit < end {
        let byte = bit as usize / 8;
        if bit.is_multiple_of(8) && end - bit >= 8 {
            let last = end as usize / 8;
            let whole = map.get_mut(byte..last).expect("bits of the block");
            whole.fill(if set { 0xFF } else { 0 });
            bit = last as u32 * 8;
            continue;
        }
        let mask = 1u8 << (bit % 8);
        let byte = map.get_mut(byte).expect("a bit of the block");
        *byte = if set { *byte | mask } else { *byte & !mask };
        bit += 1;
    }
}

#[cfg(test)]
#[path = "bits_tests.rs"]
mod tests;
