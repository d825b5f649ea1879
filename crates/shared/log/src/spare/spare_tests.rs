use super::*;
use crate::spec::{check, fields, says};
use crate::{DecodeError, if_valid};

pub(crate) fn spare_header() -> SpareHeader {
    let (volume, epoch) = (*b"volume-uuid-0001", Epoch(4));
    SpareHeader {
        generation: 9,
        volume,
        epoch,
        nonce: 77,
        len: 9 << 20,
        log_len: 8 << 20,
        image: 1 << 20,
        alone: false,
    }
}

pub(crate) fn spare_batch() -> SpareBatch {
    let extent = |offset, len| SpareExtent { offset, len, crc: 5 };
    let extents = vec![extent(65_536, 8192), extent(4096, 4096)];
    SpareBatch { generation: 9, index: 3, pos: SPARE_FIRST, extents }
}

#[test]
fn the_structures_are_those_of_the_page() {
    let raw = fields!(Raw {
        magic,
        version,
        reserved0,
        generation,
        volume,
        epoch,
        nonce,
        len,
        log_len,
        image,
        alone,
        reserved1,
        crc,
    });
    let words = [("magic", "SIFTspr"), ("len", "length")];
    check("Spare header:", 0, &raw, &words);
    says("Spare header:", 8, &format!("version, {FORMAT_VERSION}"));
    let raw =
        fields!(RawBatch { magic, version, count, generation, index, pos, reserved, crc, extents });
    check("Spare batch:", 0, &raw, &[("magic", "SIFTspb"), ("pos", "place")]);
}

#[test]
fn header_and_batch_come_back() {
    let (header, batch) = (spare_header(), spare_batch());
    assert_eq!(SpareHeader::decode(&header.encode()), Ok(header));
    let block = batch.encode(&header.key());
    assert_eq!(SpareBatch::decode(&block, &header, SPARE_FIRST), Ok(batch.clone()));
    assert_eq!(batch.len(), 4096 + 8192 + 4096);
}

/// A batch of another generation, place or key is invalid, and so is one with any byte changed.
#[test]
fn what_is_not_of_here_is_no_batch() {
    let (header, batch) = (spare_header(), spare_batch());
    let block = batch.encode(&header.key());
    let invalid = |header: &SpareHeader, pos| {
        if_valid(SpareBatch::decode(&block, header, pos)).expect("no more than invalid").is_none()
    };
    assert!(invalid(&SpareHeader { generation: 10, ..header }, SPARE_FIRST));
    assert!(invalid(&SpareHeader { nonce: 78, ..header }, SPARE_FIRST));
    assert!(invalid(&header, SPARE_FIRST + 4096));
    for at in 0..BLOCK_SIZE {
        let mut other = block.clone();
        other[at] ^= 1;
        assert!(if_valid(SpareBatch::decode(&other, &header, SPARE_FIRST)).unwrap().is_none());
        let mut other = header.encode();
        other[at] ^= 1;
        assert!(if_valid(SpareHeader::decode(&other)).unwrap().is_none());
    }
}

/// Whole, and naming bytes that the log's device does not have.
#[test]
fn a_whole_batch_may_name_no_other_bytes() {
    let header = spare_header();
    let stops = |extent: SpareExtent, header: &SpareHeader| {
        let batch = SpareBatch { extents: vec![extent], ..spare_batch() };
        let block = batch.encode(&header.key());
        matches!(
            SpareBatch::decode(&block, &SpareHeader { log_len: 16_384, ..*header }, SPARE_FIRST),
            Err(DecodeError::Stop(_))
        )
    };
    let extent = SpareExtent { offset: 8192, len: 8192, crc: 0 };
    assert!(!stops(extent, &header));
    assert!(stops(SpareExtent { offset: 12_288, ..extent }, &header));
    assert!(stops(SpareExtent { offset: u64::MAX - 4095, ..extent }, &header));
    for bad in [
        SpareHeader { len: SPARE_FIRST, log_len: 0, image: 0, ..header },
        SpareHeader { len: (9 << 20) - 4096, ..header },
        SpareHeader { image: SPARE_FIRST, ..header },
        SpareHeader { image: u64::MAX - 4095, ..header },
        SpareHeader { image: 0, alone: true, ..header },
    ] {
        assert!(matches!(SpareHeader::decode(&bad.encode()), Err(DecodeError::Stop(_))), "{bad:?}");
    }
    let alone = SpareHeader { alone: true, ..header };
    assert_eq!(SpareHeader::decode(&alone.encode()), Ok(alone));
}
