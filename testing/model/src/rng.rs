//! The bytes that loads write.

pub use siftfs_base::{Rng, mix};

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
