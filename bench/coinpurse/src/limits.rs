//! What a record area must not cost: a small fsync beside bulk, an area that is full, and recovery.

use crate::side::{BYTES, media};
use serde_json::{Value, json};
use siftfs::{OpenOptions, Result, Threads, Volume};
use siftfs_base::{Rng, SystemClock};
use siftfs_placement::{LocalVolume, Media};
use siftfs_rig::fresh::{fresh, refresh};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the file that small fsyncs overwrite.
const FILE: u64 = 4 << 20;
/// Bytes that the bulk writer writes before each fsync.
const BULK: usize = 1 << 20;
/// Bytes of an area that is always full: the least there is.
const SMALL: u64 = 260 << 10;
/// Bytes of the area that is recovered.
const LARGE: u64 = 64 << 20;

fn open(media: Media, options: &OpenOptions, threads: Threads) -> Result<Volume> {
    let clock = Arc::new(SystemClock::default());
    LocalVolume::open_on(media, clock, options, threads).and_then(Volume::from_local)
}

fn prepare(volume: &Volume) -> Result<siftfs::File> {
    let file = volume.create("/small", 0o644)?;
    (0..FILE >> 20).try_for_each(|i| file.write_at(i << 20, &[0; 1 << 20]))?;
    file.sync_all()?;
    volume.checkpoint()?;
    Ok(file)
}

/// Times of overwrites of this many bytes with an fsync each, in microseconds, ascending.
fn overwrites(
    file: &siftfs::File,
    bytes: usize,
    time: Duration,
    rng: &mut Rng,
) -> Result<Vec<f64>> {
    let mut data = vec![0; bytes];
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let one = Instant::now();
        file.write_at(rng.below(FILE / 4096) * 4096, refresh(&mut data))?;
        file.sync_all()?;
        times.push(one.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() as f64 * q) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// p99 of 4 KiB and an fsync beside a thread that writes bulk to this file, in microseconds.
fn beside(file: &siftfs::File, bulk: &siftfs::File, time: Duration, rng: &mut Rng) -> Result<f64> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            let mut data = vec![0; BULK];
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                bulk.write_at(n % 64 * BULK as u64, refresh(&mut data))?;
                bulk.sync_all()?;
                n += 1;
            }
            Ok(())
        });
        let times = overwrites(file, 4096, time, rng);
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap_or(Ok(()))?;
        Ok(quantile(&times?, 0.99))
    })
}

/// 4 KiB and an fsync in the area, alone, beside a writer of bulk on the block lane, and beside one
/// on another volume, with which they share the machine alone: p99 of each, in turn.
fn beside_bulk(disk: &Path, memory: &Path, rounds: u32, time: Duration) -> Result<Value> {
    let options = OpenOptions::default();
    let volume = open(media(disk, memory, "beside", Some(LARGE))?, &options, Threads::Real)?;
    let other = open(media(disk, memory, "other", None)?, &options, Threads::Real)?;
    let file = prepare(&volume)?;
    let bulks = [&volume, &other].map(|volume| volume.create("/bulk", 0o644));
    let [bulk, elsewhere] = bulks;
    let (bulk, elsewhere) = (bulk?, elsewhere?);
    let mut rng = Rng::new(2);
    let mut all: [Vec<f64>; 5] = Default::default();
    for _ in 0..rounds {
        let alone = quantile(&overwrites(&file, 4096, time, &mut rng)?, 0.99);
        let here = beside(&file, &bulk, time, &mut rng)?;
        let there = beside(&file, &elsewhere, time, &mut rng)?;
        let row = [alone, here, there, here / alone, there / alone];
        all.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    drop((file, bulk, elsewhere));
    volume.close()?;
    other.close()?;
    let [alone, here, there, ratio, machine] = all.map(|mut column| middle(&mut column));
    Ok(json!({
        "p99_us_alone": alone,
        "p99_us_beside_bulk": here,
        "p99_us_beside_bulk_of_another_volume": there,
        "ratio": ratio,
        "ratio_of_another_volume": machine,
        "target": 3,
    }))
}

fn middle(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    quantile(numbers, 0.5)
}

/// An area that is full again as soon as it has room, beside a volume without one: rates, in turn.
/// An fsync that fails ends the measurement.
fn always_full(disk: &Path, memory: &Path, rounds: u32, time: Duration) -> Result<Value> {
    let options = OpenOptions::default();
    let full = open(media(disk, memory, "full", Some(SMALL))?, &options, Threads::Real)?;
    let without = open(media(disk, memory, "without", None)?, &options, Threads::Real)?;
    let files = (prepare(&full)?, prepare(&without)?);
    let mut rng = Rng::new(3);
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let a = overwrites(&files.0, BYTES, time, &mut rng)?.len();
        let b = overwrites(&files.1, BYTES, time, &mut rng)?.len();
        ratios.push(a as f64 / b as f64);
    }
    let d = full.status()?.runtime.dispatch;
    drop(files);
    full.close()?;
    without.close()?;
    let elsewhere = d.elsewhere.get("full").copied().unwrap_or_default();
    Ok(json!({
        "rate_to_block_lane": middle(&mut ratios),
        "target": 0.95,
        "fsyncs": d.all.records,
        "of_them_without_room": elsewhere,
    }))
}

/// Recovery of a volume whose area is full.
fn recovery(disk: &Path, memory: &Path) -> Result<Value> {
    let media = media(disk, memory, "recovery", Some(LARGE))?;
    let options = OpenOptions { commit_ms: 3_600_000, low_watermark: 1, ..OpenOptions::default() };
    let volume = open(media.clone(), &options, Threads::None)?;
    let file = prepare(&volume)?;
    let mut rng = Rng::new(4);
    loop {
        for _ in 0..6 {
            file.write_at(rng.below(FILE / 4096) * 4096, &fresh::<2000>())?;
        }
        file.sync_all()?;
        let status = volume.status()?.runtime;
        if status.dispatch.elsewhere.contains_key("full") || status.dispatch.all.records > 20_000 {
            break;
        }
    }
    let bytes = volume.status()?.log.lanes.last().map(|lane| lane.used).unwrap_or_default();
    drop(file);
    volume.abandon();
    let start = Instant::now();
    let volume = open(media, &options, Threads::None)?;
    let seconds = start.elapsed().as_secs_f64();
    volume.close()?;
    Ok(json!({"seconds": seconds, "bytes_in_the_area": bytes, "target": 1}))
}

/// All of them.
pub fn measure(disk: &Path, memory: &Path, rounds: u32, time: Duration) -> Result<Value> {
    Ok(json!({
        "beside_bulk": beside_bulk(disk, memory, rounds, time)?,
        "always_full": always_full(disk, memory, rounds, time)?,
        "recovery": recovery(disk, memory)?,
    }))
}
