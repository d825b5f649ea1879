use super::*;
use crate::rows::ROWS;

fn column(system: &'static str, rounds: &[f64]) -> Column {
    Column { system, rounds: rounds.to_vec(), samples: rounds.to_vec(), ..Column::default() }
}

#[test]
fn the_ratio_is_the_median_of_the_rounds_ratios() {
    // The middle round was slow for both: medians divided would say 0.5 of nothing comparable.
    let ours = column(FUSE, &[50.0, 400.0, 60.0]);
    let theirs = column(EXT4, &[100.0, 500.0, 100.0]);
    let r = ratio(Some(&ours), Some(&theirs)).expect("three rounds");
    assert!((r.median - 0.6).abs() < 1e-9, "{r:?}");
    assert!(ratio(Some(&ours), None).is_none());
}

#[test]
fn times_are_at_most_and_rates_at_least() {
    assert!(met(Metric::Latency, 0.8, 0.8) && !met(Metric::Latency, 0.81, 0.8));
    assert!(met(Metric::Operations, 1.3, 1.3) && !met(Metric::Bytes, 0.89, 0.9));
}

#[test]
fn a_row_judged() {
    let columns = vec![
        column(EXT4, &[100.0]),
        column(FUSE, &[101.0]),
        column(EMBEDDED, &[50.0]),
        column(FLOOR, &[45.0]),
    ];
    let entry = Entry::new(&Outcome { row: &ROWS[0], floor: Some((1, 8192)), columns });
    assert_eq!((entry.met, entry.floor_met), (Some(false), Some(true)));
    let json = serde_json::to_value(&entry).expect("plain data");
    assert_eq!(json["systems"]["fuse"]["median"], 101.0);
}

#[test]
fn names_are_unique_and_each_row_of_a_table_fits() {
    for (i, row) in ROWS.iter().enumerate() {
        assert!(row.what.len() <= 42, "{}", row.what);
        assert!(ROWS[..i].iter().all(|r| r.name != row.name), "{}", row.name);
    }
}
