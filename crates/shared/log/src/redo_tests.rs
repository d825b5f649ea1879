use super::*;
use crate::DecodeError;
use crate::spec::{check, check_list, fields, says};
use proptest::prelude::*;

pub(crate) const SLOT: RedoSlot = RedoSlot {
    seq: 7,
    volume: *b"volume-uuid-0001",
    tail: 12_288,
    number: 5,
    prev_crc: 0x1234_5678,
    nonce: 0xfeed_beef,
};

pub(crate) const PLACE: RedoPlace = RedoPlace {
    pos: 12_288,
    prev_end: 8192,
    prev_crc: 0x1234_5678,
    number: 5,
    index: 0,
    commit: true,
    durable: 8192,
};

pub(crate) fn encoded(place: &RedoPlace, writes: &[(u64, &[u8])]) -> Vec<u8> {
    let data = writes.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let mut buf = vec![0xaa; redo_record_len(writes.len(), data) as usize];
    encode_redo(&SLOT.key(), place, writes, &mut buf);
    buf
}

fn sample() -> Vec<u8> {
    encoded(&PLACE, &[(4096, &[7; 5000]), (77, b"abc")])
}

fn decode(bytes: &[u8]) -> Checked<RedoRecord> {
    RedoRecord::decode(bytes, &SLOT.key(), PLACE.pos)
}

/// The bytes with another value at `at`, and the checksum right again.
fn resealed(mut bytes: Vec<u8>, at: usize, value: &[u8]) -> Vec<u8> {
    let (_, head) = peek_redo(&bytes, PLACE.pos).unwrap();
    bytes[at..at + value.len()].copy_from_slice(value);
    let (fixed, rest) = bytes[..head].split_first_chunk_mut().unwrap();
    seal_head(&SLOT.key(), &{ *fixed }, fixed, rest);
    bytes
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(RedoSlot::decode(&SLOT.encode()), Ok(SLOT));
    let bytes = sample();
    let record = decode(&bytes).unwrap();
    assert_eq!(record.place, PLACE);
    assert_eq!(record.len, 8192);
    assert_eq!(record.end(), PLACE.pos + 8192);
    let runs = [RedoRun { offset: 4096, len: 5000 }, RedoRun { offset: 77, len: 3 }];
    assert_eq!(record.runs, runs);
    let data = record.data(&bytes).unwrap();
    assert_eq!(data[..5000], [7; 5000]);
    assert_eq!(data[5000..], *b"abc");
}

#[test]
fn every_changed_byte_is_seen() {
    for at in 0..REDO_SLOT_LEN {
        let mut slot = SLOT.encode();
        slot[at] ^= 1;
        let found = RedoSlot::decode(&slot);
        assert!(matches!(found, Err(DecodeError::Invalid(_))), "byte {at}: {found:?}");
    }
    let whole = sample();
    let used = head_len(2, 5003) as usize + 5003;
    for at in 0..used {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        match decode(&bytes) {
            Ok(record) => assert!(record.data(&bytes).is_none(), "byte {at}"),
            Err(found) => assert!(matches!(found, DecodeError::Invalid(_)), "byte {at}: {found:?}"),
        }
    }
}

#[test]
fn another_key_or_position_makes_no_record() {
    let bytes = sample();
    let other = LogKey { nonce: SLOT.nonce + 1, ..SLOT.key() };
    assert!(matches!(RedoRecord::decode(&bytes, &other, PLACE.pos), Err(DecodeError::Invalid(_))));
    let moved = RedoRecord::decode(&bytes, &SLOT.key(), PLACE.pos + 4096);
    assert!(matches!(moved, Err(DecodeError::Invalid(_))));
}

