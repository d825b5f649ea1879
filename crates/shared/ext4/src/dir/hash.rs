//! The directory hash: a name to (major, minor).
//!
//! Three functions, each in a variant that widens the name's bytes as signed and one as
//! unsigned characters; which one a volume uses is recorded in its superblock.

use siftfs_base::{Result, corrupt};

/// Hash function of a directory index, without its signedness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashKind {
    /// The first one ever used; no minor hash.
    Legacy,
    /// Three shortened rounds of MD4.
    HalfMd4,
    /// The Tiny Encryption Algorithm as a hash.
    Tea,
}

/// A hash function with its signedness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashVersion {
    /// The function.
    pub kind: HashKind,
    /// Bytes of the name are unsigned characters.
    pub unsigned: bool,
}

impl HashVersion {
    /// From an on-disk code: 0 to 2 take their signedness from the volume, 3 to 5 are
    /// unsigned. Anything else is corrupt (or of a feature that this volume cannot have).
    pub fn from_disk(code: u8, volume_unsigned: bool) -> Result<Self> {
        let (kind, unsigned) = match code {
            0 => (HashKind::Legacy, volume_unsigned),
            1 => (HashKind::HalfMd4, volume_unsigned),
            2 => (HashKind::Tea, volume_unsigned),
            3 => (HashKind::Legacy, true),
            4 => (HashKind::HalfMd4, true),
            5 => (HashKind::Tea, true),
            n => return Err(corrupt("directory index", format!("hash version {n}"))),
        };
        Ok(Self { kind, unsigned })
    }

    /// The code that a new index stores; its signedness is the volume's.
    pub fn to_disk(self) -> u8 {
        match self.kind {
            HashKind::Legacy => 0,
            HashKind::HalfMd4 => 1,
            HashKind::Tea => 2,
        }
    }
}

/// Hash of a name. The lowest bit of `major` is always 0: the index uses it to mark leaves
/// that continue their predecessor's hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DirHash {
    /// Orders the index.
    pub major: u32,
    /// Only orders the names that a reader of the directory gets.
    pub minor: u32,
}

/// MD4's initial state, used where the volume has no seed.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// The largest major hash is reserved for "end of directory".
const END_OF_DIRECTORY: u32 = 0xffff_fffe;

/// Hash of `name`; a `seed` of zeroes stands for the default seed.
pub fn dir_hash(name: &[u8], version: HashVersion, seed: &[u32; 4]) -> DirHash {
    let mut state = if seed.iter().all(|w| *w == 0) { DEFAULT_SEED } else { *seed };
    let (major, minor) = match version.kind {
        HashKind::Legacy => (legacy(name, version.unsigned), 0),
        HashKind::HalfMd4 => {
            for_pieces::<8>(name, version.unsigned, |words| half_md4(&mut state, words));
            (state[1], state[2])
        }
        HashKind::Tea => {
            for_pieces::<4>(name, version.unsigned, |words| tea(&mut state, words));
            (state[0], state[1])
        }
    };
    let major = major & !1;
    let major = if major == END_OF_DIRECTORY { END_OF_DIRECTORY - 2 } else { major };
    DirHash { major, minor }
}

/// A byte of the name widened to 32 bits.
fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned { u32::from(byte) } else { i32::from(byte.cast_signed()).cast_unsigned() }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut newer, mut older) = (0x12a3_fe2du32, 0x37ab_e8f9u32);
    for &byte in name {
        let mixed = newer ^ widen(byte, unsigned).wrapping_mul(7_152_373);
        let mut next = older.wrapping_add(mixed);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        older = newer;
        newer = next;
    }
    newer << 1
}

/// Cuts the name into pieces of `N` words, the first byte of a word being its most
/// significant one; what the name does not fill is padded with its remaining length.
fn for_pieces<const N: usize>(name: &[u8], unsigned: bool, mut each: impl FnMut(&[u32; N])) {
    let mut rest = name;
    while !rest.is_empty() {
        let filler = u32::try_from(rest.len() & 0xff).unwrap_or(0) * 0x0101_0101;
        let (piece, after) = rest.split_at(rest.len().min(N * 4));
        let mut words = [filler; N];
        for (word, bytes) in words.iter_mut().zip(piece.chunks(4)) {
            // Addition, not or: a signed byte borrows from the bytes before it.
            *word = bytes.iter().fold(filler, |w, b| (w << 8).wrapping_add(widen(*b, unsigned)));
        }
        each(&words);
        rest = after;
    }
}

fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    // One round: a boolean function, a constant, the order of the words, four rotations.
    type Round = (fn(u32, u32, u32) -> u32, u32, [u32; 8], [u32; 4]);
    let [w0, w1, w2, w3, w4, w5, w6, w7] = *words;
    let rounds: [Round; 3] = [
        (|x, y, z| (x & y) | (!x & z), 0, [w0, w1, w2, w3, w4, w5, w6, w7], [3, 7, 11, 19]),
        (
            |x, y, z| (x & y) | (x & z) | (y & z),
            0x5a82_7999,
            [w1, w3, w5, w7, w0, w2, w4, w6],
            [3, 5, 9, 13],
        ),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [w3, w7, w2, w6, w1, w5, w0, w4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, words, turns) in rounds {
        for (word, turn) in words.into_iter().zip(turns.into_iter().cycle()) {
            let sum = a
                .wrapping_add(mix(b, c, d))
                .wrapping_add(word)
                .wrapping_add(constant)
                .rotate_left(turn);
            (a, b, c, d) = (d, sum, b, c);
        }
    }
    for (s, v) in state.iter_mut().zip([a, b, c, d]) {
        *s = s.wrapping_add(v);
    }
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let half = |v: u32, k0: u32, k1: u32, sum: u32| {
        (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
    };
    let (mut x, mut y, mut sum) = (state[0], state[1], 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        x = x.wrapping_add(half(y, key[0], key[1], sum));
        y = y.wrapping_add(half(x, key[2], key[3], sum));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
#[path = "hash_tests.rs"]
mod tests;
#[cfg(test)]
pub(crate) use tests::legacy_collisions;
