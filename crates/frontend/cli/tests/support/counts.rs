//! What the kernel and the daemon count.
//!
//! A loop device has its statistics in `/sys/block/loopN/stat`, and with direct I/O below it is a
//! block device with a volatile cache and without FUA. A flush shows there twice: in the number of
//! flushes, and as one more write request, without sectors. So the writes are the write requests
//! less the flushes; sectors are counted by themselves.

use crate::support::{Setup, run, siftfs};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::Sub;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Writes, flushes and bytes written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub writes: u64,
    pub flushes: u64,
    pub bytes: u64,
}

impl Sub for Counts {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self {
            writes: self.writes - o.writes,
            flushes: self.flushes - o.flushes,
            bytes: self.bytes - o.bytes,
        }
    }
}

/// A loop device with direct I/O, detached at the end.
pub struct Loop(pub String);

impl Loop {
    pub fn over(file: &Path) -> Self {
        let size = 192 << 20;
        let made = File::create(file).expect("the file below");
        // Written once, so that what the file system below does is the same for every write.
        (0..size >> 20).for_each(|i| made.write_all_at(&[0; 1 << 20], i << 20).expect("writes"));
        made.sync_all().expect("is there");
        let file = file.to_str().expect("a plain path");
        let args = ["--find", "--show", "--direct-io=on", file];
        let device = Self(run("losetup", &args).ok().out.trim().into());
        let read = |name| fs::read_to_string(device.sys(name)).expect("what the kernel says");
        assert_eq!(read("loop/dio").trim(), "1", "direct I/O below");
        assert_eq!(read("queue/write_cache").trim(), "write back");
        device
    }

    fn sys(&self, name: &str) -> String {
        format!("/sys/block/{}/{name}", self.0.trim_start_matches("/dev/"))
    }

    /// What the kernel counted.
    pub fn counts(&self) -> Counts {
        let text = fs::read_to_string(self.sys("stat")).expect("statistics");
        let number = |at| text.split_whitespace().nth(at).and_then(|n| n.parse::<u64>().ok());
        let [requests, sectors, flushes] = [4, 6, 15].map(|at| number(at).expect("a number"));
        Counts { writes: requests - flushes, flushes, bytes: sectors * 512 }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}

/// `siftfs status --json`.
pub fn status(s: &Setup) -> Value {
    serde_json::from_str(&siftfs(&["status", s.dir(), "--json"]).ok().out).expect("JSON")
}

/// What the daemon counted at the storage backend, all regions and origins together.
pub fn ours(s: &Setup) -> Counts {
    let status = status(s);
    let storage = status["runtime"]["storage"].as_object().expect("regions");
    let cells = storage.values().flat_map(|r| r.as_object().expect("origins").values());
    let sum = |name| cells.clone().map(|c| c[name].as_u64().expect("a count")).sum();
    Counts { writes: sum("writes"), flushes: sum("flushes"), bytes: sum("write_bytes") }
}

/// Where a mount's counters are asked for.
pub fn socket(s: &Setup) -> PathBuf {
    s.tmp.path().join("metrics")
}

/// The kernel's requests so far, by kind, of a volume mounted with `metrics=` and the path of
/// [`socket`].
pub fn counted(s: &Setup) -> BTreeMap<String, u64> {
    let mut stream = UnixStream::connect(socket(s)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let count = |line: &str| {
        let (kind, count) =
            line.strip_prefix("siftfs_requests_total{kind=\"")?.split_once("\"} ")?;
        Some((kind.to_string(), count.trim().parse::<f64>().ok()? as u64))
    };
    let map: BTreeMap<String, u64> = page.lines().filter_map(count).collect();
    assert!(map.contains_key("init"), "{page}");
    map
}
