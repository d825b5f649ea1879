//! What the kernel caches: with `write_cache=writeback`, written data, sizes and times; in any case
//! directories. Needs root, `/dev/fuse` and e2fsprogs.

#![allow(unsafe_code)]

#[path = "support/counts.rs"]
#[allow(dead_code)] // as below
mod counts;
#[path = "kernel_cache/directories.rs"]
mod directories;
#[path = "kernel_cache/durable.rs"]
mod durable;
#[path = "kernel_cache/killed.rs"]
mod killed;
#[path = "kernel_cache/requests.rs"]
mod requests;
#[path = "../../fuse/tests/support/rings.rs"]
mod rings;
#[path = "kernel_cache/shared.rs"]
mod shared;
#[allow(dead_code)] // each test program uses a part of it
mod support;

use counts::{counted, socket};
use rustix::process::Signal;
use std::collections::BTreeMap;
use support::{Process, Setup, siftfs};

/// Mounted with the writeback cache, and nothing journaled by age.
fn writeback() -> Setup {
    let s = Setup::new();
    remount(&s);
    s
}

fn remount(s: &Setup) {
    mount(s, "write_cache=writeback,commit=3600");
}

/// With a socket that [`counted`] asks.
fn mount(s: &Setup, options: &str) {
    let options = format!("metrics={},{options}", socket(s).display());
    siftfs(&["mount", s.volume(), s.dir(), "-o", &options]).ok();
}

/// From here on the calling thread has its descriptors for itself. A process that another test
/// starts would have copies of them, and closing a copy makes the kernel write pages back.
fn keep_descriptors() {
    // SAFETY: each test's thread opens and closes its own descriptors only, and has none yet: what
    // is closed are copies, which would keep other tests' mounts busy.
    unsafe {
        rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES).unwrap();
        assert_eq!(libc::close_range(3, libc::c_uint::MAX, 0), 0);
    }
}

/// The daemon is killed, and the volume mounted again.
fn kill_and_mount(s: &Setup) {
    let daemon = s.daemon();
    kill(s, &daemon);
}

/// As [`kill_and_mount`], without a process that would be started before.
fn kill(s: &Setup, daemon: &Process) {
    daemon.signal(Signal::KILL);
    daemon.wait();
    siftfs(&["mount", s.volume(), s.dir()]).ok();
}

/// What the kernel sent during `work`, of these kinds.
fn requests_of(s: &Setup, kinds: &[&str], work: impl FnOnce()) -> Vec<u64> {
    let before = counted(s);
    work();
    let after = counted(s);
    let of = |map: &BTreeMap<String, u64>, kind| map.get(kind).copied().unwrap_or(0);
    kinds.iter().map(|k| of(&after, *k) - of(&before, *k)).collect()
}
