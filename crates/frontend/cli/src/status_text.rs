//! The status document for people.

use crate::human::{count, duration, fill, latency, rate};
use crate::size::show_size;
use crate::view::{Runtime, Status};
use std::collections::BTreeMap;

/// What `siftfs status` prints.
pub fn text(s: &Status) -> String {
    let r = &s.runtime;
    let mut lines = vec![
        ("volume", s.volume.clone()),
        ("mounted on", format!("{}, for {}", s.dir, duration(s.uptime_s))),
        ("daemon", format!("siftfs {}, pid {}", s.version, s.pid)),
    ];
    if let Some(log) = &s.log {
        lines.insert(1, ("log", log.clone()));
    }
    if !s.options.is_empty() {
        lines.push(("options", s.options.clone()));
    }
    lines.push(("state", state(r)));
    lines.push(("fsync", fsync(s)));
    let (used, all) = r.staging();
    lines.push(("staging", fill(used, all)));
    lines.push(("journal", fill(r.log.journal_used, r.log.journal_bytes)));
    lines.push((
        "",
        format!("{} transactions not in the ext4 area yet", count(r.unreclaimed_transactions)),
    ));
    lines.push(("checkpoint", checkpoint(s)));
    lines.push(("full commits", reasons(&r.runtime.full_commits, why_full_commit)));
    lines.push(("waits", reasons(&r.runtime.stalls, str::to_string)));
    lines.push(("unsynced", unsynced(r)));
    lines.push(("cache", cache(r)));
    for (title, origin) in [("foreground", "foreground"), ("background", "background")] {
        lines.push((title, io(r, origin)));
    }
    let mut out = String::new();
    for (title, line) in lines {
        out.push_str(&format!("{title:<13} {line}\n"));
    }
    out
}

fn state(r: &Runtime) -> String {
    match &r.failed {
        None => "serving".into(),
        Some(why) => format!(
            "FAILED: {why}\n{:14}changes and fsyncs get EIO; unmount it, and mount it again to recover",
            ""
        ),
    }
}

fn fsync(s: &Status) -> String {
    let l = &s.runtime.fsync_latency;
    if l.count == 0 {
        return "none yet".into();
    }
    format!(
        "{} since the mount ({}); half within {}, 99 % within {}, slowest {}",
        count(l.count),
        rate(l.count, s.uptime_s),
        latency(l.p50_ns as f64),
        latency(l.p99_ns as f64),
        latency(l.max_ns as f64)
    )
}

fn checkpoint(s: &Status) -> String {
    let c = &s.runtime.service;
    let all = c.checkpoints_background.saturating_add(c.checkpoints_emergency);
    if all == 0 {
        return "none yet".into();
    }
    let last = &c.checkpoint_last;
    format!(
        "last {} ago: {} transactions, {} blocks, {} written in {}; {} in all, {} waited for",
        duration(s.time_s - c.checkpoint_last_s),
        count(last.batch),
        count(last.surviving_blocks),
        show_size(last.write_bytes),
        latency(last.nanos as f64),
        count(all),
        count(c.checkpoints_emergency)
    )
}

/// Events by reason, the most frequent first.
fn reasons(map: &BTreeMap<String, u64>, name: fn(&str) -> String) -> String {
    let mut all: Vec<_> = map.iter().filter(|(_, n)| **n > 0).collect();
    if all.is_empty() {
        return "none".into();
    }
    all.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let parts: Vec<_> =
        all.iter().map(|(why, n)| format!("{} {}", count(**n), name(why))).collect();
    parts.join(", ")
}

/// Why an fsync had to wait for a background transaction.
fn why_full_commit(reason: &str) -> String {
    match reason {
        "DirectoryMove" => "for a moved directory",
        "ClosureTooLarge" => "for too many connected operations",
        "UnknownAncestors" => "for permission changes above an unknown path",
        "TooMuchData" => "for more data than one record takes",
        other => other,
    }
    .to_string()
}

fn unsynced(r: &Runtime) -> String {
    let p = &r.pending;
    format!(
        "{} of data, {} name operations, {} metadata blocks",
        show_size(r.cache.dirty_bytes),
        count(p.name_operations),
        count(p.metadata_blocks)
    )
}

fn cache(r: &Runtime) -> String {
    let bytes = |blocks: u64| show_size(blocks.saturating_mul(4096));
    format!(
        "{} of {} pages, {} metadata, {} inodes",
        bytes(r.cache.pages),
        bytes(r.cache.page_limit),
        bytes(r.cache.metadata_blocks),
        count(r.cache.inodes)
    )
}

fn io(r: &Runtime, origin: &str) -> String {
    let io = r.io(origin);
    let mut line = format!(
        "{} writes ({}), {} flushes, {} reads ({})",
        count(io.writes),
        show_size(io.write_bytes),
        count(io.flushes),
        count(io.reads),
        show_size(io.read_bytes)
    );
    if io.errors > 0 {
        line.push_str(&format!(", {} ERRORS", count(io.errors)));
    }
    line
}

#[cfg(test)]
#[path = "status_text_tests.rs"]
mod tests;
