use super::*;
use crate::test_util::header;
use proptest::prelude::*;
use siftfs_base::{Error, Rng};
use siftfs_device::MemDevice;
use siftfs_log::{RedoPlace, encode_redo, place_record, redo_record_len};

const AT: u64 = 64 << 10;
const LEN: u64 = 1 << 20;
const NONCE: u64 = 99;

fn medium() -> RedoMedium {
    let device = Arc::new(MemDevice::new(AT + LEN));
    let header =
        StaticHeader { redo: Some(RedoRegion { offset: AT, len: LEN }), incompat: 8, ..header() };
    let medium = RedoMedium::of(&Media::from(device), &header).unwrap();
    medium.format(NONCE).unwrap();
    medium
}

/// Writes a transaction of these records, each with these bytes of data; everything before
/// `durable` is called durable.
fn write(medium: &RedoMedium, key: &LogKey, end: RedoEnd, lens: &[usize], durable: u64) -> RedoEnd {
    let mut at = end;
    for (index, len) in lens.iter().enumerate() {
        let data = vec![at.number as u8; *len];
        let all = redo_record_len(1, *len as u64);
        let place = RedoPlace {
            pos: place_record(at.pos, all, medium.ring_len()).unwrap(),
            prev_end: at.pos,
            prev_crc: at.prev_crc,
            number: at.number,
            index: index as u32,
            commit: index + 1 == lens.len(),
            durable,
        };
        let mut bytes = vec![0; all as usize];
        let crc = encode_redo(key, &place, &[(4096 * at.number, &data)], &mut bytes);
        medium.device.write(medium.place(place.pos), &bytes, true).unwrap();
        at = RedoEnd { pos: place.pos + all, prev_crc: crc, ..at };
    }
    RedoEnd { number: at.number + 1, transactions: at.transactions + 1, ..at }
}

fn begin(slot: &RedoSlot) -> RedoEnd {
    let RedoSlot { tail: pos, number, prev_crc, .. } = *slot;
    RedoEnd { pos, number, prev_crc, transactions: 0 }
}

fn flip(medium: &RedoMedium, pos: u64) {
    let mut byte = [0];
    medium.device.read(medium.place(pos), &mut byte).unwrap();
    medium.device.write(medium.place(pos), &[byte[0] ^ 1], true).unwrap();
}

fn is_corrupt<T: std::fmt::Debug>(found: Result<T>) -> bool {
    matches!(found, Err(Error::Corrupt { .. }))
}

#[test]
fn the_newest_slot_counts_and_a_damaged_one_is_an_error() {
    let medium = medium();
    let mut slot = medium.read_slot().unwrap();
    assert_eq!((slot.seq, slot.tail, slot.number, slot.nonce), (2, 0, 1, NONCE));
    for seq in 3..6 {
        slot = RedoSlot { seq, tail: seq * 4096, ..slot };
        medium.write_slot(&slot).unwrap();
        assert_eq!(medium.read_slot(), Ok(slot));
    }
    for seq in [0, 1] {
        let at = AT + RedoSlot::place(seq) + 20;
        medium.device.write(at, &[0xff], true).unwrap();
        assert!(is_corrupt(medium.read_slot()), "slot {seq}");
        medium.format(NONCE).unwrap();
    }
    medium.write_slot(&RedoSlot { volume: [1; 16], ..slot }).unwrap();
    assert!(is_corrupt(medium.read_slot()), "another volume's");
    medium.format(NONCE).unwrap();
    medium.write_slot(&RedoSlot { seq: 5, ..medium.read_slot().unwrap() }).unwrap();
    assert!(is_corrupt(medium.read_slot()), "a slot is missing between them");
}

