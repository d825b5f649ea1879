use super::*;
use siftfs_status::{IoCounts, OriginCounts};

#[test]
fn a_disks_line() {
    let line = " 10 0 80 5 200 3 4096 28 0 6 36 22 47 15 6 77 21\n";
    let io = parse(line).expect("seventeen fields");
    assert_eq!((io.writes, io.write_bytes, io.flushes), (200, 4096 * 512, 77));
}

#[test]
fn a_line_without_flushes_counts_nothing() {
    assert!(parse("1 2 3 4 5 6 7 8 9 10 11").is_none());
}

fn storage() -> RegionCounts {
    let io = |n: u64| IoCounts {
        writes: n,
        flushes: 2 * n,
        write_bytes: 4096 * n,
        ..IoCounts::default()
    };
    let region = |n: u64| OriginCounts {
        foreground: io(n),
        background: io(10 * n),
        ..OriginCounts::default()
    };
    RegionCounts { area: region(1), staging: region(2), journal: region(3), header: region(4) }
}

#[test]
fn all_regions_are_summed_by_origin() {
    let all = Backend::of(&storage());
    assert_eq!((all.writes, all.flushes, all.write_bytes), (10, 20, 40960));
    assert_eq!((all.background_writes, all.background_flushes), (100, 200));
    let twice = all.plus(&all);
    assert_eq!(twice.since(&all).writes, all.writes);
}

#[test]
fn only_requests_that_came_meanwhile_count() {
    let status = |requests: &[(&str, u64)]| Status {
        pid: 1,
        requests: requests.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
        ..Status::default()
    };
    let before = Requests::of(&status(&[("read", 5), ("write", 1)]));
    let after = Requests::of(&status(&[("read", 5), ("write", 8), ("fsync", 2)]));
    let (before, after) = (before.expect("requests"), after.expect("requests"));
    let new = after.since(&before);
    assert_eq!(new.0, BTreeMap::from([("write".into(), 7), ("fsync".into(), 2)]));
    assert_eq!(new.clone().plus(&new).0["fsync"], 4);
    assert!(Requests::of(&Status::default()).is_none(), "there is no mount");
}

#[test]
fn what_one_of_two_has_is_the_sum() {
    let some = Counts { daemon: Some(Usage { cpu_us: 3, switches: 1 }), ..Counts::default() };
    let both = some.clone().plus(&Counts::default()).plus(&some);
    assert_eq!(both.daemon, Some(Usage { cpu_us: 6, switches: 2 }));
    assert!(both.backend.is_none());
}
