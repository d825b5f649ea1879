//! One cell: one job on one system in one round.

use crate::area::{CHUNK, Inputs, Measured, Probe, THREADS, WorkArea, io_error, rate};
use crate::counts::{Counts, Disk};
use crate::helper::BusyLoops;
use crate::library::{device_bytes, loaded, pgbench};
use crate::neighbour::{self, Neighbour};
use crate::operations::{FULL_BLOCKS, Files, Operation};
use crate::programs::Program;
use crate::rows::{Job, Kind};
use crate::system::{BLOCK, Floor, Handle, Mode, System, any_block};
use crate::{pressure, tree, varmail};
use siftfs_rig::fresh::{fresh, refresh};
use siftfs_rig::place::{Result, failed};
use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The cell's directory on each system, removed after it.
const DIR: &str = "cell";
/// Bytes of the file whose reads are cached.
const WARM_BYTES: u64 = 16 << 20;
/// Reads between two reads of the clock.
const READ_BATCH: u64 = 256;
/// How long a neighbour or a busy loop works before anything beside it is measured.
const LEAD: Duration = Duration::from_millis(300);
/// Bytes of a file that is written in small pieces.
const BUFFERED_BYTES: u64 = 32 << 20;
/// A cell of fixed size is stopped after this many times the time of the others.
const PATIENCE: u32 = 3;
/// The window of the pressure workload is at least so long: fsyncs of the background are rare.
const PRESSURE: Duration = Duration::from_secs(1);
/// A program of the tree is stopped after this many times the time of the others.
const TREE_PATIENCE: u32 = 15;

/// How much.
pub struct Amount {
    /// Of a cell that can be stopped at any time.
    pub time: Duration,
    /// Bytes of the large file, a multiple of [`CHUNK`].
    pub stream_bytes: u64,
}

/// Measures a job on a system that was settled before: one result per row. `None`: it does not
/// exist there. The caller cleans up with [`clear`].
pub fn measure(
    job: &Job,
    probe: &Probe,
    amount: &Amount,
    inputs: &Inputs,
) -> Result<Option<Vec<Measured>>> {
    let one = |measured: io::Result<Measured>| measured.map(|m| vec![m]);
    let measured = match job.kind {
        Kind::Each(operation) => one(each(probe, operation, amount.time)),
        Kind::Threads { shared } => one(threads(probe, shared, amount.time)),
        Kind::WarmReads => one(warm_reads(probe, amount.time)),
        Kind::StreamWrite => one(stream_write(probe, amount.stream_bytes)),
        Kind::StreamRead => one(stream_read(probe, amount.stream_bytes)),
        Kind::Beside(operation, who) => one(beside(probe, operation, who, amount)),
        Kind::Program { .. }
        | Kind::Buffered(_)
        | Kind::Tree
        | Kind::Varmail
        | Kind::ProgramBeside(..)
        | Kind::Loaded(_)
        | Kind::Pgbench
        | Kind::Written { .. }
        | Kind::Pressure(_) => {
            let Some(dir) = probe.system.directory() else { return Ok(None) };
            if matches!(job.kind, Kind::Pgbench) && inputs.postgres.is_none() {
                return Ok(None);
            }
            probe.system.make_dir(DIR).map_err(failed(job.name()))?;
            in_area(job.kind, &WorkArea { dir: dir.join(DIR), inputs, probe }, amount.time)
        }
    };
    measured.map(Some).map_err(failed(job.name()))
}

/// What only exists on a mounted system.
fn in_area(kind: Kind, area: &WorkArea, time: Duration) -> io::Result<Vec<Measured>> {
    match kind {
        Kind::Program { program, busy: false } => Ok(vec![program.measure(area, time)?]),
        Kind::Program { program, busy: true } => Ok(vec![beside_loops(program, area, time)?]),
        Kind::ProgramBeside(program, who) => Ok(vec![program_beside(program, who, area, time)?]),
        Kind::Buffered(piece) => Ok(vec![buffered(area, piece, time * PATIENCE)?]),
        Kind::Tree => tree::measure(area, time * TREE_PATIENCE),
        Kind::Varmail => Ok(vec![varmail::measure(area, time)?]),
        Kind::Pressure(interval) => pressure::measure(area, interval, time.max(PRESSURE)),
        Kind::Loaded(what) => loaded::measure(what, area, time),
        Kind::Pgbench => Ok(vec![pgbench::measure(area, time)?]),
        Kind::Written { program, durable } => {
            Ok(vec![device_bytes::measure(program, durable, area)?])
        }
        _ => Err(io::Error::other("not a job of programs")),
    }
}

