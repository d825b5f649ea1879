use super::*;
use crate::cpu::Cpu;
use crate::status::Counts;
use siftfs_placement::ReplayMode;
use siftfs_pressure::load::Shape;
use siftfs_pressure::steady::Steadiness;

fn case(quota: Option<u64>, interval: u64) -> Case {
    Case { mode: ReplayMode::Ordered, quota, interval, offered_mib: 0 }
}

fn found(operations: u64, host: f64) -> Found {
    Found {
        seconds: 10.0,
        foreground: Steadiness { operations, ..Steadiness::default() },
        background_bytes: 0,
        daemon: Some(Cpu { user: host / 2.0, system: 0.0 }),
        load: Cpu { user: 0.0, system: host / 2.0 },
        background: Cpu::default(),
        device: None,
        counts: Counts::default(),
    }
}

#[test]
fn ratios_are_of_the_same_round_and_load() {
    let cases = [case(None, 128), case(Some(25), 128), case(None, 32), case(Some(25), 32)];
    let mut report = Report::new(&Shape::of_paper(8), JournalData::Ref, 10, &cases);
    for (i, ops, host) in [(0, 100, 8.0), (1, 400, 4.0), (2, 50, 10.0), (3, 100, 10.0)] {
        report.add(i, found(ops, host));
    }
    report.add(0, found(200, 8.0));
    report.add(1, found(200, 2.0));
    let all = report.json();
    let ratio = |case: &str, name: &str| all["configurations"][case]["figures"][name].clone();
    assert_eq!(ratio("offload-25", "host_cpu_to_vanilla")["median"], 0.375);
    assert_eq!(ratio("offload-25", "host_cpu_per_op_to_vanilla")["min"], 0.125);
    assert_eq!(ratio("offload-25", "host_cpu_per_op_to_vanilla")["max"], 0.25);
    assert_eq!(ratio("offload-25-i32", "host_cpu_per_op_to_vanilla")["median"], 0.5);
    assert!(ratio("vanilla", "host_cpu_to_vanilla").is_null());
}

#[test]
fn the_papers_ratios_come_out_as_it_says() {
    let rounded: Vec<_> = paper_ratios()
        .map(|(n, raw, op)| (n, (raw * 100.0).round(), (op * 1000.0).round()))
        .collect();
    assert_eq!(rounded, [("offload", 29.0, 46.0), ("coalesce", 78.0, 22.0)]);
}

#[test]
fn spreads() {
    assert_eq!(Spread::of([3.0, 1.0, 2.0, 10.0]), Spread { median: 2.5, min: 1.0, max: 10.0 });
    assert_eq!(Spread::of([]), Spread::default());
}
