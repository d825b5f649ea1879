//! How `siftfs serve` carries calls out, as the command line has it.

use clap::{Args, ValueEnum};
use siftfs_remote::{Execution, Schedule};
use std::time::Duration;

/// Most commands at work at a time.
const MAX_EXECUTORS: u16 = 1024;
/// The slowest processor.
const MAX_FACTOR: f64 = 100.0;
/// The slowest bus.
const MAX_DELAY: Duration = Duration::from_millis(10);

/// Executors, their order, and the paper's slow processor.
#[derive(Args)]
pub struct Executing {
    /// Calls that are carried out at a time, over all clients; default: one per processor that it
    /// runs on, two at least
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_EXECUTORS)))]
    pub executors: Option<u16>,
    /// Which client's call is next
    #[arg(long, value_enum, default_value = "fair")]
    pub schedule: Order,
    /// Has each call keep its processor this many times as long: a device's slow processor
    #[arg(long, value_name = "F", default_value = "1", value_parser = factor)]
    pub cpu_factor: f64,
    /// Begins each call this much later, such as 900ns: a device's bus
    #[arg(long, value_name = "TIME", default_value = "0ns", value_parser = delay)]
    pub doorbell_delay: Duration,
}

/// `--schedule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The one that came first
    Fcfs,
    /// That of the client that had less processor time
    Fair,
}

impl Order {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Fair => "fair",
        }
    }
}

impl Executing {
    /// For a process that runs on its processors already.
    pub fn execution(&self) -> Execution {
        let usual = Execution::default();
        Execution {
            executors: self.executors.map_or(usual.executors, usize::from),
            schedule: match self.schedule {
                Order::Fcfs => Schedule::Fcfs,
                Order::Fair => Schedule::Fair,
            },
            cpu_factor: self.cpu_factor,
            doorbell_delay: self.doorbell_delay,
        }
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1.0..=MAX_FACTOR).contains(&factor) => Ok(factor),
        _ => Err(format!("not a number from 1 to {MAX_FACTOR}")),
    }
}

fn delay(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1), ("us", 1000), ("ms", 1_000_000)];
    let nanos = units.iter().find_map(|(unit, nanos)| {
        let number = text.strip_suffix(unit)?.parse::<u32>().ok()?;
        Some(u64::from(number) * nanos)
    });
    match nanos.map(Duration::from_nanos) {
        Some(delay) if delay <= MAX_DELAY => Ok(delay),
        _ => Err(format!("not a time such as 900ns, 2us or 1ms, {MAX_DELAY:?} at most")),
    }
}

#[cfg(test)]
#[path = "execution_tests.rs"]
mod tests;
