//! The checksum of the log, and of private logs.

/// The checksum of what the project writes in a format of its own: crc32c of `data` continued from
/// `seed`, combined by exclusive or with a hash that is no CRC.
///
/// A CRC alone is blind where it matters here. Much of what is checked ends in a crc32c of its own:
/// superblocks, extent blocks, pages of some applications. Two such blocks differ by a multiple
/// of the polynomial, so that one of them left standing in place of the other, as a lost write of
/// one sector or block leaves it, does not change any crc32c over both.
pub fn checksum(seed: u32, data: &[u8]) -> u32 {
    crate::crc32c_append(seed, data) ^ word_hash(data)
}

/// Multiplies words of 8 bytes into four lanes; the last, partial stripe counts as if zeros
/// followed (its length is known to every record).
fn word_hash(data: &[u8]) -> u32 {
    const STRIPE: usize = 32;
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [1u64, 2, 3, 4];
    let mut mix = |stripe: &[u8; STRIPE]| {
        for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
            let word = word.try_into().map_or(0, u64::from_le_bytes);
            *lane = (*lane ^ word).wrapping_mul(FACTOR).rotate_left(29);
        }
    };
    let (stripes, rest) = data.as_chunks::<STRIPE>();
    stripes.iter().for_each(&mut mix);
    if !rest.is_empty() {
        let mut last = [0; STRIPE];
        last.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
        mix(&last);
    }
    let all = lanes.iter().fold(0u64, |h, lane| (h ^ lane).wrapping_mul(FACTOR).rotate_left(29));
    (all >> 32) as u32
}
