//! One cell: one row on one system in one round.

use crate::rows::{FULL_BLOCKS, Files, Kind, Operation, Row};
use crate::stream::Stream;
use crate::system::{BLOCK, Floor, Handle, Mode, System};
use crate::tree::Archive;
use siftfs_rig::place::{Result, failed};
use std::io;
use std::time::{Duration, Instant};

/// The cell's directory on each system, removed after it.
const DIR: &str = "cell";
const THREADS: u64 = 4;
/// Bytes of the file whose reads are cached.
const WARM_BYTES: u64 = 16 << 20;
/// Reads between two looks at the clock.
const READ_BATCH: u64 = 256;
/// Bytes of one write or read of a stream.
pub const CHUNK: usize = 1 << 20;
/// What a stream wrote before latencies beside it are taken.
const STREAM_LEAD: Duration = Duration::from_millis(300);

/// What a cell found.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Nanoseconds of each operation, for rows of latencies.
    pub nanos: Vec<u64>,
    /// Operations or bytes in a second, for the others.
    pub rate: f64,
    /// Operations done; for streams, megabytes.
    pub operations: u64,
}

/// How much.
pub struct Amount {
    /// Of a cell that can be stopped at any time.
    pub time: Duration,
    /// Bytes of the large file, a multiple of [`CHUNK`].
    pub stream_bytes: u64,
}

/// Measures a row on a system that was settled before. `None`: the row does not exist there.
/// The caller cleans up with [`clear`], which must not be counted.
pub fn measure(
    row: &Row,
    system: &dyn System,
    amount: &Amount,
    archive: &Archive,
) -> Result<Option<Measured>> {
    let what = |e: io::Error| failed(row.name)(e);
    match row.kind {
        Kind::Each(operation) => each(system, operation, amount.time).map(Some).map_err(what),
        Kind::Threads { shared } => threads(system, shared, amount.time).map(Some).map_err(what),
        Kind::WarmReads => warm_reads(system, amount.time).map(Some).map_err(what),
        Kind::StreamWrite => stream_write(system, amount.stream_bytes).map(Some).map_err(what),
        Kind::StreamRead => stream_read(system, amount.stream_bytes).map(Some),
        Kind::Untar => match system.directory() {
            Some(dir) => archive.unpack(&dir.join(DIR)).map(Some),
            None => Ok(None),
        },
        Kind::BesideStream(operation) => beside(system, operation, amount).map(Some),
    }
}

/// Removes what a cell made, so that the next one starts in an empty directory.
pub fn clear(system: &dyn System) -> Result<()> {
    system.remove_all(DIR).map_err(failed("removing a cell's files"))?;
    system.settle()
}

/// The floor's cell: `writes` direct writes of `bytes` as one operation.
pub fn measure_floor(
    floor: &mut Floor,
    (writes, bytes): (u64, usize),
    time: Duration,
) -> Result<Measured> {
    let operation = |_| floor.write(writes, bytes);
    timed(time, operation).map_err(failed("synchronous direct write"))
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
    Ok(Measured { nanos, rate: 0.0, operations })
}

fn each(system: &dyn System, operation: Operation, time: Duration) -> io::Result<Measured> {
    let files = Files::prepare(system, DIR)?;
    timed(time, |n| operation(&files, n))
}

fn per_second(operations: u64, time: Duration) -> f64 {
    operations as f64 / time.as_secs_f64()
}

fn threads(system: &dyn System, shared: bool, time: Duration) -> io::Result<Measured> {
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
    let start = Instant::now();
    let work = |thread: u64, file: &dyn Handle| -> io::Result<u64> {
        let mut n = 0;
        while start.elapsed() < time {
            let at = (thread * blocks + n % blocks) * BLOCK as u64;
            file.write_at(at, &[n.to_le_bytes()[0]; BLOCK])?;
            file.sync()?;
            n += 1;
        }
        Ok(n)
    };
    let operations = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .zip(&files)
            .map(|(thread, file)| scope.spawn(move || work(thread, file.as_ref())))
            .collect();
        let done = workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked"))));
        done.sum::<io::Result<u64>>()
    })?;
    Ok(Measured { nanos: Vec::new(), rate: per_second(operations, start.elapsed()), operations })
}

