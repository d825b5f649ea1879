//! Measures, on the disk below a path, which way of making one small write durable is the
//! quickest, and what batches gain from io_uring. Usage: `durable_write [FILE [ROUNDS]]`; FILE
//! is made, used and removed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use siftfs_device::{
    AlignedBuf, Device, DurableWrite, FileDevice, FileOptions, ReadOp, WriteOp, open_exclusive,
    preallocate, zero_fill,
};

const SIZE: u64 = 64 << 20;

fn percentiles(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |p: usize| times[(times.len() - 1) * p / 100].as_secs_f64() * 1e6;
    println!("{name:44} p10 {:7.1}  p50 {:7.1}  p99 {:7.1} us", at(10), at(50), at(99));
}

fn timed(rounds: u64, mut each: impl FnMut(u64)) -> Vec<Duration> {
    let one = |round| {
        let start = Instant::now();
        each(round);
        start.elapsed()
    };
    (0..rounds).map(one).collect()
}

fn durable(path: &Path, rounds: u64, len: usize) -> siftfs_base::Result<()> {
    let block = AlignedBuf::copy_of(&vec![0x5a; len]);
    let place = |round: u64| (round * 8192) % SIZE;
    let ways = [DurableWrite::Dsync, DurableWrite::WriteThenSync, DurableWrite::Linked];
    for (direct, ways) in [(true, &ways[..]), (false, &ways[1..2])] {
        for way in ways {
            let options = FileOptions { direct, durable: *way, ..Default::default() };
            let d = open_exclusive(path, true, options)?;
            let times = timed(rounds, |r| d.write(place(r), &block, true).expect("writes"));
            percentiles(&format!("{len} bytes, direct {}, {way:?}", d.is_direct()), times);
        }
    }
    Ok(())
}

fn batches(d: &FileDevice, rounds: u64) {
    let blocks = vec![AlignedBuf::copy_of(&[1; 4096]); 64];
    let at = |round: u64, i: u64| ((round * 64 + i) * 7919 * 4096) % SIZE;
    let times = timed(rounds, |r| {
        let ops: Vec<_> =
            (0..64u64).zip(&blocks).map(|(i, data)| WriteOp { offset: at(r, i), data }).collect();
        d.write_batch(&ops).expect("writes");
    });
    percentiles(&format!("64 scattered 4 KiB writes, io_uring {}", d.is_uring()), times);
    let mut blocks = blocks;
    let times = timed(rounds, |r| {
        let mut ops: Vec<_> =
            (0..64u64).zip(&mut blocks).map(|(i, buf)| ReadOp { offset: at(r, i), buf }).collect();
        d.read_batch(&mut ops).expect("reads");
    });
    percentiles(&format!("64 scattered 4 KiB reads, io_uring {}", d.is_uring()), times);
}

fn main() -> siftfs_base::Result<()> {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().unwrap_or_else(|| "durable_write.img".into()));
    let rounds = args.next().and_then(|n| n.parse().ok()).unwrap_or(2000);
    preallocate(&path, SIZE)?;
    let d = open_exclusive(&path, true, FileOptions::default())?;
    zero_fill(&d, 0, SIZE)?;
    d.flush()?;
    drop(d);
    for _ in 0..2 {
        durable(&path, rounds, 4096)?;
        durable(&path, rounds, 8192)?;
    }
    for uring in [true, false] {
        let options = FileOptions { uring, ..Default::default() };
        batches(&open_exclusive(&path, true, options)?, rounds / 10);
    }
    std::fs::remove_file(&path).ok();
    Ok(())
}
