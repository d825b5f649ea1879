//! Each figure of `siftfs bench ceto-...` once, with as little work as goes: what it says is not
//! judged, only that all of it is there, and that no number is missing or makes no sense.

use serde_json::Value;
use std::process::Command;

/// Runs a figure. The count of its rows, and how many of them have a target.
#[track_caller]
fn figure(name: &str) -> (usize, usize) {
    let dir = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_siftfs-ceto-bench"))
        .args([name, "--quick", "--json"])
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{name}: {errors}");
    let said: Value = serde_json::from_slice(&ran.stdout).expect("one document");
    let rows = said["rows"].as_array().expect("rows");
    let list = |row: &Value, name: &str| row[name].as_array().expect("a list").clone();
    let sound = |of: &Value| of["median"].as_f64().is_some_and(|n| n.is_finite() && n > 0.0);
    let mut judged = 0;
    for row in rows {
        for side in list(row, "sides") {
            assert!(["us", "ns", "/s", "MiB/s"].iter().any(|unit| sound(&side[unit])), "{row:#}");
        }
        let compared = list(row, "compared");
        assert!(compared.iter().all(|one| sound(&one["ratio"])), "{row:#}");
        judged += usize::from(compared.iter().any(|one| one["target"].is_string()));
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{name} leaves {left:?}");
    (rows.len(), judged)
}

#[test]
fn single_threaded_throughput() {
    assert_eq!(figure("fig11"), (20, 4));
}

#[test]
fn concurrent_calls() {
    assert_eq!(figure("fig12"), (66, 0));
}

#[test]
fn mixes_of_servers() {
    assert_eq!(figure("fig13"), (12, 0));
}

#[test]
fn atomic_writes() {
    assert_eq!(figure("fig14"), (19, 2));
}

#[test]
fn checks_of_the_permission_table() {
    assert_eq!(figure("fig15a"), (7, 3));
}

#[test]
fn many_writers_of_one_file() {
    assert_eq!(figure("fig15b"), (11, 2));
}

#[test]
fn opens_and_open_queues() {
    assert_eq!(figure("open"), (2, 2));
}

#[test]
fn an_unrelated_fsync() {
    assert_eq!(figure("fairness"), (3, 1));
}

#[test]
fn latencies() {
    assert_eq!(figure("table1"), (2, 1));
}

#[test]
fn where_the_time_goes() {
    assert_eq!(figure("table2"), (7, 0));
}

#[test]
fn writers_near_and_far() {
    assert_eq!(figure("fig2"), (3, 0));
}
