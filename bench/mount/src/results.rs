//! The page with the results, misses first.

use crate::counts::{Counts, Requests};
use crate::report::{Entry, Numbers, Report, unit};
use crate::row::Metric;
use crate::run::{EMBEDDED, EXT4, FLOOR};
use crate::stats::Summary;
use crate::table::Table;

/// Opcodes that are named in the table of costs; the others are only part of the sum.
const OPCODES: usize = 5;

/// The page. `command` has measured it, `picture` is the name of the picture beside it.
pub fn markdown(report: &Report, command: &str, picture: &str) -> String {
    let mut page = format!(
        "# Results\n\nWritten by `{command}`. How it is measured: `docs/design/targets.md`. Times in us: less \
         is better, and a ratio may be the target at most. Rates: more is better, a ratio has to be the target at \
         least. Ratios are medians of the rounds' ratios to ext4, with their quartiles.\n\n"
    );
    page += &section("Missed", &missed(report), "Every row keeps its target.");
    page += &section("All rows", &all(report), "");
    page += &format!("![Speed beside ext4]({picture})\n\n");
    if report.configs.len() > 1 {
        page += &section("Configurations", &configurations(report), "");
    }
    if !report.library.is_empty() {
        page += &section("Private logs, not to ext4", &library(report), "");
    }
    page += &section("Machine", &machine(report), "");
    page += &section("Requests and processor time of an operation", &requests(report), "");
    page += "Processor time is that of the program and of the daemon; threads of the kernel, such as ext4's journal, \
             are in neither.\n\n";
    page += &section("Writes, flushes and KiB of an operation", &storage(report), "");
    page += "At SiftFS's backend: those that a caller waited for, and the background's. At the disk: whoever used \
             it meanwhile.\n\n";
    page += &section("Without a mount", &embedded(report), "Not measured.");
    page += &section("Tails in us: 99th percentile, largest", &tails(report), "Not measured.");
    page.truncate(page.trim_end().len());
    page + "\n"
}

fn section(title: &str, table: &Table, nothing: &str) -> String {
    let text = if table.is_empty() { format!("{nothing}\n") } else { table.text() };
    format!("## {title}\n\n{text}\n")
}

/// The farthest from its target first; then those without a mount, whose target is about the floor.
fn missed(report: &Report) -> Table {
    let mut entries: Vec<&Entry> = report.rows.iter().filter(|e| e.met == Some(false)).collect();
    let distance = |e: &Entry| e.distance().unwrap_or(0.0);
    entries.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
    let head = ["row", "unit", "compared with", "SiftFS", "ratio", "quartiles", "target"];
    let mut table = Table::new(head);
    let line = |e: &Entry, what: String, (to, system): (&str, &str), ratio: Option<&Summary>, t| {
        let theirs = format!("{to} {}", median(e.systems.get(to)));
        let ours = median(e.systems.get(system));
        vec![what, e.unit.into(), theirs, ours, of(ratio), quartiles(ratio), target(t)]
    };
    for e in entries {
        let pair = (EXT4, report.subject());
        table.add(line(e, e.what.into(), pair, e.ratio.as_ref(), e.target));
    }
    for e in report.rows.iter().filter(|e| e.floor_met == Some(false)) {
        let what = format!("{}, without a mount", e.what);
        table.add(line(e, what, (FLOOR, EMBEDDED), e.floor_ratio.as_ref(), e.floor_target));
    }
    table
}

fn all(report: &Report) -> Table {
    let head =
        ["row", "unit", "ext4", "SiftFS", "its quartiles", "ratio", "quartiles", "target", ""];
    let mut table = Table::new(head.map(String::from).into_iter().chain(report.peers.clone()));
    for e in &report.rows {
        let ours = e.systems.get(report.subject());
        let mut cells = vec![
            e.what.into(),
            e.unit.into(),
            median(e.systems.get(EXT4)),
            median(ours),
            ours.map_or_else(dash, |n| format!("{} to {}", number(n.all.p25), number(n.all.p75))),
            of(e.ratio.as_ref()),
            quartiles(e.ratio.as_ref()),
            target(e.target),
            verdict(e.met).into(),
        ];
        cells.extend(report.peers.iter().map(|p| of(e.ratios.get(p))));
        table.add(cells);
    }
    table
}

/// A column for each: the ratio to ext4, and its quartiles.
fn configurations(report: &Report) -> Table {
    let name = |c: &crate::run::Config| match c.options.is_empty() {
        true => c.name.clone(),
        false => format!("{} (`{}`)", c.name, c.options),
    };
    let head = ["row".to_owned(), "unit".into(), "target".into()];
    let mut table = Table::new(head.into_iter().chain(report.configs.iter().map(name)));
    for e in &report.rows {
        let mut cells = vec![e.what.into(), e.unit.into(), target(e.target)];
        cells.extend(report.configs.iter().map(|c| {
            let ratio = e.ratios.get(&c.name);
            ratio.map_or_else(dash, |r| format!("{} ({})", of(Some(r)), quartiles(Some(r))))
        }));
        table.add(cells);
    }
    table
}

/// To a plain mount, or to the same without the library.
fn library(report: &Report) -> Table {
    let head = ["row", "unit", "", "to", "", "ratio", "quartiles", "target", ""];
    let mut table = Table::new(head);
    for c in &report.library {
        let ratio = Some(&c.ratio);
        table.add(vec![
            c.what.into(),
            unit(c.metric).into(),
            number(c.ours),
            c.to.clone(),
            number(c.theirs),
            of(ratio),
            quartiles(ratio),
            target(Some(c.target)),
            verdict(Some(c.met)).into(),
        ]);
    }
    table
}

