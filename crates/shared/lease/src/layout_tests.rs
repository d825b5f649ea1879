use super::*;

#[test]
fn data_that_would_not_be_in_one_piece_begin_at_the_rings_begin() {
    let shape = Shape { page: 48, slots: 1, records: 2, data: 64 };
    assert_eq!(shape.begin(0, 64), Some(0));
    assert_eq!(shape.begin(8, 56), Some(8));
    assert_eq!(shape.begin(8, 57), Some(64));
    assert_eq!(shape.begin(64, 1), Some(64));
    assert_eq!(shape.behind(64, 1), Some(72));
    assert_eq!(shape.behind(72, 8), Some(80));
}

#[test]
fn a_counter_at_its_end_is_no_position() {
    let shape = Shape { page: 48, slots: 1, records: 2, data: 64 };
    assert_eq!(shape.begin(u64::MAX - 7, 16), None);
    assert_eq!(shape.behind(u64::MAX - 7, 8), None);
    assert_eq!(shape.behind(u64::MAX - 7, 1), None);
}

#[test]
fn places_do_not_overlap() {
    let shape = FULL;
    let last = SLOTS - 1;
    assert!(shape.ingested(last) < shape.grantor_words());
    assert!(shape.mtime(last) < shape.record(0));
    assert_eq!(shape.record(shape.records as u64 - 1) + RECORD_WORDS, shape.data(0));
    assert_eq!(shape.record(shape.records as u64), shape.record(0));
    assert_eq!(shape.data(shape.data as u64 - 8) + 1, shape.holder_words());
    assert_eq!(shape.data(shape.data as u64), shape.data(0));
}
