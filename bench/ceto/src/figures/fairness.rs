//! The fsync of a file beside a queue that another program keeps full.

use crate::Plan;
use crate::stage::{Stage, said};
use siftfs::{DirectFile, File, Volume};
use siftfs_base::Rng;
use siftfs_rig::figure::Output;
use siftfs_rig::fresh::refresh;
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::table::{Compared, Row, Side, Target, show};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of the volume, of each file, and of the host's page cache.
const VOLUME: u64 = 512 << 20;
const SIZE: u64 = 16 << 20;
const CACHE: u64 = 64 << 20;
/// Bytes of a write with its fsync, and of a write that fills the queue.
const SMALL: usize = 4096;
const LARGE: usize = 64 << 10;
/// Threads that fill the queue, and how long until the file's blocks are granted.
const THREADS: u64 = 4;
const GRANTED: Duration = Duration::from_secs(30);

/// By round: median and 99th percentile in microseconds.
#[derive(Default)]
struct Times {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

/// Writes with fsyncs of one program, by the host.
fn fsyncs(volume: &Volume, file: &File, time: Duration, times: &mut Times) -> Result<()> {
    let (mut rng, mut data, mut all) = (Rng::new(1), [0; SMALL], Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < time {
        let at = rng.below(SIZE / SMALL as u64) * SMALL as u64;
        let now = Instant::now();
        let mut steps = volume.compound();
        steps.write(file, at, refresh(&mut data));
        steps.durable().map_err(said)?;
        all.push(now.elapsed().as_secs_f64() * 1e6);
    }
    all.sort_by(f64::total_cmp);
    let at = |part: usize| all.get(all.len() * part / 100).copied().unwrap_or_default();
    times.p50.push(at(50));
    times.p99.push(at(99));
    Ok(())
}

/// Keeps the queue of a file full, until it is told to end. How many MiB a second that were.
fn beside<T>(file: &DirectFile, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let fill = |thread: u64| -> siftfs::Result<()> {
        let (mut rng, mut data) = (Rng::new(thread), vec![0; LARGE]);
        while !over.load(Ordering::Relaxed) {
            let at = rng.below(SIZE / LARGE as u64) * LARGE as u64;
            file.write_durable_at(at, refresh(&mut data))?;
            written.fetch_add(LARGE as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    let begun = Instant::now();
    thread::scope(|scope| {
        let fill = &fill;
        let threads: Vec<_> = (0..THREADS).map(|at| scope.spawn(move || fill(at))).collect();
        let done = work();
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a thread asserts nothing").map_err(said)?;
        }
        let mebibytes = written.load(Ordering::Relaxed) as f64 / f64::from(1 << 20);
        Ok((done?, mebibytes / begun.elapsed().as_secs_f64()))
    })
}

fn fill(mut write: impl FnMut(u64, &[u8]) -> siftfs::Result<()>) -> Result<()> {
    let mut piece = vec![0; 1 << 20];
    (0..SIZE).step_by(piece.len()).try_for_each(|at| write(at, refresh(&mut piece))).map_err(said)
}

/// Measures it.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let stage = Stage::host(plan, "fairness", VOLUME, CACHE)?;
    let (session, volume) = (stage.direct()?, stage.volume()?);
    let file = volume.create("/unrelated", 0o600).map_err(said)?;
    fill(|at, data| file.write_at(at, data))?;
    let full = session.create("/saturated", 0o600).map_err(said)?;
    fill(|at, data| full.write_at(at, data))?;
    full.sync_all().map_err(said)?;
    volume.checkpoint().map_err(said)?;
    let begun = Instant::now();
    while !full.is_direct() {
        if begun.elapsed() > GRANTED {
            return Err(Failed("the host grants nothing of the file".into()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    let (mut alone, mut busy, mut filled) = (Times::default(), Times::default(), Vec::new());
    for round in plan.rounds() {
        for at in 0..2 {
            if (at + round) % 2 == 0 {
                fsyncs(&volume, &file, plan.time, &mut alone)?;
            } else {
                let work = || fsyncs(&volume, &file, plan.time, &mut busy);
                filled.push(beside(&full, work)?.1);
            }
        }
    }
    drop((full, session, file));
    volume.close().map_err(said)?;
    stage.end()?;
    let rows = [
        row("p99", alone.p99, busy.p99, Some(Target::AtMost(3.0))),
        row("median", alone.p50, busy.p50, None),
        Row {
            name: "what fills the queue: 64 KiB, durable, by 4 threads".into(),
            unit: "MiB/s",
            sides: vec![Side::new("direct file", filled)],
            compared: Vec::new(),
        },
    ];
    Ok(show(
        &rows,
        &plan.below(
            "A program overwrites 4 KiB of its file by the host, each with its fsync in one compound, while another \
             session's file is overwritten at the same target. Five threads and three processes share this machine's \
             processors. The paper does not measure this",
        ),
    ))
}

fn row(what: &str, alone: Vec<f64>, busy: Vec<f64>, target: Option<Target>) -> Row {
    let compared = vec![Compared::ratio("beside it to alone", &busy, &alone, target)];
    Row {
        name: format!("4 KiB and its fsync, {what}"),
        unit: "us",
        sides: vec![Side::new("alone", alone), Side::new("beside a saturated queue", busy)],
        compared,
    }
}
