//! What is measured: the rows of the table, and the jobs that measure one or several of them on one
//! system at a time.

use crate::library::loaded::Loaded;
use crate::neighbour::Neighbour;
use crate::operations::{
    Operation, append_4k, append_512, create, create_and_directory, overwrite, publish_16, replace,
    write_durable,
};
use crate::pressure;
use crate::programs::Program;
use crate::row::{Metric, Row};
use crate::tree;

/// How a job's rows are measured.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A program that syncs, with or without two busy loops beside it.
    Program {
        /// Which.
        program: Program,
        /// Beside busy loops.
        busy: bool,
    },
    /// One operation after the other, each with its own latency.
    Each(Operation),
    /// Four threads overwrite 4 KiB and fsync; on one file if `shared`.
    Threads {
        /// One file for all.
        shared: bool,
    },
    /// A new file written in pieces of this many bytes, with one fsync at the end.
    Buffered(usize),
    /// Everything with a tree of 18,500 files ([`tree::ROWS`]).
    Tree,
    /// A large file written from begin to end, and fsynced.
    StreamWrite,
    /// A large file read from begin to end, nothing of it cached.
    StreamRead,
    /// Random 4 KiB reads of a file that is cached.
    WarmReads,
    /// Four threads that handle mail.
    Varmail,
    /// SIFT's pressure workload ([`pressure`]), and its background writes for each fsync.
    Pressure(u64),
    /// [`Kind::Each`] while another process works without fsync.
    Beside(Operation, Neighbour),
    /// A program while another process works in the same directory.
    ProgramBeside(Program, Neighbour),
    /// Programs with the library of private logs, and the same without it.
    Loaded(Loaded),
    /// PostgreSQL's benchmark.
    Pgbench,
    /// A program, and the bytes that this writes at a disk of its own until nothing is left to be
    /// written.
    Written {
        /// Which.
        program: Program,
        /// Bytes that one operation makes durable.
        durable: u64,
    },
}

impl Kind {
    /// Whether it can be done without a mount.
    pub fn works_embedded(self) -> bool {
        matches!(
            self,
            Self::Each(_)
                | Self::Beside(..)
                | Self::Threads { .. }
                | Self::WarmReads
                | Self::StreamWrite
                | Self::StreamRead
        )
    }

    /// Whether it is measured on a disk that nothing else uses.
    pub fn is_counted_apart(self) -> bool {
        matches!(self, Self::Written { .. })
    }

    /// Whether it has a floor: a number of synchronous direct writes that do as much.
    pub fn has_floor(self) -> bool {
        matches!(self, Self::Each(_))
    }
}

/// What is measured at once on a system, in one directory.
pub struct Job {
    /// How.
    pub kind: Kind,
    /// The rows that come out of it, in order.
    pub rows: &'static [Row],
}

impl Job {
    /// For messages: the first row's name.
    pub fn name(&self) -> &'static str {
        self.rows.first().map_or("", |r| r.name)
    }
}

/// Ratio to the floor that an embedded fsync is designed for, at most.
pub const EMBEDDED_TARGET: f64 = 1.15;

/// A row.
pub const fn row(
    name: &'static str,
    what: &'static str,
    metric: Metric,
    target: Option<f64>,
) -> Row {
    Row { name, what, metric, target }
}

const fn time(name: &'static str, what: &'static str, target: Option<f64>) -> Row {
    row(name, what, Metric::Latency, target)
}

/// A row of rates, of which more is better.
pub const fn rate(name: &'static str, what: &'static str, target: Option<f64>) -> Row {
    row(name, what, Metric::Operations, target)
}

const fn bytes(name: &'static str, what: &'static str, target: f64) -> Row {
    row(name, what, Metric::Bytes, Some(target))
}

const fn quiet(name: &'static str, what: &'static str) -> Row {
    rate(name, what, Some(1.0))
}

const fn busy(name: &'static str, what: &'static str) -> Row {
    rate(name, what, Some(0.9))
}

const fn program(program: Program, busy: bool, rows: &'static [Row]) -> Job {
    Job { kind: Kind::Program { program, busy }, rows }
}

const fn each(operation: Operation, rows: &'static [Row]) -> Job {
    Job { kind: Kind::Each(operation), rows }
}

/// A job.
pub const fn job(kind: Kind, rows: &'static [Row]) -> Job {
    Job { kind, rows }
}

const fn beside(neighbour: Neighbour, rows: &'static [Row]) -> Job {
    Job { kind: Kind::Beside(overwrite, neighbour), rows }
}

