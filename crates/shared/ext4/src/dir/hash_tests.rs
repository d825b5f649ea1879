use super::*;

/// Vectors computed by debugfs' `dx_hash` (signed characters).
const VECTORS: &[(HashKind, bool, &[u8], u32, u32)] = &[
    (HashKind::Legacy, false, b"a", 0xe74b53e2, 0x0),
    (HashKind::Legacy, true, b"a", 0xe74b53e2, 0x0),
    (HashKind::Legacy, false, b"hello", 0x32252546, 0x0),
    (HashKind::Legacy, true, b"hello", 0x32252546, 0x0),
    (HashKind::Legacy, false, b"lost+found", 0x5e2aba24, 0x0),
    (HashKind::Legacy, true, b"lost+found", 0x5e2aba24, 0x0),
    (
        HashKind::Legacy,
        false,
        b"this-is-a-rather-long-name-of-more-than-32-bytes.txt",
        0x950b0702,
        0x0,
    ),
    (
        HashKind::Legacy,
        true,
        b"this-is-a-rather-long-name-of-more-than-32-bytes.txt",
        0x950b0702,
        0x0,
    ),
    (HashKind::Legacy, false, b"na\xc3\xafve-\xff\x80", 0xd5d64508, 0x0),
    (HashKind::Legacy, true, b"na\xc3\xafve-\xff\x80", 0xd5d64508, 0x0),
    (HashKind::Legacy, false, b"0123456789abcdef", 0x415c16fe, 0x0),
    (HashKind::Legacy, true, b"0123456789abcdef", 0x415c16fe, 0x0),
    (HashKind::Legacy, false, b"0123456789abcdef0123456789abcdef", 0x6d4a15ee, 0x0),
    (HashKind::Legacy, true, b"0123456789abcdef0123456789abcdef", 0x6d4a15ee, 0x0),
    (HashKind::HalfMd4, false, b"a", 0xd5fa7d7a, 0xacb48187),
    (HashKind::HalfMd4, true, b"a", 0x8d08ec4c, 0x2fbccd78),
    (HashKind::HalfMd4, false, b"hello", 0x1746da32, 0x420013b5),
    (HashKind::HalfMd4, true, b"hello", 0xe2ddf968, 0xc8bc0924),
    (HashKind::HalfMd4, false, b"lost+found", 0x591de422, 0x6ffc56e0),
    (HashKind::HalfMd4, true, b"lost+found", 0x694c8bb4, 0x74b39433),
    (
        HashKind::HalfMd4,
        false,
        b"this-is-a-rather-long-name-of-more-than-32-bytes.txt",
        0x8dcdd078,
        0xa75daacb,
    ),
    (
        HashKind::HalfMd4,
        true,
        b"this-is-a-rather-long-name-of-more-than-32-bytes.txt",
        0xa41362f2,
        0xe3079a89,
    ),
    (HashKind::HalfMd4, false, b"na\xc3\xafve-\xff\x80", 0x614e7fac, 0x345b0ee2),
    (HashKind::HalfMd4, true, b"na\xc3\xafve-\xff\x80", 0x12919924, 0x717e0124),
    (HashKind::HalfMd4, false, b"0123456789abcdef", 0x8cb502b6, 0x5acf4f33),
    (HashKind::HalfMd4, true, b"0123456789abcdef", 0xf7de8978, 0xc3831b0),
    (HashKind::HalfMd4, false, b"0123456789abcdef0123456789abcdef", 0x36184620, 0xc959df59),
    (HashKind::HalfMd4, true, b"0123456789abcdef0123456789abcdef", 0xd7680c2c, 0xe50252d7),
    (HashKind::Tea, false, b"a", 0x6d0ea4c0, 0xc18922df),
    (HashKind::Tea, true, b"a", 0xf53528f0, 0xea54fb01),
    (HashKind::Tea, false, b"hello", 0x6f5bb1a8, 0x231917c2),
    (HashKind::Tea, true, b"hello", 0x1a5692b6, 0x2fd9857d),
    (HashKind::Tea, false, b"lost+found", 0x2dbf9e80, 0xbfebee4f),
    (HashKind::Tea, true, b"lost+found", 0x3e95424c, 0xc33595ee),
    (
        HashKind::Tea,
        false,
        b"this-is-a-rather-long-name-of-more-than-32-bytes.txt",
        0x71f13eb8,
        0x9b0b9af3,
    ),
    (
        HashKind::Tea,
        true,
        b"this-is-a-rather-long-name-of-more-than-32-bytes.txt",
        0x9e86e340,
        0x875bc90c,
    ),
    (HashKind::Tea, false, b"na\xc3\xafve-\xff\x80", 0x830593cc, 0x8d832005),
    (HashKind::Tea, true, b"na\xc3\xafve-\xff\x80", 0x529cd330, 0xf9f0719a),
    (HashKind::Tea, false, b"0123456789abcdef", 0x5a0788b2, 0xefa4e711),
    (HashKind::Tea, true, b"0123456789abcdef", 0xf592f110, 0x677e35fc),
    (HashKind::Tea, false, b"0123456789abcdef0123456789abcdef", 0xcbe95e3c, 0x17627589),
    (HashKind::Tea, true, b"0123456789abcdef0123456789abcdef", 0xbd1f63f0, 0x57bb8b20),
];

