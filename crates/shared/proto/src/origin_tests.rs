//! Tests of what recovery tells of calls.

use super::*;

fn carried(number: u64, lsn: u64) -> Carried {
    Carried { number, lsn: Lsn(lsn), ino: 12 }
}

#[test]
fn the_newest_call_of_a_slot_counts_in_whatever_order_they_are_found() {
    let mut found = Recovered::default();
    found.note(1, 0, carried(5, 50));
    found.note(1, 0, carried(7, 70));
    found.note(1, 0, carried(6, 60));
    found.note(2, 0, carried(1, 10));
    assert_eq!(found.reply(1, 0, 7), Some(carried(7, 70)));
    assert_eq!(found.reply(1, 0, 5), None, "its client had the answer");
    assert_eq!(found.reply(1, 1, 7), None);
    assert_eq!(found.reply(2, 0, 1), Some(carried(1, 10)));
}

#[test]
fn what_is_held_is_up_to_the_cut_or_was_in_a_record() {
    let found =
        Recovered { ops_cut: Lsn(10), ops: [Lsn(12), Lsn(15)].into(), ..Recovered::default() };
    let held: Vec<u64> = (9..17).filter(|lsn| found.holds(Lsn(*lsn))).collect();
    assert_eq!(held, [9, 10, 12, 15]);
}

#[test]
fn an_origin_says_what_its_call_drew() {
    let origin = Origin::new(1, 2, 3).again(12, 7);
    assert_eq!((origin.lsn(), origin.again), (Lsn(0), Some((12, 7))));
    origin.made(Lsn(9));
    assert_eq!(origin.lsn(), Lsn(9));
    assert_eq!(origin, Origin::new(1, 2, 3).again(12, 7), "the same call");
    assert_ne!(origin, Origin::new(1, 2, 4).again(12, 7));
}