#[test]
fn records_are_read_in_order_over_the_end_of_the_ring() {
    let medium = medium();
    let mut slot = medium.read_slot().unwrap();
    // Laps with records of other lengths each, some of several.
    for lap in 0..40usize {
        let mut end = begin(&slot);
        let mut data = Vec::new();
        for i in 0..6 {
            let lens: Vec<usize> =
                (0..1 + (lap + i) % 3).map(|r| 5000 * (lap % 7) + 100 * r + 1).collect();
            data.extend(lens.iter().map(|len| (end.number, *len)));
            end = write(&medium, &slot.key(), end, &lens, slot.tail);
        }
        let mut scanner = medium.scan(&slot);
        for (number, len) in data {
            let (record, data) = scanner.next_record().unwrap().unwrap();
            assert_eq!((record.place.number, &data), (number, &vec![number as u8; len]));
        }
        assert!(scanner.next_record().unwrap().is_none());
        assert_eq!(scanner.committed(), end);
        assert_eq!(medium.end(&slot), Ok(end));
        let RedoEnd { pos: tail, number, prev_crc, .. } = end;
        slot = RedoSlot { seq: slot.seq + 1, tail, number, prev_crc, ..slot };
        medium.write_slot(&slot).unwrap();
    }
    assert!(slot.tail > 3 * medium.ring_len(), "it came round");
}

#[test]
fn what_is_not_whole_ends_the_lane() {
    let medium = medium();
    let slot = medium.read_slot().unwrap();
    let one = write(&medium, &slot.key(), begin(&slot), &[100], 0);
    let two = write(&medium, &slot.key(), one, &[9000, 9000], one.pos);
    assert_eq!(medium.end(&slot), Ok(two));
    // The data of its first record, the head of its second one, and the data of that.
    for pos in [one.pos + 5000, one.pos + 12_288 + 40, one.pos + 12_288 + 8000] {
        flip(&medium, pos);
        assert_eq!(medium.end(&slot), Ok(one), "byte {pos}");
        flip(&medium, pos);
    }
    let other = RedoSlot { nonce: NONCE + 1, ..slot };
    assert_eq!(medium.end(&other), Ok(begin(&slot)), "another key");
}

#[test]
fn a_record_that_does_not_continue_the_chain_ends_the_lane() {
    let medium = medium();
    let slot = medium.read_slot().unwrap();
    let one = write(&medium, &slot.key(), begin(&slot), &[100], 0);
    let wrong =
        [RedoEnd { number: one.number + 1, ..one }, RedoEnd { prev_crc: one.prev_crc ^ 1, ..one }];
    for wrong in wrong {
        write(&medium, &slot.key(), wrong, &[100], 0);
        assert_eq!(medium.end(&slot), Ok(one), "{wrong:?}");
    }
}

#[test]
fn r14_a_record_behind_a_damaged_one_is_rot() {
    let medium = medium();
    let slot = medium.read_slot().unwrap();
    let one = write(&medium, &slot.key(), begin(&slot), &[100], 0);
    let two = write(&medium, &slot.key(), one, &[200_000], one.pos);
    let three = write(&medium, &slot.key(), two, &[100], two.pos);
    assert_eq!(medium.end(&slot), Ok(three));
    flip(&medium, one.pos + 100_000);
    assert!(is_corrupt(medium.end(&slot)));
    // One that was written together with it proves nothing.
    write(&medium, &slot.key(), two, &[100], one.pos);
    assert_eq!(medium.end(&slot), Ok(one));
}

#[test]
fn any_bytes_in_the_ring_are_taken_without_a_panic() {
    for seed in 0..20 {
        let medium = medium();
        let slot = medium.read_slot().unwrap();
        let mut rng = Rng::new(seed);
        let end = write(&medium, &slot.key(), begin(&slot), &[300, 70_000, 5000], 0);
        write(&medium, &slot.key(), end, &[300, 70_000, 5000], end.pos);
        for _ in 0..200 {
            flip(&medium, rng.below(200_000));
        }
        match medium.end(&slot) {
            Ok(end) => assert!(end.transactions <= 2),
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error:?}"),
        }
    }
}

proptest! {
    #[test]
    fn any_slots_are_taken_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), REDO_SLOT_LEN),
        at in 0..REDO_SLOT_LEN,
        tail in any::<u64>(),
    ) {
        let medium = medium();
        let part = bytes.get(at..).unwrap_or_default();
        medium.device.write(AT + at as u64, part, true).unwrap();
        let _ = medium.read_slot();
        let slot = RedoSlot { seq: 3, volume: header().volume, tail, number: 1, prev_crc: 0, nonce: 0 };
        medium.device.write(AT + RedoSlot::place(3), &slot.encode(), true).unwrap();
        if let Ok(slot) = medium.read_slot() {
            let _ = medium.end(&slot);
        }
    }
}