/// Every job, in the table's order.
pub const JOBS: &[Job] = &[
    program(Program::SqliteDelete, false, &[quiet("sqlite-delete", "SQLite, DELETE journal")]),
    program(Program::SqliteWal, false, &[quiet("sqlite-wal", "SQLite, WAL, synchronous=FULL")]),
    program(
        Program::SqliteSections,
        false,
        &[rate("sqlite-sections", "SQLite by sections, no journal", Some(2.5))],
    ),
    program(
        Program::SqliteNoSections,
        false,
        &[rate("sqlite-sections-off", "the same SQLite, DELETE journal", None)],
    ),
    program(Program::Log, false, &[quiet("log-8k", "log of 8 KiB records, fdatasync each")]),
    program(
        Program::SmallLog,
        false,
        &[quiet("log-700", "log of 700-byte records, fdatasync each")],
    ),
    program(Program::Mail, false, &[quiet("mail", "mail delivery")]),
    program(Program::Objects, false, &[quiet("objects", "loose objects")]),
    program(Program::RocksDb, false, &[quiet("rocksdb", "RocksDB fillsync")]),
    program(Program::SqliteDelete, true, &[busy("sqlite-delete-busy", "SQLite, DELETE, busy")]),
    program(Program::SqliteWal, true, &[busy("sqlite-wal-busy", "SQLite, WAL, busy")]),
    program(Program::Log, true, &[busy("log-8k-busy", "log of 8 KiB records, busy")]),
    program(Program::SmallLog, true, &[busy("log-700-busy", "log of 700-byte records, busy")]),
    program(Program::Mail, true, &[busy("mail-busy", "mail delivery, busy")]),
    program(Program::Objects, true, &[busy("objects-busy", "loose objects, busy")]),
    program(Program::RocksDb, true, &[busy("rocksdb-busy", "RocksDB fillsync, busy")]),
    job(
        Kind::ProgramBeside(Program::SqliteWal, Neighbour::Mail),
        &[rate("wal-beside-mail", "SQLite, WAL, beside mail delivery", None)],
    ),
    job(
        Kind::ProgramBeside(Program::SmallLog, Neighbour::Rival),
        &[rate("log-700-rival", "the 700-byte log, another program in it", None)],
    ),
    each(overwrite, &[time("overwrite-4k", "overwrite 4 KiB, fsync", Some(1.15))]),
    each(append_4k, &[time("append-4k", "append 4 KiB, fsync", Some(0.9))]),
    each(append_512, &[time("append-512", "append 512 bytes, fsync", Some(0.9))]),
    each(create, &[time("create-4k", "create, write 4 KiB, fsync", Some(0.6))]),
    each(
        create_and_directory,
        &[time("create-4k-dir", "create, fsync, fsync of the directory", Some(0.4))],
    ),
    each(replace, &[time("replace", "replace by rename, fsync of the directory", Some(0.55))]),
    each(
        publish_16,
        &[time("publish-16", "16 new files under old names, all durable", Some(0.25))],
    ),
    each(write_durable, &[time("dsync-4k", "4 KiB with O_DSYNC", None)]),
    job(
        Kind::Threads { shared: false },
        &[rate("threads-own", "4 threads, a file each, fsync", Some(1.2))],
    ),
    job(Kind::Threads { shared: true }, &[rate("threads-shared", "4 threads, one file", None)]),
    job(
        Kind::Buffered(512),
        &[rate("buffered-512", "512-byte appends, one fsync at the end", Some(0.8))],
    ),
    job(
        Kind::Buffered(4096),
        &[rate("buffered-4k", "4 KiB writes, one fsync at the end", Some(0.8))],
    ),
    job(Kind::Tree, &tree::ROWS),
    job(Kind::StreamWrite, &[bytes("stream-write", "write a large file, fsync", 0.8)]),
    job(Kind::StreamRead, &[bytes("stream-read", "read a large file, not cached", 0.9)]),
    job(Kind::WarmReads, &[rate("read-warm-4k", "4 KiB reads, cached", Some(0.95))]),
    job(Kind::Varmail, &[rate("varmail", "mail server mix, 4 threads", Some(1.1))]),
    job(Kind::Pressure(32), &pressure::ROWS_32),
    job(Kind::Pressure(128), &pressure::ROWS_128),
    each(overwrite, &[time("small-quiet", "overwrite 4 KiB, fsync, quiet", None)]),
    beside(
        Neighbour::Stream,
        &[time("small-beside", "the same beside a stream without fsync", None)],
    ),
    beside(
        Neighbour::Scatter,
        &[time("small-beside-scatter", "the same beside scattered writes", None)],
    ),
    beside(
        Neighbour::Litter,
        &[time("small-beside-litter", "the same beside files made and removed", None)],
    ),
];

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
