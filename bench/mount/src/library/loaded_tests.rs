use super::*;
use crate::counts::{Counts, DiskIo};

#[test]
fn turns_of_a_side_are_one_measurement() {
    let disk = Some(DiskIo { writes: 3, ..DiskIo::default() });
    let turn = |operations, seconds| Measured {
        counts: Counts { disk, ..Counts::default() },
        ..per_second(operations, seconds)
    };
    let mut side = Side::default();
    side.add(turn(100, 1.0));
    side.add(turn(100, 4.0));
    let done = side.done();
    assert_eq!((done.operations, done.rate), (200, 40.0), "not the mean of the rates");
    assert_eq!(done.counts.disk.map(|d| d.writes), Some(6));
}

#[test]
fn both_sides_have_as_many_turns_and_neither_is_always_first() {
    let with = TURNS.iter().filter(|library| **library).count();
    assert_eq!(with * 2, TURNS.len());
    let places = |wanted| TURNS.iter().enumerate().filter(move |(_, l)| **l == wanted);
    let sum = |wanted| places(wanted).map(|(n, _)| n).sum::<usize>();
    assert_eq!(sum(true), sum(false), "a steady drift falls on both alike");
}
