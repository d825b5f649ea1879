//! Every byte of the area is one byte of one member, and no other.

use super::*;

const UNIT: u64 = MIN_UNIT;

/// Where a byte lies, counted out unit by unit.
fn counted(geometry: &Geometry, offset: u64) -> (usize, u64) {
    let mut next = vec![DATA_BEGIN; geometry.count()];
    let mut member = 0;
    for _ in 0..offset / geometry.unit() {
        next[member] += geometry.unit();
        member = (member + 1) % geometry.count();
    }
    (member, next[member] + offset % geometry.unit())
}

#[test]
fn units_take_turns() {
    let geometry = Geometry::new(3, UNIT, 4 * UNIT).unwrap();
    assert_eq!(geometry.size(), 12 * UNIT);
    for unit in 0..12 {
        for within in [0, 1, UNIT - 1] {
            let offset = unit * UNIT + within;
            let part = geometry.parts(offset, 1).next().unwrap();
            assert_eq!((part.member, part.offset), counted(&geometry, offset), "byte {offset}");
        }
    }
}

#[test]
fn parts_cover_a_range_once_and_end_at_borders() {
    let geometry = Geometry::new(3, UNIT, 4 * UNIT).unwrap();
    let borders = [0, 1, 511, UNIT - 1, UNIT, UNIT + 1, 3 * UNIT - 1, 3 * UNIT, 7 * UNIT + 9];
    for begin in borders {
        for len in [0, 1, 2, UNIT - 1, UNIT, UNIT + 1, 3 * UNIT, 4 * UNIT + 3] {
            let mut at = 0;
            for part in geometry.parts(begin, len as usize) {
                assert_eq!(part.bytes.start, at, "parts follow each other");
                assert!(part.bytes.end > at, "no part is empty");
                let last = begin + part.bytes.end as u64 - 1;
                assert_eq!(counted(&geometry, begin + at as u64), (part.member, part.offset));
                let end = part.offset + (part.bytes.end - part.bytes.start) as u64 - 1;
                assert_eq!(counted(&geometry, last), (part.member, end), "one run of a member");
                at = part.bytes.end;
            }
            assert_eq!(at as u64, len, "all of {len} bytes at {begin}");
        }
    }
}

/// A member's run is what its parts are together.
#[test]
fn runs_are_the_parts_of_each_member() {
    for count in [2, 3, 5] {
        let geometry = Geometry::new(count, UNIT, 4 * UNIT).unwrap();
        for begin in [0, 1, UNIT - 1, UNIT, 2 * UNIT + 5, 4 * UNIT] {
            for len in [0, 1, UNIT, UNIT + 1, 2 * UNIT - 1, 3 * UNIT + 7, 4 * UNIT] {
                let mut wanted: Vec<Option<Range<u64>>> = vec![None; count];
                for part in geometry.parts(begin, len as usize) {
                    let end = part.offset + (part.bytes.end - part.bytes.start) as u64;
                    match &mut wanted[part.member] {
                        Some(run) => {
                            assert_eq!(run.end, part.offset, "parts of a member touch");
                            run.end = end;
                        }
                        none => *none = Some(part.offset..end),
                    }
                }
                let wanted: Vec<_> =
                    (0..).zip(wanted).filter_map(|(at, run)| Some((at, run?))).collect();
                assert_eq!(geometry.runs(begin, len), wanted, "{count}: {len} bytes at {begin}");
            }
        }
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    assert!(Geometry::new(2, UNIT, UNIT).is_ok() && Geometry::new(16, MAX_UNIT, MAX_UNIT).is_ok());
    let wrong = [
        (1, UNIT, UNIT),
        (17, UNIT, UNIT),
        (0, UNIT, UNIT),
        (2, UNIT / 2, UNIT),
        (2, 2 * MAX_UNIT, 2 * MAX_UNIT),
        (2, 3 * UNIT, 3 * UNIT),
        (2, 0, 0),
        (2, UNIT, 0),
        (2, UNIT, UNIT + 4096),
        (2, UNIT, 1 << 62),
        (16, UNIT, u64::MAX - UNIT + 1),
    ];
    for (count, unit, len) in wrong {
        assert!(Geometry::new(count, unit, len).is_err(), "{count} of {len} by {unit}");
    }
}
