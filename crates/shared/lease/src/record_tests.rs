use super::*;
use crate::layout::FULL;
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { shape: FULL, largest: 1 << 40, position: 4096, drawn: 9 };

fn record() -> Record {
    let held = Held { slot: 3, number: 7 };
    Record { held, offset: 512, len: 100, data: 4096, time: -5 }
}

#[test]
fn what_is_encoded_is_decoded() {
    let bytes = record().encode(&BOUNDS);
    assert_eq!(Record::decode(&bytes, &BOUNDS).unwrap(), record());
}

/// Each field by itself is changed to what the reader must refuse, after the record was encoded.
#[test]
fn a_record_that_breaks_a_rule_is_refused() {
    let good = record().encode(&BOUNDS);
    let with = |at: usize, value: &[u8]| {
        let mut bytes = good;
        bytes[at..at + value.len()].copy_from_slice(value);
        Record::decode(&bytes, &BOUNDS)
    };
    assert!(with(0, &2u32.to_le_bytes()).is_err(), "kind");
    assert!(with(4, &1024u32.to_le_bytes()).is_err(), "slot");
    assert!(with(8, &0u64.to_le_bytes()).is_err(), "no lease");
    assert!(with(8, &10u64.to_le_bytes()).is_err(), "a lease that is still to come");
    assert!(with(8, &u64::MAX.to_le_bytes()).is_err(), "a number that no lease has");
    assert!(with(16, &(1u64 << 40).to_le_bytes()).is_err(), "beyond the largest file");
    assert!(with(16, &u64::MAX.to_le_bytes()).is_err(), "beyond all numbers");
    assert!(with(24, &0u32.to_le_bytes()).is_err(), "no bytes");
    assert!(with(24, &((1u32 << 20) + 1).to_le_bytes()).is_err(), "too many bytes");
    assert!(with(28, &1u32.to_le_bytes()).is_err(), "what is zero");
    assert!(with(32, &4104u64.to_le_bytes()).is_err(), "data elsewhere");
    assert!(with(63, &[1]).is_err(), "what is left");
    assert!(with(16, &((1u64 << 40) - 100).to_le_bytes()).is_ok(), "up to the largest file");
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in proptest::array::uniform32(any::<u8>()),
                                          more in proptest::array::uniform32(any::<u8>())) {
        let mut all = [0; RECORD];
        all[..32].copy_from_slice(&bytes);
        all[32..].copy_from_slice(&more);
        if let Ok(record) = Record::decode(&all, &BOUNDS) {
            prop_assert_eq!(record.encode(&BOUNDS), all);
        }
    }
}
