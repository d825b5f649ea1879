use super::*;
use siftfs_status::{IoCounts, OriginCounts};

fn counts(waited: u64, background: u64) -> RegionCounts {
    let of = |writes| IoCounts {
        writes,
        flushes: writes,
        write_bytes: writes * 8192,
        ..IoCounts::default()
    };
    RegionCounts {
        staging: OriginCounts { foreground: of(waited), ..OriginCounts::default() },
        area: OriginCounts { background: of(background), ..OriginCounts::default() },
        ..RegionCounts::default()
    }
}

#[test]
fn counts_by_operation() {
    let at = |waited, background, osds| Moment { storage: counts(waited, background), osds };
    let mut tally = Tally::default();
    tally.count(10, &at(5, 1, Some(100)), &at(15, 3, Some(112)));
    tally.end(10, &at(5, 1, None), &counts(15, 11));
    assert_eq!((tally.waited[..].to_vec(), tally.durable[..].to_vec()), (vec![1.0], vec![1.0]));
    assert_eq!((tally.kib[0], tally.osds[0], tally.all[0]), (8.0, 1.2, 2.0));
    // Where no OSD is asked there is no number of theirs.
    tally.count(10, &at(5, 1, None), &at(15, 3, None));
    assert_eq!((tally.waited.len(), tally.osds.len()), (2, 1));
}

#[test]
fn the_middle_of_a_rounds_times() {
    let mut tally = Tally::default();
    tally.time((0..200).rev().map(f64::from).collect());
    assert_eq!((tally.p50[0], tally.mean[0], tally.p99[0]), (100.0, 99.5, 198.0));
    assert!(tally.note().starts_with("mean 100 us, p99 198 us"), "{}", tally.note());
    tally.time(Vec::new());
    assert_eq!(tally.p50[1], 0.0);
}
