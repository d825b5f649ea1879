//! All figures of `siftfs bench rbd` once, with as little work as goes: times are not judged, only
//! that all of them are there. Counts are judged: one fsync is one write to the cluster. Needs
//! root, FUSE, loop devices, sqlite3, db_bench and Ceph's daemons, and fails without them.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Of a row, the median of the comparison of this name.
#[track_caller]
fn compared(row: &Value, what: &str) -> f64 {
    let all = row["compared"].as_array().expect("a list");
    let one = all.iter().find(|one| one["what"] == what);
    let median = one.and_then(|one| one["ratio"]["median"].as_f64());
    median.unwrap_or_else(|| panic!("no {what} in {row:#}"))
}

/// Of a row, the median of the side of this name.
#[track_caller]
fn side(row: &Value, name: &str) -> f64 {
    let all = row["sides"].as_array().expect("a list");
    let one = all.iter().find(|one| one["name"] == name);
    let median = one.and_then(|one| one["by transaction"]["median"].as_f64());
    median.unwrap_or_else(|| panic!("no {name} in {row:#}"))
}

/// An fsync of an embedded volume waits for one write, and no more reach the OSDs.
#[track_caller]
fn judge_images(rows: &Value, count: usize) {
    let rows = rows["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), count);
    for row in rows {
        for side in row["sides"].as_array().expect("sides") {
            assert!(side["us"]["median"].as_f64().is_some_and(|n| n > 0.0), "{row:#}");
        }
        assert!(compared(row, "to a raw write of 4 KiB and a flush") > 0.0, "{row:#}");
        assert_eq!(compared(row, "writes that an fsync waits for"), 1.0, "{row:#}");
        let osds = compared(row, "writes at the OSDs by fsync");
        // A client that keeps its images' watches alive writes now and then, too.
        assert!((1.0..1.2).contains(&osds), "{row:#}");
    }
}

fn judge_programs(rows: &Value) {
    let rows = rows["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    for (row, writes) in rows.iter().zip([1.0, 3.0, 1.0]) {
        assert_eq!(compared(row, "writes that it waits for"), writes, "{row:#}");
        assert_eq!(compared(row, "times that it waits for durability"), writes, "{row:#}");
    }
    for row in rows {
        let osds = side(row, "SiftFS, writes at the OSDs");
        assert!(osds >= compared(row, "writes that it waits for"), "{row:#}");
        assert!(side(row, "ext4, writes at its loop device") >= 1.0, "{row:#}");
        assert!(side(row, "ext4, flushes there") >= 0.9, "{row:#}");
    }
}

#[test]
fn one_fsync_is_one_write_to_the_cluster() {
    let program = Path::new(env!("CARGO_BIN_EXE_siftfs-rbd-bench"));
    for beside in ["siftfs", "siftfs-sqlite"] {
        let path = program.with_file_name(beside);
        assert!(
            path.exists(),
            "{} is missing: build the workspace with the feature rbd",
            path.display()
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let ran = Command::new(program)
        .args(["--rounds", "1", "--time", "200", "--transactions", "20", "--json"])
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said: Value = serde_json::from_slice(&ran.stdout).expect("one document");
    judge_images(&said["fsync"], 3);
    judge_programs(&said["programs"]);
    judge_images(&said["log-apart"], 9);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?} are left");
}
