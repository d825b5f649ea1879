//! A label comes back as it was written, and nothing else passes for one.

use super::*;
use crate::geometry::{DEFAULT_UNIT, MIN_UNIT};

fn label() -> Label {
    let geometry = Geometry::new(3, DEFAULT_UNIT, 5 * DEFAULT_UNIT).unwrap();
    Label { set: *b"0123456789abcdef", index: 2, geometry }
}

/// The label's bytes, with something changed and the checksum made anew.
fn forged(change: impl FnOnce(&mut [u8])) -> [u8; LABEL_LEN] {
    let mut bytes = label().encode();
    change(&mut bytes);
    let sum = checksum(0, &bytes[..LABEL_LEN - 4]);
    bytes[LABEL_LEN - 4..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// `docs/design/stripes.md`, "Bytes".
#[test]
fn the_bytes_are_those_of_the_page() {
    let bytes = label().encode();
    assert_eq!(&bytes[..8], b"SIFTstr\x01");
    assert_eq!(&bytes[8..16], [1, 0, 0, 0, 2, 0, 3, 0]);
    assert_eq!(&bytes[16..32], b"0123456789abcdef");
    assert_eq!(&bytes[32..40], (1u64 << 20).to_le_bytes());
    assert_eq!(&bytes[40..48], (5u64 << 20).to_le_bytes());
    assert!(bytes[48..4092].iter().all(|byte| *byte == 0));
    assert_eq!(&bytes[4092..], checksum(0, &bytes[..4092]).to_le_bytes());
    assert_eq!(Label::decode(&bytes), Ok(Some(label())));
}

#[test]
fn a_changed_byte_is_seen() {
    for at in 0..LABEL_LEN {
        let mut bytes = label().encode();
        bytes[at] ^= 0x40;
        match Label::decode(&bytes) {
            Ok(None) if at < 8 => {}
            Err(Error::Corrupt { .. }) if at >= 8 => {}
            other => panic!("byte {at}: {other:?}"),
        }
    }
    assert_eq!(Label::decode(&[0; LABEL_LEN]), Ok(None));
}

#[test]
fn a_newer_version_is_said() {
    let newer = Label::decode(&forged(|bytes| bytes[8] = 2));
    assert!(matches!(newer, Err(Error::Incompatible(_))), "{newer:?}");
}

/// A good checksum does not make sense of nonsense.
#[test]
fn nonsense_is_refused() {
    let put = |bytes: &mut [u8], at: usize, value: u64| {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    let wrong = [
        forged(|bytes| bytes[12] = 3),
        forged(|bytes| bytes[14] = 1),
        forged(|bytes| bytes[14] = 17),
        forged(|bytes| put(bytes, 32, 0)),
        forged(|bytes| put(bytes, 32, MIN_UNIT + 1)),
        forged(|bytes| put(bytes, 32, u64::MAX)),
        forged(|bytes| put(bytes, 40, 0)),
        forged(|bytes| put(bytes, 40, 1)),
        forged(|bytes| put(bytes, 40, u64::MAX)),
        forged(|bytes| put(bytes, 40, 1 << 63)),
        forged(|bytes| bytes[4000] = 1),
    ];
    for (at, bytes) in wrong.iter().enumerate() {
        let found = Label::decode(bytes);
        assert!(matches!(found, Err(Error::Corrupt { .. })), "{at}: {found:?}");
    }
}

#[test]
fn a_member_is_known_by_its_begin() {
    let device = siftfs_device::MemDevice::new(LABEL_LEN as u64);
    assert_eq!(is_member(&device), Ok(false));
    let mut bytes = label().encode();
    bytes[LABEL_LEN - 1] ^= 1;
    device.write(0, &bytes, false).unwrap();
    assert_eq!(is_member(&device), Ok(true), "also a damaged one");
    assert_eq!(is_member(&siftfs_device::MemDevice::new(8)), Ok(false));
}

/// A member of no set says so, and opens as none.
#[test]
fn a_member_of_no_set_yet() {
    use crate::{Member, StripedDevice};
    let device = siftfs_device::MemDevice::new(DATA_BEGIN + MIN_UNIT);
    assert_eq!(Standing::of(&device).unwrap(), None);
    set_free(&device).unwrap();
    assert_eq!(Standing::of(&device).unwrap(), Some(Standing::Free));
    assert!(is_member(&device).unwrap());
    let mut bytes = [0; LABEL_LEN];
    device.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes[..12], b"SIFTstr\x01\x01\0\0\0");
    assert!(bytes[12..4092].iter().all(|byte| *byte == 0));
    assert!(Label::decode(&bytes).is_err(), "it is no set's label");
    let member = Member { name: "a".into(), device: std::sync::Arc::new(device) };
    let said = StripedDevice::open(vec![member.clone(), member]).map(drop).unwrap_err();
    assert!(said.to_string().contains("of no set yet"), "{said}");
    let small = siftfs_device::MemDevice::new(DATA_BEGIN + MIN_UNIT - 1);
    assert!(set_free(&small).unwrap_err().to_string().contains("too few"));
}
