//! `siftfs bench ceto-table3` once, with as little work as goes: what it says is not judged, only
//! that all of it is there. Needs root, `/dev/fuse`, a C compiler and LevelDB's library.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use siftfs_ceto_bench::table3::{Plan, measure};
use siftfs_rig::place::Place;
use support::INSTALLED;

/// Every row has both ways and a ratio that makes sense.
#[test]
fn leveldb_by_its_rows() {
    let place = Place::new("siftfs-ceto-test", 3 << 30, None).unwrap_or_else(|e| panic!("{e:?}"));
    let plan = Plan { place: &place, siftfs: &INSTALLED, rounds: 1, operations: 400 };
    let output = measure(&plan).unwrap_or_else(|e| panic!("{}", e.0));
    let rows = output.json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 8);
    for row in rows {
        let sound = |of: &serde_json::Value| of["median"].as_f64().is_some_and(|n| n > 0.0);
        let sides = row["sides"].as_array().expect("sides");
        assert!(sides.len() == 2 && sides.iter().all(|side| sound(&side["us"])), "{row:#}");
        assert!(sound(&row["compared"][0]["ratio"]), "{row:#}");
    }
}
