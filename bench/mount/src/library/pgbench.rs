//! The row of PostgreSQL: several processes that write and sync the same files, so that a lease of
//! one of them is in the way of the next.

use crate::area::{Measured, WorkArea, io_error, per_second};
use std::io;
use std::time::Duration;

/// pgbench works this many times the time of other rows, in whole seconds.
const TIMES: f64 = 5.0;
/// But never shorter than this.
const LEAST: u64 = 3;

/// A server on a copy of the database in the area, and pgbench beside it.
pub fn measure(area: &WorkArea, time: Duration) -> io::Result<Measured> {
    let postgres = &area.inputs.postgres;
    let postgres = postgres.as_ref().ok_or_else(|| io::Error::other("no PostgreSQL"))?;
    let data = area.dir.join("data");
    postgres.copy_to(&data).map_err(io_error)?;
    area.settle()?;
    let server = postgres.serve(&data).map_err(io_error)?;
    let measured = area.count(|| {
        let (all, rate) = server.bench(seconds(time)).map_err(io_error)?;
        Ok(per_second(all, all as f64 / rate))
    });
    server.stop().map_err(io_error)?;
    measured
}

fn seconds(time: Duration) -> u64 {
    ((time.as_secs_f64() * TIMES).ceil() as u64).max(LEAST)
}

#[cfg(test)]
#[path = "pgbench_tests.rs"]
mod tests;