fn write_file(system: &dyn System, path: &str, bytes: u64) -> io::Result<()> {
    let chunk = vec![5; CHUNK];
    let file = system.open(path, Mode::Create)?;
    for at in (0..bytes).step_by(CHUNK) {
        file.write_at(at, &chunk)?;
    }
    file.sync()
}

fn warm_reads(system: &dyn System, time: Duration) -> io::Result<Measured> {
    system.make_dir(DIR)?;
    let path = format!("{DIR}/warm");
    write_file(system, &path, WARM_BYTES)?;
    let file = system.open(&path, Mode::Open)?;
    let mut block = [0; BLOCK];
    for at in (0..WARM_BYTES).step_by(BLOCK) {
        file.read_at(at, &mut block)?;
    }
    let (mut operations, mut random) = (0, 1u64);
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..READ_BATCH {
            // Any full-period generator will do: the blocks are to come in no order.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) % (WARM_BYTES / BLOCK as u64) * BLOCK as u64;
            file.read_at(at, &mut block)?;
        }
        operations += READ_BATCH;
    }
    Ok(Measured { nanos: Vec::new(), rate: per_second(operations, start.elapsed()), operations })
}

fn stream(bytes: u64, time: Duration) -> Measured {
    let rate = per_second(bytes, time);
    Measured { nanos: Vec::new(), rate, operations: bytes / CHUNK as u64 }
}

fn stream_write(system: &dyn System, bytes: u64) -> io::Result<Measured> {
    system.make_dir(DIR)?;
    let start = Instant::now();
    write_file(system, &format!("{DIR}/stream"), bytes)?;
    Ok(stream(bytes, start.elapsed()))
}

fn stream_read(system: &dyn System, bytes: u64) -> Result<Measured> {
    let what = || failed("stream-read");
    let path = format!("{DIR}/stream");
    system.make_dir(DIR).map_err(what())?;
    write_file(system, &path, bytes).map_err(what())?;
    system.settle()?;
    system.forget(&path)?;
    let mut chunk = vec![0; CHUNK];
    let start = Instant::now();
    let file = system.open(&path, Mode::Open).map_err(what())?;
    for at in (0..bytes).step_by(CHUNK) {
        file.read_at(at, &mut chunk).map_err(what())?;
    }
    Ok(stream(bytes, start.elapsed()))
}

/// The stream is a process of its own where one can reach the file system, else a thread.
fn beside(system: &dyn System, operation: Operation, amount: &Amount) -> Result<Measured> {
    let files = Files::prepare(system, DIR).map_err(failed("small-beside"))?;
    let measured = match system.directory() {
        Some(dir) => {
            let stream = Stream::start(&dir.join(DIR).join("stream"), amount.stream_bytes)?;
            std::thread::sleep(STREAM_LEAD);
            let measured = timed(amount.time, |n| operation(&files, n));
            stream.stop()?;
            measured
        }
        None => {
            let path = format!("{DIR}/stream");
            let file = system.open(&path, Mode::Create).map_err(failed("small-beside"))?;
            beside_thread(file.as_ref(), amount, || timed(amount.time, |n| operation(&files, n)))
        }
    };
    measured.map_err(failed("small-beside"))
}

fn beside_thread(
    file: &dyn Handle,
    amount: &Amount,
    work: impl FnOnce() -> io::Result<Measured>,
) -> io::Result<Measured> {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| crate::stream::write(file, amount.stream_bytes, &stop));
        std::thread::sleep(STREAM_LEAD);
        let measured = work();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let streamed = writer.join().unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
        streamed.and(measured)
    })
}
