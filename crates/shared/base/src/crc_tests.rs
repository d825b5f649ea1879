//! Tests of the checksum: every volume there is depends on it.

use super::*;

/// The examples of RFC 3720, B.4, and the check value of the catalogues.
#[test]
fn published_examples() {
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    for (data, crc) in [
        (&b"123456789"[..], 0xe306_9283),
        (&[0; 32], 0x8a91_36aa),
        (&[0xff; 32], 0x62a8_ab43),
        (&up, 0x46dd_794e),
        (&down, 0x113f_db5c),
        (&[], 0),
    ] {
        assert_eq!(crc32c(data), crc, "{data:?}");
    }
}

/// One bit after the other, as the polynomial is defined.
fn by_bits(before: u32, data: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
    !data.iter().fold(!before, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Every length up to several of a processor's widest registers, at every alignment, in two parts
/// cut anywhere.
#[test]
fn parts_of_any_length() {
    let mut rng = crate::Rng::new(1);
    let data = rng.bytes(9000);
    for len in (0..1100).chain([4095, 4096, 4097, 8192]) {
        let (start, before) = (rng.below(64) as usize, rng.bits() as u32);
        let part = &data[start..start + len];
        let whole = by_bits(before, part);
        assert_eq!(crc32c_append(before, part), whole, "{len} bytes at {start}");
        let (a, b) = part.split_at(rng.below(len as u64 + 1) as usize);
        assert_eq!(crc32c_append(crc32c_append(before, a), b), whole, "{len} cut at {}", a.len());
    }
}
