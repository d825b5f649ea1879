//! `siftfs top`: what a mount does right now.

use crate::command::live::status_of;
use crate::options::args::Top;
use crate::options::size::show_size;
use crate::show::failure::{Failure, Outcome};
use crate::show::human::{count, duration, fill, latency, rate};
use crate::show::output::print;
use console::Term;
use siftfs_status::{Distribution, IoCounts, Mount, Status};
use std::time::Duration;

/// Shows the mount until the count is reached, the reader goes away, or the command is interrupted.
/// On a terminal each picture replaces the one before; elsewhere they follow each other.
pub fn top(a: &Top) -> Outcome {
    let terminal = Term::stdout();
    let redraw = terminal.is_term();
    let pause = Duration::from_secs_f64(a.delay);
    let mut left = if a.once { Some(1) } else { a.count };
    let mut before = sample(a)?;
    while left != Some(0) {
        std::thread::sleep(pause);
        let now = sample(a)?;
        if redraw {
            terminal.clear_screen().map_err(Failure::plain)?;
        }
        if !print(&picture(&before, &now))? {
            break;
        }
        before = now;
        left = left.map(|n| n - 1);
        if !redraw && left != Some(0) && !print("\n")? {
            break;
        }
    }
    Ok(0)
}

fn sample(a: &Top) -> Result<Status, Failure> {
    status_of(&a.dir)
}

/// What happened between two samples, and how things stand.
fn picture(before: &Status, now: &Status) -> String {
    // A mount that was made anew in between has counted from zero.
    let start = Status::default();
    let before = if before.pid == now.pid { before } else { &start };
    let seconds = (now.uptime_s - before.uptime_s).max(0.0);
    let mut lines = Vec::new();
    foreground(before, now, seconds, &mut lines);
    background(before, now, seconds, &mut lines);
    lines.into_iter().map(|(title, text)| format!("{title:<11} {text}\n")).collect()
}

/// A line: its title and what it says.
type Line = (String, String);

fn line(title: &str, text: String) -> Line {
    (title.into(), text)
}

/// The mount, its callers, and what they wrote.
fn foreground(before: &Status, now: &Status, seconds: f64, lines: &mut Vec<Line>) {
    let (b, n) = (&before.runtime, &now.runtime);
    let since = n.failed_s.map_or(0.0, |at| (now.time_s - at).max(0.0));
    let failed = |why: &String| format!("FAILED {} ago: {why}", duration(since));
    let serving = if n.no_room.is_some() { "WAITING FOR ROOM" } else { "serving" };
    let state = n.failed.as_ref().map_or(serving.to_string(), failed);
    let waited = |s: &Status| s.runtime.storage.sum(|o| o.foreground);
    let fg = |of: fn(&IoCounts) -> u64| {
        rate(of(&waited(now)).saturating_sub(of(&waited(before))), seconds)
    };
    let full: u64 = n.runtime.full_commits.values().sum::<u64>()
        - b.runtime.full_commits.values().sum::<u64>().min(n.runtime.full_commits.values().sum());
    lines.push(line(&now.dir, format!("{}  up {}  {state}", now.volume, duration(now.uptime_s))));
    if now.mounts.len() > 1 {
        lines.extend(now.mounts.iter().map(|m| line("mount", mount(before, m, seconds))));
    }
    lines.extend([
        line("fsync", fsync(&n.fsync_latency, &b.fsync_latency, seconds)),
        line(
            "waiting",
            format!("{} callers; {} full commits", count(n.queues.fsyncs_waiting), count(full)),
        ),
        line("foreground", format!("{} writes, {} flushes", fg(|i| i.writes), fg(|i| i.flushes))),
    ]);
}

/// One of several mounts, and how many requests come from it.
fn mount(before: &Status, now: &Mount, seconds: f64) -> String {
    let requests = |m: &Mount| m.requests.values().sum::<u64>();
    let earlier = before.mounts.iter().find(|m| m.device == now.device && m.dir == now.dir);
    let new = requests(now).saturating_sub(earlier.map_or(0, requests));
    format!("{}  {} requests  {}", now.dir, rate(new, seconds), now.options)
}

