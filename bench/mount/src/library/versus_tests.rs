use super::*;
use crate::library::jobs::JOBS as OWN;
use crate::rows::JOBS;
use crate::run::Column;

fn row(name: &str) -> &'static crate::row::Row {
    let mut rows = JOBS.iter().chain(OWN).flat_map(|j| j.rows);
    rows.find(|r| r.name == name).expect("a row of this name")
}

fn outcome(name: &str, columns: &[(&str, [f64; 3])]) -> Outcome {
    let column = |(system, values): &(&str, [f64; 3])| Column {
        system: (*system).into(),
        samples: values.to_vec(),
        rounds: values.iter().copied().enumerate().collect(),
        ..Column::default()
    };
    Outcome { row: row(name), floor: None, columns: columns.iter().map(column).collect() }
}

fn configs() -> Vec<Config> {
    let config = |name: &str| Config { name: name.into(), options: String::new() };
    vec![config("accel"), config("siftfs")]
}

#[test]
fn every_comparison_names_rows_that_there_are_and_every_own_row_is_in_one() {
    for Versus(name, to, _) in ALL {
        row(name);
        if let To::Row(other) = to {
            assert_eq!(row(other).metric, row(name).metric, "{name}");
        }
    }
    for own in OWN.iter().flat_map(|j| j.rows) {
        let named = |v: &Versus| v.0 == own.name || v.1 == To::Row(own.name);
        assert!(ALL.iter().any(named), "{}", own.name);
    }
}

#[test]
fn a_mount_with_private_logs_is_compared_with_the_plain_one_round_by_round() {
    let columns = [("accel", [90.0, 180.0, 30.0]), ("siftfs", [100.0, 200.0, 50.0])];
    let all = [outcome("pgbench", &columns)];
    let compared = compare(&all, &configs());
    let [c] = compared.as_slice() else { panic!("{} comparisons", compared.len()) };
    assert_eq!((c.name, c.to.as_str(), c.ours, c.theirs), ("pgbench", "siftfs", 90.0, 100.0));
    assert_eq!((c.ratio.median, c.met), (0.9, false));
    let one = compare(&all, &configs()[..1]);
    assert!(one.is_empty(), "without a plain mount there is nothing to compare with");
}

#[test]
fn the_library_is_compared_with_none_on_the_same_mount() {
    let with = [("accel", [98.0, 97.0, 99.0]), ("siftfs", [1.0, 1.0, 1.0])];
    let without = [("accel", [100.0; 3]), ("siftfs", [2.0; 3])];
    let all = [outcome("library-untar", &with), outcome("library-untar-off", &without)];
    let compared = compare(&all, &configs());
    let [c] = compared.as_slice() else { panic!("{} comparisons", compared.len()) };
    assert_eq!((c.to.as_str(), c.ratio.median, c.met), ("library-untar-off", 0.98, true));
}

#[test]
fn of_bytes_written_more_is_missed() {
    let columns = [("accel", [16.0; 3]), ("siftfs", [10.0; 3])];
    let compared = compare(&[outcome("device-bytes-log", &columns)], &configs());
    assert_eq!(compared.first().map(|c| (c.ratio.median, c.met)), Some((1.6, false)));
}