fn machine(report: &Report) -> Table {
    let mut table = Table::new(["", ""]);
    for (name, value) in &report.machine {
        table.add(vec![(*name).into(), value.clone()]);
    }
    for config in &report.configs {
        let options = if config.options.is_empty() { "the default" } else { &config.options };
        table.add(vec![format!("options of {}", config.name), options.into()]);
    }
    table
}

fn requests(report: &Report) -> Table {
    let head = [
        "row",
        "requests",
        "most of them",
        "SiftFS: program, us",
        "daemon, us",
        "switches",
        "ext4: program, us",
        "switches",
    ];
    let mut table = Table::new(head);
    for e in &report.rows {
        let (ours, ext4) = (e.systems.get(report.subject()), e.systems.get(EXT4));
        let Some(ours) = ours.filter(|n| counted(&n.counts)) else { continue };
        let of = ours.operations;
        let requests = ours.counts.requests.as_ref();
        let daemon = ours.counts.daemon.unwrap_or_default();
        let theirs = ext4.map(|n| (n.counts.client, n.operations));
        table.add(vec![
            e.what.into(),
            requests.map_or_else(dash, |r| share(r.0.values().sum(), of)),
            requests.map_or_else(dash, |r| opcodes(r, of)),
            share(ours.counts.client.cpu_us, of),
            share(daemon.cpu_us, of),
            share(ours.counts.client.switches + daemon.switches, of),
            theirs.map_or_else(dash, |(u, of)| share(u.cpu_us, of)),
            theirs.map_or_else(dash, |(u, of)| share(u.switches, of)),
        ]);
    }
    table
}

/// Pressure has counts of neither side.
fn counted(counts: &Counts) -> bool {
    counts.backend.is_some()
}

fn opcodes(requests: &Requests, of: u64) -> String {
    let mut all: Vec<(&String, &u64)> = requests.0.iter().collect();
    all.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let named = all.into_iter().take(OPCODES).filter(|(_, n)| **n * 100 > of);
    named.map(|(name, n)| format!("{} {}", name, share(*n, of))).collect::<Vec<_>>().join(", ")
}

fn storage(report: &Report) -> Table {
    let head = ["row", "SiftFS, waited for", "background", "its disk", "ext4's disk"];
    let mut table = Table::new(head);
    for e in &report.rows {
        let (ours, ext4) = (e.systems.get(report.subject()), e.systems.get(EXT4));
        let Some((ours, backend)) = ours.and_then(|n| Some((n, n.counts.backend?))) else {
            continue;
        };
        let disk = |n: Option<&Numbers>| {
            let io = n.and_then(|n| Some((n.counts.disk?, n.operations)));
            io.map_or_else(dash, |(d, of)| each((d.writes, d.flushes, d.write_bytes), of))
        };
        let b = backend;
        let background = (b.background_writes, b.background_flushes, b.background_write_bytes);
        table.add(vec![
            e.what.into(),
            each((b.writes, b.flushes, b.write_bytes), ours.operations),
            each(background, ours.operations),
            disk(Some(ours)),
            disk(ext4),
        ]);
    }
    table
}

fn embedded(report: &Report) -> Table {
    let head = [
        "row",
        "unit",
        "embedded",
        "to ext4",
        "floor: writes",
        "floor",
        "ratio",
        "quartiles",
        "target",
        "",
    ];
    let mut table = Table::new(head);
    for e in report.rows.iter().filter(|e| e.systems.contains_key(EMBEDDED)) {
        table.add(vec![
            e.what.into(),
            e.unit.into(),
            median(e.systems.get(EMBEDDED)),
            of(e.ratios.get(EMBEDDED)),
            e.floor.map_or_else(dash, |(n, bytes)| format!("{n}, {} KiB", bytes >> 10)),
            median(e.systems.get(FLOOR)),
            of(e.floor_ratio.as_ref()),
            quartiles(e.floor_ratio.as_ref()),
            target(e.floor_target),
            verdict(e.floor_met).into(),
        ]);
    }
    table
}

fn tails(report: &Report) -> Table {
    let systems = [report.subject(), EMBEDDED, EXT4];
    let mut table = Table::new(["row", "SiftFS", "embedded", "ext4"]);
    for e in report.rows.iter().filter(|e| e.unit == unit(Metric::Latency)) {
        let tail = |system: &str| {
            let numbers = e.systems.get(system);
            numbers.map_or_else(dash, |n| format!("{:.0}, {:.0}", n.all.p99, n.all.max))
        };
        table.add(std::iter::once(e.what.into()).chain(systems.map(tail)).collect());
    }
    table
}

fn each((writes, flushes, bytes): (u64, u64, u64), of: u64) -> String {
    let kib = bytes as f64 / 1024.0 / of.max(1) as f64;
    format!("{} {} {kib:.1}", share(writes, of), share(flushes, of))
}

/// How much of `n` each of `of` operations has, as text.
fn share(n: u64, of: u64) -> String {
    let share = n as f64 / of.max(1) as f64;
    if share < 10.0 { format!("{share:.2}") } else { format!("{share:.0}") }
}

fn dash() -> String {
    "-".into()
}

fn number(n: f64) -> String {
    if n < 100.0 { format!("{n:.1}") } else { format!("{n:.0}") }
}

fn median(numbers: Option<&Numbers>) -> String {
    numbers.map_or_else(dash, |n| number(n.all.median))
}

fn of(ratio: Option<&Summary>) -> String {
    ratio.map_or_else(dash, |r| format!("{:.2}", r.median))
}

fn quartiles(ratio: Option<&Summary>) -> String {
    ratio.map_or_else(dash, |r| format!("{:.2} to {:.2}", r.p25, r.p75))
}

fn target(target: Option<f64>) -> String {
    target.map_or_else(dash, |t| format!("{t:.2}"))
}

fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "-",
    }
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
