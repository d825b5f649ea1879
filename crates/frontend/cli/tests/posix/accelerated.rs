//! Whether these tests run with the library of `siftfs accel` loaded (`scripts/test-modes.sh`, mode
//! `accel`), and whether it catches their calls.

use crate::support::{Ran, Setup, siftfs};
use rustix::fs::{CWD, Mode, OFlags};
use std::process::Command;

/// Says to the process which file it is to write.
const FILE: &str = "SIFTFS_TEST_WRITTEN_FILE";

/// With the library, writes go by leases; without it they go by the mount. A build whose calls the
/// library does not see, or a mount without private logs, would make that mode test nothing.
#[test]
fn writes_go_by_leases_if_the_library_is_loaded() {
    let loaded = std::env::var("LD_PRELOAD").is_ok_and(|all| all.contains("siftfs_preload"));
    let s = Setup::new();
    s.mount("");
    // In a process of its own: the tests beside this one start programs, and all leases of a
    // program go back when it does.
    let own = std::env::current_exe().expect("this program has a path");
    let mut writer = Command::new(own);
    writer.args(["--ignored", "--exact", "accelerated::writes_and_syncs"]);
    Ran::from(writer.env(FILE, s.path("f")).output().expect("it starts")).ok();
    let status = siftfs(&["status", s.dir(), "--json"]).ok().out;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let [mount] = status["mounts"].as_array().unwrap().as_slice() else { panic!("{status}") };
    let fsyncs = mount["requests"]["fsync"].as_u64().unwrap_or(0);
    match loaded {
        true => assert!(fsyncs < 10, "{fsyncs} of 100 calls of fsync(2) by the mount"),
        false => assert_eq!(fsyncs, 100),
    }
    assert_eq!(std::fs::read(s.path("f")).unwrap(), b"0123456789".repeat(100));
    s.umount();
}

/// The process itself.
#[test]
#[ignore = "a part of another test, which starts it"]
fn writes_and_syncs() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::RWXU).unwrap();
    for _ in 0..100 {
        assert_eq!(rustix::io::write(&file, b"0123456789"), Ok(10));
        rustix::fs::fsync(&file).unwrap();
    }
}
