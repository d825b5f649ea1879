//! Unmodified programs under the library that catches their calls, on a real mount with private
//! logs. Needs root, `/dev/fuse`, e2fsprogs, a C compiler, sqlite3, git, fio and Python.

#[allow(dead_code)] // each test program uses a part of it
mod support;

#[path = "preload/command.rs"]
mod command;
#[path = "preload/conformance.rs"]
mod conformance;
#[path = "preload/deaths.rs"]
mod deaths;
#[path = "preload/escapes.rs"]
mod escapes;
#[path = "preload/programs.rs"]
mod programs;
#[path = "preload/speed.rs"]
mod speed;
#[path = "preload/streams.rs"]
mod streams;

pub use crate::support::library;
use crate::support::{Ran, Setup, run, siftfs};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whatever SIFTFS_TEST_OPTIONS says: the writeback cache excludes private logs.
pub const LOGS: &str = "write_cache=writethrough,private_logs=on";

/// A volume whose programs may have private logs.
pub fn mounted() -> Setup {
    let s = Setup::of_size("256M");
    s.mount(LOGS);
    s
}

/// A program under the library, which asks for a lease whenever it can.
pub fn eager(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env("LD_PRELOAD", library()).env("SIFTFS_ACCEL", "eager");
    command
}

/// What a program says.
#[track_caller]
pub fn ran(command: &mut Command) -> Ran {
    Ran::from(command.output().expect("it starts"))
}

/// One of the programs beside these tests, compiled.
#[track_caller]
pub fn compiled(name: &str, into: &Path) -> PathBuf {
    let source = format!("{}/tests/preload/sources/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = into.join(name);
    let words = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror"];
    // Memory that is not there is named on purpose.
    let wrong = ["-Wno-stringop-overread", "-Wno-stringop-overflow", "-Wno-nonnull"];
    let out = [source.as_str(), "-pthread", "-o", program.to_str().expect("text")];
    run("cc", &[&words[..], &wrong, &out].concat()).ok();
    program
}

/// What the daemon says of private logs.
#[track_caller]
pub fn told(s: &Setup, what: &str) -> u64 {
    let status = siftfs(&["status", s.dir(), "--json"]).ok().out;
    let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
    status["mounts"][0]["private_logs"][what].as_u64().expect("a number")
}

/// `siftfs accel` with these options, and a program with its words.
pub fn accel(options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(&*support::INSTALLED);
    command.arg("accel").args(options).arg("--").args(words);
    command
}
