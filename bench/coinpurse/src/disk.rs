//! Table I: what the disk itself takes.

use crate::output::Output;
use serde_json::json;
use siftfs_base::Rng;
use siftfs_device::AlignedBuf;
use siftfs_rig::place::{Place, Result, failed};
use std::fmt::Write;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// Bytes of the file.
const FILE: usize = 256 << 20;
/// Bytes of one read.
const READ: usize = 4096;
/// KiB of sequential writes, and the paper's microseconds (Intel 750).
const WRITES: [(usize, f64); 5] = [(4, 11.76), (8, 14.12), (16, 18.55), (32, 36.33), (64, 66.50)];
/// The paper's microseconds of a random read.
const PAPER_READ: f64 = 18.20;

/// Measures with direct I/O, for so long each: medians. A write is in the disk, or in its cache.
pub fn measure(place: &Place, time: Duration) -> Result<Output> {
    let path = place.path("disk");
    let io = || failed(path.display().to_string());
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    let file = options.open(&path).map_err(io())?;
    let mut buf = AlignedBuf::zeroed(1 << 20);
    for at in (0..FILE).step_by(1 << 20) {
        file.write_all_at(&buf, at as u64).map_err(io())?;
    }
    file.sync_all().map_err(io())?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    let mut row = |what: String, us: f64, paper: f64| {
        let _ = writeln!(text, "{what:24} {us:>8.2} us   paper {paper:>6.2} us");
        rows.push(json!({"what": what, "us": us, "paper_us": paper}));
    };
    let mut rng = Rng::new(1);
    let random = median(time, |_| {
        let at = rng.below((FILE / READ) as u64) * READ as u64;
        file.read_exact_at(&mut buf[..READ], at)
    });
    row("random read, 4 KiB".into(), random.map_err(io())?, PAPER_READ);
    for (kib, paper) in WRITES {
        let len = kib << 10;
        let one = median(time, |n| file.write_all_at(&buf[..len], (n * len % FILE) as u64));
        row(format!("sequential write, {kib} KiB"), one.map_err(io())?, paper);
    }
    let _ = writeln!(
        text,
        "what differs: a virtual disk here, an Intel 750 SSD there; the paper sets its simulated \
         updater's pace by this table, here the Service really reads, merges and writes"
    );
    Ok(Output { text, json: json!({"table_1": rows}) })
}

/// The median of what one takes, in microseconds.
fn median(
    time: Duration,
    mut one: impl FnMut(usize) -> std::io::Result<()>,
) -> std::io::Result<f64> {
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let begin = Instant::now();
        one(times.len())?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}