#[test]
fn what_is_sealed_and_not_known_stops_a_reader() {
    for (at, value) in [(8, 2), (10, 2), (12, 2), (12, 0x80)] {
        let found = decode(&resealed(sample(), at, &[value]));
        let stops = matches!(found, Err(DecodeError::Stop(Error::Incompatible(_))));
        assert!(stops, "byte {at} is {value}: {found:?}");
    }
    let mut slot = SLOT.encode();
    slot[8] = 2;
    let sum = checksum(0, &slot[..124]).to_le_bytes();
    slot[124..].copy_from_slice(&sum);
    let found = RedoSlot::decode(&slot);
    assert!(matches!(found, Err(DecodeError::Stop(Error::Incompatible(_)))), "{found:?}");
}

#[test]
fn ranges_that_are_none_stop_a_reader() {
    let first = FIXED_LEN;
    let wrong: [(usize, Vec<u8>); 3] = [
        (first + 8, 0u32.to_le_bytes().into()),
        (first + 8, 4999u32.to_le_bytes().into()),
        (first, u64::MAX.to_le_bytes().into()),
    ];
    for (at, value) in wrong {
        let found = decode(&resealed(sample(), at, &value));
        let stops = matches!(found, Err(DecodeError::Stop(Error::Corrupt { .. })));
        assert!(stops, "byte {at} is {value:?}: {found:?}");
    }
    let bad = [RedoSlot { tail: 1, ..SLOT }, RedoSlot { number: 0, ..SLOT }];
    for slot in bad.into_iter().chain([RedoSlot { seq: u64::MAX, ..SLOT }]) {
        let found = RedoSlot::decode(&slot.encode());
        assert!(matches!(found, Err(DecodeError::Stop(Error::Corrupt { .. }))), "{slot:?}");
    }
}

#[test]
fn a_record_of_64_kib_has_a_tenth_more_at_most() {
    for kib in [64u64, 100, 128, 256, 1024] {
        let data = kib << 10;
        let runs = (data / BLOCK_BYTES) as usize;
        let len = redo_record_len(runs, data);
        assert!(len * 10 <= data * 11, "{len} bytes for {data} in {runs} ranges");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_taken_without_a_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..9000),
        real in any::<bool>(),
    ) {
        if real && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&RECORD_MAGIC);
        }
        for pos in [0, PLACE.pos] {
            if let Ok(record) = RedoRecord::decode(&bytes, &SLOT.key(), pos) {
                record.data(&bytes);
            }
        }
        if let Some(slot) = bytes.first_chunk() {
            let _ = RedoSlot::decode(slot);
        }
    }

    #[test]
    fn a_mutated_record_is_refused_or_has_its_data(
        at in 0usize..300, value in any::<u8>(), cut in 0usize..8192, seal in any::<bool>(),
    ) {
        let mut bytes = sample();
        if seal {
            bytes = resealed(bytes, at.min(150), &[value]);
        } else {
            bytes[at] = value;
        }
        bytes.truncate(cut.max(1));
        if let Ok(record) = decode(&bytes) {
            let all: u64 = record.runs.iter().map(|run| u64::from(run.len)).sum();
            if let Some(data) = record.data(&bytes) {
                prop_assert_eq!(data.len() as u64, all);
            }
        }
    }
}

#[test]
fn places_are_those_of_the_specification() {
    let slot = fields!(RawSlot {
        magic,
        version,
        reserved0,
        seq,
        volume,
        tail,
        number,
        nonce,
        prev_crc,
        reserved1,
        crc,
    });
    check("## Redo lane", 0, &slot, &[("seq", "sequence number")]);
    says("## Redo lane", 8, &format!("version, {VERSION}"));
    let record = fields!(RawRecord {
        magic,
        version,
        kind,
        flags,
        pos,
        prev_end,
        number,
        durable,
        prev_crc,
        len,
        index,
        run_count,
        data_len,
        reserved,
        crc,
    });
    let words = [
        ("pos", "position"),
        ("len", "length of the record"),
        ("run_count", "number of ranges"),
        ("data_len", "length of the data"),
    ];
    check("Redo record:", 0, &record, &words);
    let run = fields!(RawRun { offset, len, reserved });
    check_list("Lists of a redo record:", "ranges", 0, &run);
}
