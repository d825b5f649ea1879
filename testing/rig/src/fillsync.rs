//! RocksDB's `db_bench --benchmarks=fillsync`: keys in order, each write durable before the next.

use crate::program::run_whole;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What db_bench may take beside its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Works in `dir` for so long, at least a second, with values of this many bytes; how many writes,
/// and seconds.
pub fn run(dir: &Path, value_bytes: usize, time: Duration) -> io::Result<(u64, f64)> {
    let mut bench = Command::new("db_bench");
    bench.args(["--benchmarks=fillsync", "--num=1000000000", "--compression_type=none"]);
    bench.args(["--ops_between_duration_checks=10"]);
    bench.arg(format!("--value_size={value_bytes}"));
    bench.arg(format!("--duration={}", time.as_secs_f64().ceil().max(1.0)));
    bench.arg(format!("--db={}", dir.join("db").display())).current_dir(dir);
    let ended = run_whole(&mut bench, time + PATIENCE, &[0])?;
    finished(&ended.printed)
        .ok_or_else(|| io::Error::other(format!("db_bench says: {}", ended.printed)))
}

/// Operations and seconds of `fillsync : A micros/op B ops/sec C seconds D operations; ...`.
fn finished(printed: &str) -> Option<(u64, f64)> {
    let line = printed.lines().find(|l| l.starts_with("fillsync "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |what: &str| {
        let at = words.iter().position(|w| w.trim_end_matches(';') == what)?;
        words.get(at.checked_sub(1)?).copied()
    };
    let (operations, seconds): (u64, f64) =
        (before("operations")?.parse().ok()?, before("seconds")?.parse().ok()?);
    (seconds > 0.0).then_some((operations, seconds))
}

#[cfg(test)]
#[path = "fillsync_tests.rs"]
mod tests;