fn beside_loops(program: Program, area: &WorkArea, time: Duration) -> io::Result<Measured> {
    let loops = BusyLoops::start().map_err(io_error)?;
    std::thread::sleep(LEAD);
    let measured = program.measure(area, time)?;
    loops.stop().map_err(io_error)?;
    Ok(measured)
}

fn program_beside(
    program: Program,
    neighbour: Neighbour,
    area: &WorkArea,
    time: Duration,
) -> io::Result<Measured> {
    let process = neighbour::start(neighbour, &area.dir, CHUNK as u64).map_err(io_error)?;
    std::thread::sleep(LEAD);
    let measured = program.measure(area, time)?;
    process.stop().map_err(io_error)?;
    Ok(measured)
}

/// Pieces of a new file until it is whole or the time is over, and one fsync.
fn buffered(area: &WorkArea, piece: usize, limit: Duration) -> io::Result<Measured> {
    let mut file = File::create_new(area.dir.join("buffered"))?;
    let mut data = vec![0; piece];
    area.count(|| {
        let (start, mut written) = (Instant::now(), 0);
        while written < BUFFERED_BYTES / piece as u64 && start.elapsed() < limit {
            file.write_all(refresh(&mut data))?;
            written += 1;
        }
        file.sync_all()?;
        Ok(rate(written, start.elapsed()))
    })
}

/// Removes what a cell made, so that the next one starts in an empty directory.
pub fn clear(system: &dyn System) -> Result<()> {
    system.remove_all(DIR).map_err(failed("removing a cell's files"))?;
    system.settle()
}

/// The floor's cell: `writes` direct writes of `bytes` together as one operation.
pub fn measure_floor(
    floor: &mut Floor,
    (writes, bytes): (u64, usize),
    disk: &Disk,
    time: Duration,
) -> Result<Measured> {
    let before = disk.read();
    let measured = timed(time, |_| floor.write(writes, bytes));
    let measured = measured.map_err(failed("synchronous direct write"))?;
    let disk = disk.read().zip(before).map(|(after, before)| after.since(&before));
    Ok(Measured { counts: Counts { disk, ..Counts::default() }, ..measured })
}

fn timed(time: Duration, mut operation: impl FnMut(u64) -> io::Result<()>) -> io::Result<Measured> {
    let mut nanos = Vec::new();
    let start = Instant::now();
    for n in 0.. {
        let begin = Instant::now();
        operation(n)?;
        nanos.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if start.elapsed() >= time {
            break;
        }
    }
    let operations = nanos.len() as u64;
    Ok(Measured { nanos, operations, ..Measured::default() })
}

fn each(probe: &Probe, operation: Operation, time: Duration) -> io::Result<Measured> {
    let files = Files::prepare(probe.system, DIR)?;
    probe.count(|| timed(time, |n| operation(&files, n)))
}

fn threads(probe: &Probe, shared: bool, time: Duration) -> io::Result<Measured> {
    let system = probe.system;
    system.make_dir(DIR)?;
    let blocks = FULL_BLOCKS / THREADS;
    let mut files = Vec::new();
    for thread in 0..THREADS {
        let path = format!("{DIR}/{}", if shared { 0 } else { thread });
        let mode = if shared && thread > 0 { Mode::Open } else { Mode::Create };
        let file = system.open(&path, mode)?;
        file.write_at(thread * blocks * BLOCK as u64, &vec![1; blocks as usize * BLOCK])?;
        file.sync()?;
        files.push(file);
    }
    probe.count(|| overwrite_together(&files, time))
}

