//! Each figure of `siftfs bench ceto-...` once, with as little work as goes: what it says is not
//! judged, only that all of it is there, and that no number is missing or makes no sense.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Runs a figure. The count of its rows, and how many of them have a target.
#[track_caller]
fn figure(name: &str) -> (usize, usize) {
    counted(name, &run(name, &[]))
}

/// Runs a figure with these words besides. What it says.
#[track_caller]
fn run(name: &str, words: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_siftfs-ceto-bench"))
        .args([name, "--quick", "--json"])
        .args(words)
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{name}: {errors}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{name} leaves {left:?}");
    serde_json::from_slice(&ran.stdout).expect("one document")
}

/// Every number makes sense. The count of rows, and how many of them have a target.
#[track_caller]
fn counted(name: &str, said: &Value) -> (usize, usize) {
    let rows = said["rows"].as_array().expect("rows");
    let list = |row: &Value, name: &str| row[name].as_array().expect("a list").clone();
    let sound = |of: &Value| of["median"].as_f64().is_some_and(|n| n.is_finite() && n > 0.0);
    let mut judged = 0;
    assert!(!rows.is_empty(), "{name} has no row");
    for row in rows {
        for side in list(row, "sides") {
            assert!(["us", "ns", "/s", "MiB/s"].iter().any(|unit| sound(&side[unit])), "{row:#}");
        }
        let compared = list(row, "compared");
        assert!(compared.iter().all(|one| sound(&one["ratio"])), "{row:#}");
        judged += usize::from(compared.iter().any(|one| one["target"].is_string()));
    }
    (rows.len(), judged)
}

/// A target or a host, as figures start them, and the first line that it says. It ends in order
/// when it is dropped.
struct Role(Child, Option<ChildStdin>, Value);

impl Role {
    fn start(role: &str, dir: &Path, words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_siftfs-ceto-bench"))
            .args([role, "--net-delay", "0ns", "--spin", "0ns", "--dir"])
            .arg(dir)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let asks = child.stdin.take();
        Self(child, asks, serde_json::from_str(&line).unwrap())
    }

    fn says(&self, what: &str) -> &str {
        self.2[what].as_str().unwrap()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.1 = None;
        let ended = self.0.wait().unwrap();
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
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

/// A folder stands for the kernel's ways, and one host for two: of the rows' sides the first is
/// what the other two are compared with.
#[test]
fn what_is_there_already() {
    let (dir, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = ["--storage", "0ns", "--size", "268435456"];
    let target = Role::start("target", dir.path(), &target);
    let host = ["--cache", "1048576", "--target", target.says("hosts")];
    let host = Role::start("host", dir.path(), &host);
    let beside = format!("a folder={}", folder.path().display());
    let (keys, plain) = (host.says("programs"), host.says("programs"));
    let (keys, plain) = (format!("keys={keys}"), format!("plain={plain}"));
    let words = ["--beside", &beside, "--direct", &keys, "--plain", &plain];
    for _ in 0..2 {
        let said = run("kernel", &words);
        assert_eq!(counted("kernel", &said), (2, 0));
        for row in said["rows"].as_array().unwrap() {
            let list = |of: &str, what: &str| -> Vec<_> {
                row[of].as_array().unwrap().iter().map(|one| one[what].clone()).collect()
            };
            assert_eq!(list("sides", "name"), ["a folder", "keys", "plain"]);
            assert_eq!(list("compared", "what"), ["keys to a folder", "plain to a folder"]);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a file is left");
    }
    drop((host, target));
}
