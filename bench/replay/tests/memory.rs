//! A checkpoint keeps its memory budget, whatever the backlog.

use serde_json::Value;
use std::process::Command;

/// 64 MiB, and a backlog that would take more than that at once.
#[test]
fn a_checkpoint_stays_within_its_memory() {
    const BUDGET: f64 = 64.0;
    let dir = tempfile::tempdir().unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_siftfs-replay-bench"))
        .args(["memory", dir.path().to_str().unwrap(), "1", "64"])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    for mode in ["ordered", "coalesce", "auto"] {
        let row = &json["64M"][mode];
        let (report, taken) = (&row["report"], row["checkpoint_mib"].as_f64().unwrap());
        let batches = report["coalesced_batches"].as_u64().unwrap()
            + report["light_batches"].as_u64().unwrap();
        assert_eq!(report["batch"], 200, "{mode}: all of the backlog");
        assert!(mode == "ordered" || batches > 4, "{mode}: {batches} batches");
        assert!(taken < BUDGET, "{mode} took {taken} MiB");
        // Something was measured.
        assert!(taken > 4.0, "{mode} took {taken} MiB");
    }
}