/// The log, what checkpoints made of it, and what is not in it.
fn background(before: &Status, now: &Status, seconds: f64, lines: &mut Vec<Line>) {
    let n = &now.runtime;
    let new = |of: fn(&Status) -> u64| of(now).saturating_sub(of(before));
    let (used, all) = n.staging();
    let staged = rate_bytes(new(|s| s.runtime.runtime.staged_bytes), seconds);
    let transactions = rate(new(|s| s.runtime.service.journaled_transactions), seconds);
    let replayed = rate(new(|s| s.runtime.service.checkpoint_total.surviving_blocks), seconds);
    let last = &n.service.checkpoint_last;
    lines.extend([
        line("staging", fill(used, all)),
        line("", format!("{staged} staged; {} free", show_size(n.credits.staging_bytes))),
        line("journal", fill(n.log.journal_used, n.log.journal_bytes)),
        line(
            "",
            format!("{transactions} transactions; {} free", show_size(n.credits.journal_bytes)),
        ),
        line(
            "checkpoint",
            format!(
                "{} of {} transactions in the area, {} behind; {replayed} blocks replayed",
                count(n.reclaimed_transaction),
                count(n.transaction),
                count(n.unreclaimed_transactions),
            ),
        ),
        line(
            "",
            format!(
                "last: {}, {} of {} tags, {} of {} inode updates, {}",
                last.mode(),
                count(last.surviving_tags),
                count(last.raw_tags),
                count(last.surviving_inodes),
                count(last.raw_inodes),
                latency(last.nanos as f64)
            ),
        ),
        line("service", service(before, now, seconds)),
        line(
            "credits",
            format!(
                "{} freed blocks not to be used again yet",
                count(n.credits.quarantined_blocks)
            ),
        ),
        line(
            "unsynced",
            format!(
                "{} of data, {} name operations",
                show_size(n.cache.dirty_bytes),
                count(n.pending.name_operations)
            ),
        ),
    ]);
}

/// Which process does the background work, and the share of a processor that each side took.
fn service(before: &Status, now: &Status, seconds: f64) -> String {
    let share = |us: u64| match seconds > 0.0 {
        true => format!("{:.0} %", us as f64 / 1e4 / seconds),
        false => "-".into(),
    };
    let host_cpu_us = |s: &Status| s.runtime.link.host_cpu_us;
    let here = share(host_cpu_us(now).saturating_sub(host_cpu_us(before)));
    let Some(l) = now.runtime.link.remote.as_ref().filter(|l| !l.fallback) else {
        return format!("in this process; {here} of a processor");
    };
    if !l.connected {
        let why = l.trouble.as_deref().unwrap_or("it has not answered yet");
        let away = duration(l.away_s.unwrap_or(0.0));
        return format!("WAITING for {} for {away}: {why}; {here} of a processor here", l.address);
    }
    let of = |s: &Status| s.runtime.service.device.as_ref().map_or((0, 0), |d| (d.pid, d.cpu_us));
    // Another process counts from its start.
    let ((was, earlier), (pid, cpu)) = (of(before), of(now));
    let there = share(if was == pid { cpu.saturating_sub(earlier) } else { cpu });
    format!("process {pid}; {here} of a processor here, {there} there")
}

fn fsync(now: &Distribution, before: &Distribution, seconds: f64) -> String {
    let new = now.count.saturating_sub(before.count);
    let at = |q| now.quantile_since(before, q).map_or("-".to_string(), latency);
    format!("{}  p50 {}  p99 {}", rate(new, seconds), at(0.5), at(0.99))
}

fn rate_bytes(bytes: u64, seconds: f64) -> String {
    let rate = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    format!("{}/s", show_size(rate as u64))
}

#[cfg(test)]
#[path = "top_tests.rs"]
mod tests;
