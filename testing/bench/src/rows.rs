//! What is measured: the rows of the table, each written once for every system.

use crate::neighbour::Neighbour;
use crate::system::{BLOCK, Handle, Mode, System};
use std::io;

/// What a row's number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Time of one operation; less is better.
    Latency,
    /// Operations of all threads together in a second; more is better.
    Operations,
    /// MiB in a second; more is better.
    Bytes,
}

/// How a row is measured.
#[derive(Clone, Copy)]
pub enum Kind {
    /// One operation after the other, each with its own latency.
    Each(Operation),
    /// Four threads overwrite 4 KiB and fsync; on one file if `shared`.
    Threads { shared: bool },
    /// Random 4 KiB reads of a file that is cached.
    WarmReads,
    /// A large file written from begin to end, and fsynced.
    StreamWrite,
    /// A large file read from begin to end, nothing of it cached.
    StreamRead,
    /// `tar -x` of a generated tree.
    Untar,
    /// [`Kind::Each`] while another process works without fsync.
    Beside(Operation, Neighbour),
}

/// An operation of a row on files prepared beforehand; `n` counts from 0.
pub type Operation = fn(&Files, n: u64) -> io::Result<()>;

/// A row.
pub struct Row {
    /// Short name, for the command line and JSON.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// How.
    pub kind: Kind,
    /// What its number is.
    pub metric: Metric,
    /// The ratio to ext4 that SiftFS through FUSE is designed for: of times at most, of rates at
    /// least.
    pub target: Option<f64>,
}

impl Row {
    /// Whether it has a floor: a number of synchronous direct writes that do as much.
    pub fn has_floor(&self) -> bool {
        matches!(self.kind, Kind::Each(_))
    }
}

/// Ratio to the floor that an embedded fsync is designed for, at most.
pub const EMBEDDED_TARGET: f64 = 1.15;

/// Every row, in the table's order.
pub const ROWS: [Row; 16] = [
    latency("overwrite-4k", "overwrite 4 KiB, fsync", overwrite, Some(1.0)),
    latency("append-512", "append 512 bytes, fsync", append, Some(0.8)),
    latency("create-4k", "create, write 4 KiB, fsync", create, Some(0.7)),
    latency("create-4k-dir", "the same, fsync of the directory", create_and_directory, Some(0.4)),
    latency("replace", "replace by rename, fsync of the directory", replace, Some(0.55)),
    latency("dsync-4k", "4 KiB with O_DSYNC", write_durable, None),
    rate("threads-own", "4 threads, a file each", Kind::Threads { shared: false }, Some(1.3)),
    rate("threads-shared", "4 threads, one file", Kind::Threads { shared: true }, None),
    rate("read-warm-4k", "4 KiB reads, cached", Kind::WarmReads, Some(0.9)),
    bytes("stream-write", "write a large file, fsync", Kind::StreamWrite),
    bytes("stream-read", "read a large file, not cached", Kind::StreamRead),
    rate("untar", "untar, files", Kind::Untar, Some(0.7)),
    latency("small-quiet", "overwrite 4 KiB, fsync, quiet", overwrite, None),
    beside("small-beside", "the same beside a stream without fsync", Neighbour::Stream),
    beside("small-beside-scatter", "the same beside scattered writes", Neighbour::Scatter),
    beside("small-beside-litter", "the same beside files made and removed", Neighbour::Litter),
];

const fn beside(name: &'static str, what: &'static str, neighbour: Neighbour) -> Row {
    latency_of(name, what, Kind::Beside(overwrite, neighbour), None)
}

const fn latency(
    name: &'static str,
    what: &'static str,
    operation: Operation,
    target: Option<f64>,
) -> Row {
    latency_of(name, what, Kind::Each(operation), target)
}

const fn latency_of(
    name: &'static str,
    what: &'static str,
    kind: Kind,
    target: Option<f64>,
) -> Row {
    Row { name, what, kind, metric: Metric::Latency, target }
}

const fn rate(name: &'static str, what: &'static str, kind: Kind, target: Option<f64>) -> Row {
    Row { name, what, kind, metric: Metric::Operations, target }
}

const fn bytes(name: &'static str, what: &'static str, kind: Kind) -> Row {
    Row { name, what, kind, metric: Metric::Bytes, target: Some(0.9) }
}

/// Blocks of the file that is overwritten.
pub const FULL_BLOCKS: u64 = 64;

/// The files that operations work on, in a directory of their own.
pub struct Files<'s> {
    system: &'s dyn System,
    dir: &'static str,
    full: Box<dyn Handle>,
    growing: Box<dyn Handle>,
    durable: Box<dyn Handle>,
}

impl<'s> Files<'s> {
    /// Makes the directory and the files, durably.
    pub fn prepare(system: &'s dyn System, dir: &'static str) -> io::Result<Self> {
        system.make_dir(dir)?;
        let data = vec![1; usize::try_from(FULL_BLOCKS).unwrap_or(1) * BLOCK];
        for name in ["full", "durable", "growing", "target"] {
            let file = system.open(&format!("{dir}/{name}"), Mode::Create)?;
            if name != "growing" {
                file.write_at(0, &data)?;
            }
            file.sync()?;
        }
        system.sync_dir(dir)?;
        let open = |name, mode| system.open(&format!("{dir}/{name}"), mode);
        Ok(Self {
            system,
            dir,
            full: open("full", Mode::Open)?,
            growing: open("growing", Mode::Open)?,
            durable: open("durable", Mode::Durable)?,
        })
    }
}

fn block(n: u64) -> [u8; BLOCK] {
    [n.to_le_bytes()[0]; BLOCK]
}

fn place(n: u64) -> u64 {
    n % FULL_BLOCKS * BLOCK as u64
}

fn overwrite(files: &Files, n: u64) -> io::Result<()> {
    files.full.write_at(place(n), &block(n))?;
    files.full.sync()
}

fn append(files: &Files, n: u64) -> io::Result<()> {
    files.growing.write_at(n * 512, &block(n)[..512])?;
    files.growing.sync()
}

fn new_file(files: &Files, path: &str, n: u64) -> io::Result<()> {
    let file = files.system.open(path, Mode::Create)?;
    file.write_at(0, &block(n))?;
    file.sync()
}

fn create(files: &Files, n: u64) -> io::Result<()> {
    new_file(files, &format!("{}/new-{n}", files.dir), n)
}

fn create_and_directory(files: &Files, n: u64) -> io::Result<()> {
    create(files, n)?;
    files.system.sync_dir(files.dir)
}

fn replace(files: &Files, n: u64) -> io::Result<()> {
    let temporary = format!("{}/temporary", files.dir);
    new_file(files, &temporary, n)?;
    files.system.rename(&temporary, &format!("{}/target", files.dir))?;
    files.system.sync_dir(files.dir)
}

fn write_durable(files: &Files, n: u64) -> io::Result<()> {
    files.durable.write_at(place(n), &block(n))
}
