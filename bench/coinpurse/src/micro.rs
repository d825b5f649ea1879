//! Figure 5: operations of 512 bytes, each with an fsync.

use crate::mounts::{Mounted, Site};
use crate::output::Output;
use crate::report::Report;
use crate::side::{Op, Side, System, told};
use siftfs::Result;
use std::time::{Duration, Instant};

/// How the volumes are reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Through {
    /// In this process, without a mount.
    Embedded,
    /// By a mount.
    Fuse,
}

/// Operations in a second, and the median time of one in microseconds.
fn measure(system: &mut System, op: Op, time: Duration) -> Result<(f64, f64)> {
    system.prepare(op)?;
    let (mut times, start) = (Vec::new(), Instant::now());
    let mut n = 0;
    while start.elapsed() < time && system.has_more(op, n) {
        let one = Instant::now();
        system.run(op, n)?;
        times.push(one.elapsed().as_secs_f64() * 1e6);
        n += 1;
    }
    let rate = n as f64 / start.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    system.tidy(op)?;
    Ok((rate, times.get(times.len() / 2).copied().unwrap_or_default()))
}

fn system(side: Side, through: Through, site: &Site<'_>) -> Result<System> {
    match through {
        Through::Embedded if side != Side::Disk => {
            System::embedded(side, &site.place.path(""), site.memory)
        }
        _ => System::mounted(Mounted::new(side, site).map_err(told)?),
    }
}

/// Measures all systems in turn, this many rounds, each operation for so long.
pub fn figure_5(through: Through, site: &Site<'_>, rounds: u32, time: Duration) -> Result<Output> {
    let systems = Side::ALL.iter().map(|side| system(*side, through, site));
    let mut systems = systems.collect::<Result<Vec<_>>>()?;
    let mut report = Report::through(match through {
        Through::Embedded => "volumes in this process",
        Through::Fuse => "FUSE",
    });
    for round in 0..rounds as usize {
        for op in Op::ALL {
            site.place.go_on().map_err(told)?;
            // Each round begins with another system.
            for i in 0..systems.len() {
                let system = &mut systems[(i + round) % Side::ALL.len()];
                let (rate, us) = measure(system, op, time)?;
                report.add(system.side(), op, rate, us);
            }
        }
    }
    for system in systems {
        report.dispatch(system.side(), system.close()?);
    }
    Ok(report.output())
}
