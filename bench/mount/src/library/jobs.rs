//! The jobs. None of their rows has a target to ext4: `versus` has their targets.

use super::loaded::Loaded;
use crate::programs::{PAYLOAD, Program, SMALL_RECORD};
use crate::row::{Metric, Row};
use crate::rows::{Job, Kind, job, rate, row};

const fn written(program: Program, durable: usize, rows: &'static [Row]) -> Job {
    job(Kind::Written { program, durable: durable as u64 }, rows)
}

/// Every one, in the table's order, behind those of each run.
pub const JOBS: &[Job] = &[
    job(Kind::Pgbench, &[rate("pgbench", "PostgreSQL, pgbench, 4 clients", None)]),
    job(
        Kind::Loaded(Loaded::Opens),
        &[
            rate("library-opens", "open, stat, close, with the library", None),
            rate("library-opens-off", "the same without the library", None),
        ],
    ),
    job(
        Kind::Loaded(Loaded::Untar),
        &[
            rate("library-untar", "untar with the library", None),
            rate("library-untar-off", "untar without the library", None),
        ],
    ),
    job(
        Kind::Loaded(Loaded::Compile),
        &[
            rate("library-compile", "cc of 24 files with the library", None),
            rate("library-compile-off", "cc of 24 files without the library", None),
        ],
    ),
    written(
        Program::SmallLog,
        SMALL_RECORD,
        &[row("device-bytes-log", "log of 700 bytes: written for a byte", Metric::Written, None)],
    ),
    written(
        Program::SqliteWal,
        PAYLOAD,
        &[row("device-bytes-wal", "SQLite, WAL: written for a byte", Metric::Written, None)],
    ),
];
