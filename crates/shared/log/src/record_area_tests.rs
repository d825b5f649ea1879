use super::*;
use crate::DecodeError;

const HEADER: RecordAreaHeader =
    RecordAreaHeader { seq: 7, volume: [9; 16], epoch: Epoch(3), len: 1 << 20 };

#[test]
fn what_is_written_is_read() {
    assert_eq!(RecordAreaHeader::decode(&HEADER.encode()), Ok(HEADER));
}

#[test]
fn every_changed_byte_is_seen() {
    for at in 0..LEN {
        let mut slot = HEADER.encode();
        slot[at] ^= 1;
        let found = RecordAreaHeader::decode(&slot);
        assert!(matches!(found, Err(DecodeError::Invalid(_))), "byte {at}: {found:?}");
    }
}

#[test]
fn a_newer_version_is_incompatible() {
    let mut slot = HEADER.encode();
    slot[8] = FORMAT_VERSION as u8 + 1;
    let sum = checksum(0, &slot[..60]).to_le_bytes();
    slot[60..].copy_from_slice(&sum);
    assert!(matches!(
        RecordAreaHeader::decode(&slot),
        Err(DecodeError::Stop(Error::Incompatible(_)))
    ));
}

#[test]
fn places_are_those_of_the_specification() {
    let all = crate::spec::fields!(Raw {
        magic,
        version,
        reserved0,
        seq,
        volume,
        epoch,
        len,
        reserved1,
        crc,
    });
    let words = [("seq", "sequence number"), ("len", "length of the lane")];
    crate::spec::check("### With a record area", 0, &all, &words);
}
