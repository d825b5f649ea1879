//! Each figure of `siftfs bench remote-...` once, with as little work as goes: what it says is not
//! judged, only that all of it is there. Needs root, `/dev/fuse`, git, sqlite3 and tar.

use serde_json::Value;
use siftfs_remote_bench::{Beside, Measure, Pin, Plan, cached, death, programs, sync, two};
use siftfs_rig::place::Place;
use std::path::Path;
use std::time::Duration;

/// Its rows: sides and ratios of each are counted, and no number is missing or makes no sense.
#[track_caller]
fn figure(measure: Measure, beside: &[Beside]) -> Vec<(usize, usize)> {
    let place = Place::new("siftfs-remote-test", 1 << 30, None).unwrap_or_else(|e| panic!("{e:?}"));
    let siftfs = Path::new(env!("CARGO_BIN_EXE_siftfs"));
    let time = Duration::from_millis(20);
    let (place, pin) = (&place, Pin(None));
    let plan = Plan { place, siftfs, rounds: 1, time, pin, files: 20, beside };
    let output = measure(&plan).unwrap_or_else(|e| panic!("{}", e.0));
    let rows = output.json["rows"].as_array().expect("rows");
    let list = |row: &Value, name: &str| row[name].as_array().expect("a list").clone();
    let number = |of: &Value| of["median"].as_f64().is_some_and(|n| n.is_finite() && n > 0.0);
    for row in rows {
        for side in list(row, "sides") {
            assert!(["us", "ms", "/s"].iter().any(|unit| number(&side[unit])), "{row:#}");
            assert!(
                output.text.contains(side["name"].as_str().expect("a name")),
                "{}",
                output.text
            );
        }
        assert!(list(row, "compared").iter().all(|ratio| number(&ratio["ratio"])), "{row:#}");
    }
    rows.iter().map(|row| (list(row, "sides").len(), list(row, "compared").len())).collect()
}

#[test]
fn writes_that_are_made_durable() {
    assert_eq!(figure(sync::measure, &[]), [(3, 2), (3, 2), (2, 1), (2, 1)]);
}

#[test]
fn what_the_kernel_has_cached() {
    assert_eq!(figure(cached::measure, &[]), [(2, 1); 6]);
}

#[test]
fn programs_beside_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let beside = format!("other={}=1.5", dir.path().display()).parse().unwrap();
    // Two remote mounts, to the local one and to the directory.
    assert_eq!(figure(programs::measure, &[beside]), [(4, 4); 3]);
}

#[test]
fn two_mounts_and_one() {
    assert_eq!(figure(two::measure, &[]), [(2, 1); 3]);
}

#[test]
fn a_server_that_dies() {
    assert_eq!(figure(death::measure, &[]), [(2, 1), (2, 1), (3, 2)]);
}
