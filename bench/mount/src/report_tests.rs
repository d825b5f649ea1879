use super::*;
use crate::rows::{JOBS, Kind};

fn column(system: &str, rounds: &[f64]) -> Column {
    let samples = rounds.to_vec();
    let rounds = rounds.iter().copied().enumerate().collect();
    Column { system: system.into(), rounds, samples, ..Column::default() }
}

fn overwrite() -> &'static Row {
    let job = JOBS.iter().find(|j| matches!(j.kind, Kind::Each(_))).expect("a row of latencies");
    &job.rows[0]
}

#[test]
fn the_ratio_is_the_median_of_the_rounds_ratios() {
    // The middle round was slow for both: medians divided would say 0.5 of nothing comparable.
    let ours = column("ours", &[50.0, 400.0, 60.0]);
    let theirs = column(EXT4, &[100.0, 500.0, 100.0]);
    let r = ours.ratio_to(&theirs).expect("three rounds");
    assert!((r.median - 0.6).abs() < 1e-9, "{r:?}");
    assert!(ours.ratio_to(&column("not measured", &[])).is_none());
}

#[test]
fn a_system_of_every_second_round_is_compared_with_the_same_rounds() {
    let mut other = column("xfs", &[50.0, 800.0]);
    other.rounds = vec![(0, 50.0), (2, 800.0)];
    let ext4 = column(EXT4, &[100.0, 1.0, 800.0]);
    let r = other.ratio_to(&ext4).expect("two rounds");
    assert_eq!((r.samples, r.median), (2, 0.75));
}

#[test]
fn times_are_at_most_and_rates_at_least() {
    for falls in [Metric::Latency, Metric::Written] {
        assert!(falls.met(0.8, 0.8) && !falls.met(0.81, 0.8));
    }
    assert!(Metric::Operations.met(1.3, 1.3) && !Metric::Bytes.met(0.89, 0.9));
}

#[test]
fn a_row_judged() {
    let columns = vec![
        column(EXT4, &[100.0]),
        column("first", &[116.0]),
        column("second", &[20.0]),
        column(EMBEDDED, &[50.0]),
        column(FLOOR, &[45.0]),
    ];
    let outcome = Outcome { row: overwrite(), floor: Some((1, 8192)), columns };
    let entry = Entry::new(&outcome, "first");
    assert_eq!((entry.met, entry.floor_met), (Some(false), Some(true)));
    assert!(entry.distance().is_some_and(|d| d > 1.0));
    assert_eq!(Entry::new(&outcome, "second").met, Some(true));
    assert!(!entry.ratios.contains_key(EXT4) && !entry.ratios.contains_key(FLOOR));
    let json = serde_json::to_value(&entry).expect("plain data");
    assert_eq!(json["systems"]["first"]["median"], 116.0);
}
