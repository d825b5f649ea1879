use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn take(sequence: &Sequence, kind: Kind, range: Range<u64>) -> (u64, u64) {
    let taken = sequence.take(kind, &[range], 1, |_| ()).unwrap();
    let Place { number, first, .. } = taken.place(0, 0);
    (number, first)
}

fn answered(sequence: &Sequence, number: u64) {
    sequence.answered(Place { queue: 0, number, first: 0 });
}

/// The group's first number of each of these calls, while none of them is answered.
fn groups(order: RequestOrder, calls: &[(Kind, Range<u64>)]) -> Vec<u64> {
    let sequence = Sequence::new(order);
    let of = |(at, (kind, range)): (usize, &(Kind, Range<u64>))| {
        let (number, first) = take(&sequence, *kind, range.clone());
        assert_eq!(number, at as u64);
        first
    };
    calls.iter().enumerate().map(of).collect()
}

#[test]
fn calls_that_do_not_meet_share_a_group() {
    use Kind::{Read, Write};
    let merging = |calls: &[_]| groups(RequestOrder::Merging, calls);
    assert_eq!(merging(&[(Write, 0..4), (Write, 4..8), (Read, 8..9), (Read, 8..9)]), [0; 4]);
    assert_eq!(merging(&[(Write, 0..4), (Write, 3..5), (Write, 0..3)]), [0, 1, 1]);
    assert_eq!(merging(&[(Read, 0..4), (Write, 3..5), (Read, 0..3), (Read, 4..5)]), [0, 1, 1, 3]);
    assert_eq!(merging(&[(Write, 0..4), (Read, 2..3), (Read, 0..4), (Write, 9..10)]), [0, 1, 1, 1]);
}

/// The paper's figure 7: a read after a write begins a group; its text says otherwise.
#[test]
fn basic_groups_are_one_write_or_the_reads_between_two() {
    use Kind::{Read, Write};
    let calls = [
        (Read, 0..1),
        (Read, 5..6),
        (Write, 9..10),
        (Read, 0..1),
        (Read, 1..2),
        (Write, 3..4),
        (Write, 5..6),
    ];
    assert_eq!(groups(RequestOrder::Basic, &calls), [0, 0, 2, 3, 3, 5, 6]);
}

/// What was answered has ended before: a call behind it waits for nothing.
#[test]
fn a_call_behind_the_answers_of_all_begins_a_group_for_free() {
    let sequence = Sequence::new(RequestOrder::Merging);
    assert_eq!(take(&sequence, Kind::Write, 0..4), (0, 0));
    assert_eq!(take(&sequence, Kind::Write, 0..4), (1, 1));
    answered(&sequence, 0);
    assert_eq!(take(&sequence, Kind::Write, 8..9), (2, 1));
    answered(&sequence, 2);
    assert_eq!(take(&sequence, Kind::Write, 7..8), (3, 1));
    answered(&sequence, 3);
    answered(&sequence, 1);
    assert_eq!(take(&sequence, Kind::Read, 100..104), (4, 4));
    assert_eq!(take(&sequence, Kind::Write, 0..4), (5, 4), "the old group is forgotten");
}

#[test]
fn a_group_has_an_end() {
    let calls: Vec<_> = (0..60u64).map(|at| (Kind::Write, 2 * at..2 * at + 1)).collect();
    assert_eq!(groups(RequestOrder::Merging, &calls), [0; 60]);
    let sequence = Sequence::new(RequestOrder::Merging);
    let mut last = 0;
    // The first one is not answered.
    for at in 0..MOST_RANGES as u64 / 8 + 1 {
        let ranges: Vec<_> =
            (0..8).map(|piece| 16 * at + 2 * piece..16 * at + 2 * piece + 1).collect();
        let taken = sequence.take(Kind::Write, &ranges, 1, |_| ()).unwrap();
        last = taken.place(0, 0).first;
    }
    assert_eq!(last, MOST_RANGES as u64 / 8);
}

/// A number is taken when those of a window before it are answered.
#[test]
fn the_window_is_waited_for() {
    let sequence = Arc::new(Sequence::new(RequestOrder::Merging));
    for at in 0..QUEUE_WINDOW {
        take(&sequence, Kind::Write, at..at + 1);
    }
    answered(&sequence, 1);
    let (own, taken) = (sequence.clone(), Arc::new(AtomicBool::new(false)));
    let told = taken.clone();
    let waits = thread::spawn(move || {
        let place = take(&own, Kind::Read, 900..901);
        told.store(true, Ordering::SeqCst);
        place
    });
    thread::sleep(Duration::from_millis(30));
    assert!(!taken.load(Ordering::SeqCst));
    answered(&sequence, 0);
    assert_eq!(waits.join().unwrap(), (QUEUE_WINDOW, 0));
    assert_eq!(take(&sequence, Kind::Read, 900..901).0, QUEUE_WINDOW + 1);
    let own = sequence.clone();
    let waits = thread::spawn(move || {
        own.take(Kind::Read, std::slice::from_ref(&(0..1)), 1, |_| ()).is_err()
    });
    thread::sleep(Duration::from_millis(30));
    sequence.breaks();
    assert!(waits.join().unwrap(), "its life has ended");
}

#[test]
fn several_requests_of_a_call_have_numbers_of_one_group() {
    let sequence = Sequence::new(RequestOrder::Basic);
    take(&sequence, Kind::Write, 0..1);
    let taken = sequence.take(Kind::Write, std::slice::from_ref(&(0..9)), 3, |_| ()).unwrap();
    let places: Vec<_> = (0..3).map(|at| taken.place(7, at)).collect();
    assert_eq!(places.iter().map(|place| place.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(places.iter().all(|place| (place.queue, place.first) == (7, 1)));
    assert_eq!(take(&sequence, Kind::Write, 0..1), (4, 4));
}

/// The answer to a request says that all groups before its own have ended.
#[test]
fn an_answer_says_what_has_ended() {
    let sequence = Sequence::new(RequestOrder::Basic);
    for number in 0..4 {
        assert_eq!(take(&sequence, Kind::Write, 0..1), (number, number));
    }
    assert_eq!(sequence.ended_below(), 0);
    sequence.answered(Place { queue: 0, number: 2, first: 2 });
    sequence.answered(Place { queue: 0, number: 0, first: 0 });
    assert_eq!(sequence.ended_below(), 2);
}