/// Each file's thread overwrites its own part of it and syncs.
fn overwrite_together(files: &[Box<dyn Handle>], time: Duration) -> io::Result<Measured> {
    let blocks = FULL_BLOCKS / THREADS;
    let start = Instant::now();
    let work = |thread: u64, file: &dyn Handle| -> io::Result<u64> {
        let mut n = 0;
        while start.elapsed() < time {
            let at = (thread * blocks + n % blocks) * BLOCK as u64;
            file.write_at(at, &fresh::<BLOCK>())?;
            file.sync()?;
            n += 1;
        }
        Ok(n)
    };
    let operations = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .zip(files)
            .map(|(thread, file)| scope.spawn(move || work(thread, file.as_ref())))
            .collect();
        let panicked = |_| Err(io::Error::other("a worker panicked"));
        let done = workers.into_iter().map(|w| w.join().unwrap_or_else(panicked));
        done.sum::<io::Result<u64>>()
    })?;
    Ok(rate(operations, start.elapsed()))
}

fn write_file(system: &dyn System, path: &str, bytes: u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let file = system.open(path, Mode::Create)?;
    for at in (0..bytes).step_by(CHUNK) {
        file.write_at(at, refresh(&mut chunk))?;
    }
    file.sync()
}

fn warm_reads(probe: &Probe, time: Duration) -> io::Result<Measured> {
    let system = probe.system;
    system.make_dir(DIR)?;
    let path = format!("{DIR}/warm");
    write_file(system, &path, WARM_BYTES)?;
    let file = system.open(&path, Mode::Open)?;
    let mut block = [0; BLOCK];
    for at in (0..WARM_BYTES).step_by(BLOCK) {
        file.read_at(at, &mut block)?;
    }
    probe.count(|| random_reads(file.as_ref(), time))
}

fn random_reads(file: &dyn Handle, time: Duration) -> io::Result<Measured> {
    let mut block = [0; BLOCK];
    let (mut operations, mut random) = (0, 1u64);
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..READ_BATCH {
            file.read_at(any_block(&mut random, WARM_BYTES), &mut block)?;
        }
        operations += READ_BATCH;
    }
    Ok(rate(operations, start.elapsed()))
}

fn stream(bytes: u64, time: Duration) -> Measured {
    rate(bytes / CHUNK as u64, time)
}

fn stream_write(probe: &Probe, bytes: u64) -> io::Result<Measured> {
    probe.system.make_dir(DIR)?;
    probe.count(|| {
        let start = Instant::now();
        write_file(probe.system, &format!("{DIR}/stream"), bytes)?;
        Ok(stream(bytes, start.elapsed()))
    })
}

fn stream_read(probe: &Probe, bytes: u64) -> io::Result<Measured> {
    let system = probe.system;
    let path = format!("{DIR}/stream");
    system.make_dir(DIR)?;
    write_file(system, &path, bytes)?;
    system.settle().and_then(|()| system.forget()).map_err(io_error)?;
    probe.count(|| {
        let mut chunk = vec![0; CHUNK];
        let start = Instant::now();
        let file = system.open(&path, Mode::Open)?;
        for at in (0..bytes).step_by(CHUNK) {
            file.read_at(at, &mut chunk)?;
        }
        Ok(stream(bytes, start.elapsed()))
    })
}

/// The neighbour is a process of its own where one can reach the file system, else a thread.
fn beside(
    probe: &Probe,
    operation: Operation,
    neighbour: Neighbour,
    amount: &Amount,
) -> io::Result<Measured> {
    let (system, bytes) = (probe.system, amount.stream_bytes);
    let files = Files::prepare(system, DIR)?;
    let work = || {
        std::thread::sleep(LEAD);
        probe.count(|| timed(amount.time, |n| operation(&files, n)))
    };
    if let Some(dir) = system.directory() {
        let process = neighbour::start(neighbour, &dir.join(DIR), bytes).map_err(io_error)?;
        let measured = work();
        process.stop().map_err(io_error)?;
        return measured;
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| neighbour.work(system, DIR, bytes, &stop));
        let measured = work();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let worked = worker.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
        worked.and(measured)
    })
}