#[test]
fn agrees_with_debugfs() {
    for &(kind, seeded, name, major, minor) in VECTORS {
        let seed =
            if seeded { [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d] } else { [0; 4] };
        let version = HashVersion { kind, unsigned: false };
        let got = dir_hash(name, version, &seed);
        assert_eq!(got, DirHash { major, minor }, "{kind:?} {name:?} seeded {seeded}");
    }
}

#[test]
fn signedness_matters_only_above_ascii() {
    for kind in [HashKind::Legacy, HashKind::HalfMd4, HashKind::Tea] {
        let [s, u] = [false, true].map(|unsigned| HashVersion { kind, unsigned });
        assert_eq!(dir_hash(b"plain", s, &[0; 4]), dir_hash(b"plain", u, &[0; 4]));
        assert_ne!(dir_hash(b"\xc3\xa9t\xe9", s, &[0; 4]), dir_hash(b"\xc3\xa9t\xe9", u, &[0; 4]));
    }
}

#[test]
fn unknown_versions_are_refused() {
    assert!(HashVersion::from_disk(6, false).is_err());
    let v = HashVersion::from_disk(4, false).unwrap();
    assert_eq!((v.kind, v.unsigned), (HashKind::HalfMd4, true));
}

/// Twenty names of 254 bytes, more than a leaf holds, with one legacy hash.
pub(crate) fn legacy_collisions() -> &'static [Vec<u8>] {
    static NAMES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    NAMES.get_or_init(|| find_collisions(20))
}

/// Tries tails of five bytes, and computes a sixth: the one that takes the state before it to
/// the wanted hash, if there is one.
fn find_collisions(count: usize) -> Vec<Vec<u8>> {
    const MODULUS: u32 = 0x7fff_ffff;
    const WANT: u32 = 0x1234_5678;
    let last: std::collections::HashMap<u32, u8> =
        (1..=127).filter(|c| *c != b'/').map(|c| (u32::from(c) * 7_152_373, c)).collect();
    let mut likely = vec![false; 1 << 16];
    last.keys().for_each(|k| likely[(k >> 16) as usize] = true);
    let step = |(newer, older): (u32, u32), c: u8| {
        let next = older.wrapping_add(newer ^ (u32::from(c) * 7_152_373));
        (if next & 0x8000_0000 != 0 { next.wrapping_sub(MODULUS) } else { next }, newer)
    };
    let prefix = [b'x'; 248];
    let start = prefix.iter().fold((0x12a3_fe2d, 0x37ab_e8f9), |s, c| step(s, *c));
    let mut found = Vec::new();
    for counter in 0u32.. {
        let tail: [u8; 4] = std::array::from_fn(|i| b'0' + (counter >> (i * 6) & 63) as u8);
        let state = tail.iter().fold(start, |s, c| step(s, *c));
        for fifth in (1..=127u8).filter(|c| *c != b'/') {
            let (newer, older) = step(state, fifth);
            for sum in [WANT, WANT + MODULUS] {
                let factor = sum.wrapping_sub(older) ^ newer;
                if likely[(factor >> 16) as usize]
                    && let Some(sixth) = last.get(&factor)
                {
                    found.push([&prefix[..], &tail[..], &[fifth, *sixth][..]].concat());
                }
            }
        }
        if found.len() >= count {
            found.truncate(count);
            break;
        }
    }
    found
}
