use super::*;

const HEADER: RecordAreaHeader =
    RecordAreaHeader { seq: 7, volume: [9; 16], epoch: Epoch(3), len: 1 << 20 };

#[test]
fn what_is_written_is_read() {
    assert_eq!(RecordAreaHeader::decode(&HEADER.encode()).unwrap(), Ok(HEADER));
}

#[test]
fn every_changed_byte_is_seen() {
    for at in 0..LEN {
        let mut slot = HEADER.encode();
        slot[at] ^= 1;
        assert!(RecordAreaHeader::decode(&slot).unwrap().is_err(), "byte {at}");
    }
}

#[test]
fn a_newer_version_is_incompatible() {
    let mut slot = HEADER.encode();
    slot[8] = FORMAT_VERSION as u8 + 1;
    let sum = checksum(0, &slot[..60]).to_le_bytes();
    slot[60..].copy_from_slice(&sum);
    assert!(matches!(RecordAreaHeader::decode(&slot), Err(Error::Incompatible(_))));
}
