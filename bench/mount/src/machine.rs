//! What the numbers depend on.

use crate::run::{Comparison, Plan};
use siftfs_rig::place::{Result, output, run};
use std::fs;

/// What was there before the first measurement.
pub struct Before {
    date: String,
    load: String,
}

/// To be called before the first measurement: a load of others then means that the numbers are not
/// worth much.
pub fn before() -> Before {
    let date = output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]);
    let date =
        date.map_or_else(|_| "?".into(), |o| String::from_utf8_lossy(&o.stdout).trim().into());
    let load = first_words(&read("/proc/loadavg"), 3);
    Before { date, load }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn first_words(text: &str, n: usize) -> String {
    text.split_whitespace().take(n).collect::<Vec<_>>().join(" ")
}

/// The value of the first line that begins with this word, as in `/proc/cpuinfo`.
fn field(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.trim_start().strip_prefix(':'));
    line.unwrap_or("?").trim().to_owned()
}

fn disk(name: &str) -> String {
    let queue = |what: &str| read(&format!("/sys/block/{name}/queue/{what}"));
    let sectors: u64 = read(&format!("/sys/block/{name}/size")).parse().unwrap_or(0);
    let kind = if queue("rotational") == "1" { "rotating" } else { "not rotating" };
    let fua = if queue("fua") == "1" { "FUA" } else { "no FUA" };
    format!("{name}, {} GiB, {kind}, {} cache, {fua}", sectors >> 21, queue("write_cache"))
}

/// Names and values, in the order in which they are shown.
pub fn describe(
    before: &Before,
    plan: &Plan,
    comparison: &Comparison,
) -> Result<Vec<(&'static str, String)>> {
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kib: u64 = memory.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let mut all = vec![
        ("date", before.date.clone()),
        ("SiftFS", env!("CARGO_PKG_VERSION").to_owned()),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("processors", format!("{processors}, {}", field(&read("/proc/cpuinfo"), "model name"))),
        ("memory", format!("{} GiB", kib >> 20)),
        ("disk", disk(&comparison.disk)),
        ("direct synchronous write of 4 KiB", format!("{:.0} us", comparison.floor_us)),
        ("compared with", comparison.ext4.to_owned()),
    ];
    for (name, version) in &comparison.peers {
        let text = match version {
            Ok(version) => {
                format!("{name}, tools {version}, image on a loop device with direct I/O")
            }
            Err(why) => format!("{name} left out: {why}"),
        };
        all.push(("and", text));
    }
    for (row, why) in &comparison.left_out {
        all.push(("left out", format!("{row}: {why}")));
    }
    let sqlite = run("sqlite3", &["--version"])?;
    all.push(("SQLite", first_words(&sqlite, 1)));
    all.push(("load before", before.load.clone()));
    all.push((
        "rounds",
        format!("{}, {} s each", comparison.rounds, plan.amount.time.as_secs_f64()),
    ));
    all.push(("large file", format!("{} MiB", plan.amount.stream_bytes >> 20)));
    all.push(("files of the tree", (plan.tree_parts * 500).to_string()));
    all.push(("took", format!("{:.1} minutes", comparison.took.as_secs_f64() / 60.0)));
    Ok(all)
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
