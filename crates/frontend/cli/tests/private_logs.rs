//! Programs with private logs on a real mount, beside programs that know nothing of it. Needs root,
//! `/dev/fuse` and e2fsprogs. `testing/holders` has what needs no mount.

#![allow(unsafe_code)]

#[allow(dead_code)] // each test program uses a part of it
mod support;

#[path = "private_logs/deaths.rs"]
mod deaths;
#[path = "private_logs/doors.rs"]
mod doors;
#[path = "private_logs/file_logs.rs"]
mod file_logs;
#[path = "private_logs/mapped_logs.rs"]
mod mapped_logs;
#[path = "private_logs/pools.rs"]
mod pools;
#[path = "private_logs/program.rs"]
mod program;
#[path = "private_logs/refused.rs"]
mod refused;

use crate::support::{Setup, siftfs};
use siftfs_accel::{Leased, Session, Through};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Whatever SIFTFS_TEST_OPTIONS says: the writeback cache excludes private logs.
pub const LOGS: &str = "write_cache=writethrough,private_logs=on";

/// A volume whose programs may have private logs.
pub fn mounted() -> Setup {
    let s = Setup::new();
    s.mount(LOGS);
    s
}

/// A file that this program has open, and leased.
pub struct Held {
    /// Open to be read and written.
    pub file: File,
    /// With the mount's grantor.
    pub session: Session,
    /// Its lease.
    pub leased: Leased,
}

impl Held {
    /// Opens the file, made if it is missing, and takes its lease.
    #[track_caller]
    pub fn of(path: &Path) -> Self {
        let file = open(path);
        let session = Session::enter(&file).expect("a session");
        let leased = lease(&session, &file);
        Self { file, session, leased }
    }

    /// Does the lease last?
    pub fn lasts(&self) -> bool {
        self.leased.len() != Through::Mount
    }

    /// Appends by the lease.
    #[track_caller]
    pub fn append(&self, bytes: &[u8]) {
        assert_ne!(self.leased.append(bytes), Through::Mount, "the lease lasts");
    }
}

/// Opens a file to read and write it, made if it is missing.
#[track_caller]
pub fn open(path: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).open(path).expect("it opens")
}

/// A lease of a file that may be about to be closed by a program that has just ended: the kernel
/// sends RELEASE when it likes.
#[track_caller]
pub fn lease(session: &Session, file: &File) -> Leased {
    let mut last = None;
    for _ in 0..2000 {
        match session.lease(file) {
            Ok(leased) => return leased,
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => last = Some(e),
            Err(e) => panic!("{e}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no lease: {last:?}")
}

/// The errno of a failure.
pub fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

/// What the daemon says of the mount.
#[track_caller]
fn status(s: &Setup) -> serde_json::Value {
    let status = siftfs(&["status", s.dir(), "--json"]).ok().out;
    serde_json::from_str::<serde_json::Value>(&status).unwrap()["mounts"][0].clone()
}

/// What the daemon says of private logs.
#[track_caller]
pub fn told(s: &Setup) -> serde_json::Value {
    status(s)["private_logs"].clone()
}

/// How many requests of these kinds the kernel has sent.
#[track_caller]
pub fn counted<const N: usize>(s: &Setup, kinds: [&str; N]) -> [u64; N] {
    let requests = status(s)["requests"].clone();
    kinds.map(|kind| requests[kind].as_u64().unwrap_or(0))
}
