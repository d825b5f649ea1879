//! A slice of `make test-rbd`. Needs root, FUSE and Ceph's daemons, and fails without them.

use std::path::Path;
use std::process::Command;

/// What is left out takes longer: until a cluster has given something up, or a volume has grown
/// again and again.
const SLICE: [&str; 9] = [
    "refusals",
    "osds",
    "everything",
    "server",
    "private-logs",
    "stopped",
    "short-entry",
    "words",
    "handed-over",
];

/// The command is built with the feature `rbd` where Ceph's headers are, as `make test` does it.
#[test]
fn volumes_outlive_deaths_of_the_cluster_and_of_their_owners() {
    let program = Path::new(env!("CARGO_BIN_EXE_siftfs-rbd"));
    let siftfs = program.with_file_name("siftfs");
    assert!(
        siftfs.exists(),
        "{} is missing: build siftfs-cli with the feature rbd",
        siftfs.display()
    );
    let out =
        Command::new(program).args(["--seconds", "5"]).args(SLICE).output().expect("it starts");
    let (said, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    print!("{said}");
    assert!(out.status.success(), "{}\n{said}{err}", out.status);
    assert_eq!(said.matches(": passed, ").count(), SLICE.len(), "{said}");
}
