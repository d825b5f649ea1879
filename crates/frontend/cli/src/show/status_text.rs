//! The status document for people.

use crate::options::size::show_size;
use crate::show::human::{count, duration, fill, latency, rate};
use siftfs_status::{
    CheckpointReport, ClusterInfo, DeviceInfo, Discard, Dispatch, Group, IoCounts, LoggedProgram,
    Memory, Mount, Placement, PrivateLogs, RecordArea, RequestLoop, RuntimeStatus, Server,
    SpareInfo, State, Status, Urgency, WorkerStatistics,
};
use std::collections::BTreeMap;

/// What `siftfs status` prints.
pub fn text(s: &Status) -> String {
    let r = &s.runtime;
    let mut lines = vec![
        ("volume", s.volume.clone()),
        ("mounted on", format!("{}, for {}", s.dir, duration(s.uptime_s))),
        ("daemon", format!("siftfs {}, pid {}", s.version, s.pid)),
    ];
    lines.extend(s.server.as_ref().map(|server| ("server", served_by(server))));
    lines.extend(crossed(s).map(|line| ("placement", line)));
    if let Some(log) = &s.log {
        lines.insert(1, ("log", log.clone()));
    }
    if !s.options.is_empty() {
        lines.push(("options", s.options.clone()));
    }
    if s.mounts.len() > 1 {
        lines.extend(s.mounts.iter().map(|m| ("mount", mount(m))));
    } else if let Some(logs) = s.mounts.first().and_then(|m| m.private_logs.as_ref()) {
        lines.push(("programs", private_logs(logs)));
    }
    lines.push(("state", state(s)));
    lines.extend(s.warnings.iter().map(|text| ("warning", text.clone())));
    if s.server.as_ref().is_some_and(|server| server.lost.is_some()) {
        // Nothing is known of the volume.
        lines.push(("requests", reasons(&s.requests, str::to_string)));
        return aligned(lines);
    }
    lines.push(("service", service(s)));
    lines.push(("processor", processor(s)));
    lines.push(("requests", reasons(&s.requests, str::to_string)));
    lines.push(("", request_loop(&s.request_loop)));
    lines.extend(r.devices.iter().flat_map(lines_of_device));
    lines.extend(s.spare_log.as_ref().map(|log| ("spare log", spare(log))));
    lines.push(("fsync", fsync(s)));
    lines.push(("", together(&r.group)));
    let (used, all) = r.staging();
    lines.push(("staging", fill(used, all)));
    if let Some(area) = &r.log.record_area {
        lines.push(("record area", record_area(area)));
        lines.push(("", dispatched(&r.runtime.dispatch)));
    }
    let repeats = if r.log.journal_data == "copy" { ", staged data repeated" } else { "" };
    let journal = fill(r.log.journal_used, r.log.journal_bytes);
    lines.push(("journal", format!("{journal}{repeats}")));
    lines.push((
        "",
        format!("{} transactions not in the ext4 area yet", count(r.unreclaimed_transactions)),
    ));
    lines.push(("checkpoint", checkpoint(s)));
    if r.service.checkpoint_last.batch > 0 {
        lines.push(("", replayed(&r.service.checkpoint_last)));
        lines.push(("", phases(&r.service.checkpoint_last)));
    }
    if let Some(line) = discard(&r.discard) {
        lines.push(("discard", line));
    }
    lines.push(("full commits", reasons(&r.runtime.full_commits, why_full_commit)));
    lines.push(("waits", reasons(&r.runtime.stalls, str::to_string)));
    lines.push(("unsynced", unsynced(r)));
    lines.extend(begun(r));
    lines.push(("cache", cache(r)));
    if let Some(memory) = memory(&r.memory) {
        lines.push(("memory", memory));
    }
    lines.push(("foreground", io(&r.storage.sum(|o| o.foreground))));
    lines.push(("background", io(&r.storage.sum(|o| o.background))));
    aligned(lines)
}

fn aligned(lines: Vec<(&str, String)>) -> String {
    lines.into_iter().map(|(title, line)| format!("{title:<13} {line}\n")).collect()
}

/// Which process serves the volume. What follows of storage is in that one.
fn served_by(server: &Server) -> String {
    let of = match server.addresses.len() {
        0 | 1 => String::new(),
        _ => format!(" (one of {})", server.addresses.join(", ")),
    };
    match &server.lost {
        None => format!("{}, connected; {} calls{of}", server.peer, count(server.calls)),
        Some(why) => {
            format!("{} LOST after {} calls{of}: {why}", server.address, count(server.calls))
        }
    }
}

/// What private logs cost between the two processes.
fn crossed(s: &Status) -> Option<String> {
    let placement = s.server.as_ref()?.placement.as_ref()?;
    let Placement { connections, sent, lent, received, .. } = placement;
    Some(format!(
        "{} connections of private logs; {} to the server in messages and {} in shared memory, {} back",
        count(*connections),
        show_size(*sent),
        show_size(*lent),
        show_size(*received)
    ))
}

/// Does the volume serve? If not: why, since when, and what to do.
fn state(s: &Status) -> String {
    let indent = " ".repeat(14);
    let Some(why) = &s.runtime.failed else {
        if let Some(state) = s.state.filter(|state| *state != State::Serving) {
            return state.line();
        }
        let Some(n) = &s.runtime.no_room else { return "serving".into() };
        return format!(
            "WAITING FOR ROOM for {}, {} tries: {}\n{indent}the storage below is full: what needs \
             background work gets ENOSPC; make room, and it goes on by itself",
            duration(n.for_s),
            count(n.tries),
            n.why
        );
    };
    let since = s
        .runtime
        .failed_s
        .map_or_else(String::new, |at| format!(" {} ago", duration((s.time_s - at).max(0.0))));
    let remedy = s.runtime.remedy.as_deref().unwrap_or("unmount it, and mount it again to recover");
    format!("FAILED{since}: {why}\n{indent}changes and fsyncs get EIO; {remedy}")
}

/// What programs have of private logs.
fn private_logs(logs: &PrivateLogs) -> String {
    let lost = match logs.lost {
        0 => String::new(),
        lost => format!(", {} LOST", count(lost)),
    };
    // What each program's syncs are made durable by, the ways that there are.
    let mut media: BTreeMap<String, u64> = BTreeMap::new();
    for LoggedProgram { medium, promise, .. } in &logs.programs {
        let by = if medium == "daemon" { medium.clone() } else { format!("{medium}: {promise}") };
        *media.entry(by).or_default() += 1;
    }
    let media: Vec<_> = media.iter().map(|(by, n)| format!("{} by {by}", count(*n))).collect();
    let media = if media.is_empty() { String::new() } else { format!(" ({})", media.join("; ")) };
    let direct = match logs.direct {
        0 => String::new(),
        direct => format!(" ({} of them at the target)", count(direct)),
    };
    format!(
        "private logs of {} programs{media}, {} files leased{direct}, {} records taken in by {} \
         writes{lost}",
        count(logs.sessions),
        count(logs.leases),
        count(logs.records),
        count(logs.ingest.writes)
    )
}

/// One of several mounts.
fn mount(m: &Mount) -> String {
    let of = m.subdir.as_ref().map_or_else(String::new, |part| format!(" shows /{part}"));
    let options = if m.options.is_empty() { "no options" } else { &m.options };
    let requests = count(m.requests.values().sum());
    let way = if m.request_loop.kind == "ring" { "by rings" } else { "over /dev/fuse" };
    let warnings: String = m.warnings.iter().map(|text| format!("; {text}")).collect();
    let logs =
        m.private_logs.as_ref().map_or_else(String::new, |l| format!("; {}", private_logs(l)));
    format!(
        "{}{of}, for {}: {options}; {requests} requests {way}{logs}{warnings}",
        m.dir,
        duration(m.uptime_s)
    )
}

/// How requests come, and why, and how many are being carried out.
fn request_loop(l: &RequestLoop) -> String {
    let threads = format!("{} threads, {} busy", count(l.threads), count(l.busy));
    match &*l.kind {
        "ring" => format!("by {} rings with {threads}: {}", count(l.queues), l.why),
        _ => format!("over /dev/fuse with {threads}: {}", l.why),
    }
}

/// Which process does the background work, or which one is waited for.
fn service(s: &Status) -> String {
    let whose = if s.server.is_some() { "in the server's process" } else { "in this process" };
    let Some(l) = &s.runtime.link.remote else { return whose.into() };
    let mut line = match (l.connected, l.fallback) {
        (true, true) => format!("{whose}, in place of the one at {}", l.address),
        (true, false) => format!("{}, {} messages", l.peer, count(l.messages)),
        (false, _) => {
            let since = l.away_s.map_or_else(String::new, |s| format!(" for {}", duration(s)));
            let why = l.trouble.as_deref().unwrap_or("it has not answered yet");
            let then = match (l.overdue, l.fallback_after_s) {
                (true, _) => "; what needs it gets ETIMEDOUT".into(),
                (false, Some(s)) => format!("; taken over here after {}", duration(s)),
                (false, None) => String::new(),
            };
            format!("WAITING{since} for the device process at {}: {why}{then}", l.address)
        }
    };
    let device = s.runtime.service.device.as_ref().map_or(0, |d| d.refusals);
    for (n, what) in [
        (l.losses, "lost"),
        (l.takeovers, "taken over here"),
        (l.refusals, "refused there"),
        (l.objections, "answers refused here"),
        (device, "refused by it in all"),
    ] {
        if n > 0 {
            line.push_str(&format!("; {} {what}", count(n)));
        }
    }
    line
}

/// Processor time of the two sides.
fn processor(s: &Status) -> String {
    let r = &s.runtime;
    let spent = |us: u64| latency(us as f64 * 1e3);
    let whose = if s.server.is_some() { "at the server" } else { "here" };
    let mount = format!("{} {whose}", spent(r.link.host_cpu_us));
    // In this process's own place its time is in the first figure.
    let elsewhere = r.link.remote.as_ref().is_some_and(|l| !l.fallback);
    match &r.service.device {
        Some(d) if elsewhere => format!("{mount}, {} in the device process", spent(d.cpu_us)),
        _ => mount,
    }
}

/// What one checkpoint replayed of what it found.
fn replayed(c: &CheckpointReport) -> String {
    format!(
        "{}, {}: {} of {} tags, {} of {} blocks, {} of {} inode updates; {} windows, {} reads ({})",
        c.mode(),
        c.trigger.unwrap_or(Urgency::Background).name(),
        count(c.surviving_tags),
        count(c.raw_tags),
        count(c.surviving_blocks),
        count(c.raw_blocks),
        count(c.surviving_inodes),
        count(c.raw_inodes),
        count(c.windows),
        count(c.reads),
        show_size(c.read_bytes),
    )
}

/// Where a checkpoint's time went, and what the checkpoint gave back.
fn phases(c: &CheckpointReport) -> String {
    let took = |ns: u64| latency(ns as f64);
    format!(
        "index {}, read {}, write {}, flush {}; {} of staging and {} of journal given back",
        took(c.index_nanos),
        took(c.read_nanos),
        took(c.write_nanos),
        took(c.flush_nanos),
        show_size(c.staging_credits),
        show_size(c.journal_credits)
    )
}

/// A record area, and what it promises.
fn record_area(a: &RecordArea) -> String {
    let kind = if a.persistent { "persistent" } else { "VOLATILE, a power cut loses it" };
    format!("{}; {}: {kind} ({})", fill(a.used, a.bytes), a.place, a.promise)
}

/// Where fsyncs' records went.
fn dispatched(d: &Dispatch) -> String {
    let percent = |part: u64, whole: u64| match whole {
        0 => "-".to_string(),
        _ => format!("{:.0} %", part as f64 * 100.0 / whole as f64),
    };
    let (here, all) = (&d.record_area, &d.all);
    format!(
        "{} of {} fsyncs ({}), {} of their pages dirty ({} of all fsyncs' pages); elsewhere: {}",
        count(here.records),
        count(all.records),
        percent(here.records, all.records),
        percent(here.dirty_bytes, here.page_bytes),
        percent(all.dirty_bytes, all.page_bytes),
        reasons(&d.elsewhere, str::to_string)
    )
}

/// A device, and what its disk says of its cache.
fn storage(d: &DeviceInfo) -> String {
    if d.persistent.is_some() {
        return format!("{}: {}", d.path, d.kind);
    }
    let cache = match (d.volatile_cache, d.fua) {
        (Some(true), Some(true)) => "volatile cache, FUA",
        (Some(true), _) => "volatile cache, no FUA",
        (Some(false), _) => "no volatile cache",
        (None, _) => "cache unknown",
    };
    let direct = if d.direct { "direct I/O" } else { "through the page cache" };
    let uring = if d.uring { ", io_uring" } else { "" };
    format!("{}: {}, {cache}, {direct}{uring}", d.path, d.kind)
}

/// A device, how a write is made durable there, and the cluster that has it.
fn lines_of_device(device: &DeviceInfo) -> Vec<(&'static str, String)> {
    let durable = format!("{}: {}", device.durable_write, device.why);
    let cluster = device.cluster.as_ref().map(|c| ("", cluster(c)));
    [("storage", storage(device)), ("", durable)].into_iter().chain(cluster).collect()
}

/// The spare log behind a log, and whether it is in use.
fn spare(s: &SpareInfo) -> String {
    let how = match s.state.as_str() {
        "spare" => format!("new records go there: the log lacks {}", show_size(s.lacking_bytes)),
        "first" => "not needed now".into(),
        "alone" => "the log's device has failed, and this is the log alone".into(),
        _ => "not watched".into(),
    };
    let longest = s.longest_ms as f64 / 1000.0;
    format!("{}: {how}; {} stall(s), the longest {longest:.1} s", s.path, s.stalls)
}

/// The cluster that replicates a device, and how long it has been waited for.
fn cluster(c: &ClusterInfo) -> String {
    let mut line = format!(
        "pool {}, objects of {}, cluster {}: {}",
        c.pool,
        show_size(c.object_bytes),
        c.fsid,
        c.health
    );
    // What takes longer than a healthy cluster ever does.
    if c.longest_ms >= 1000 {
        let waited = c.longest_ms / 1000;
        line.push_str(&format!("; WAITING for it: {} calls, for {waited} s", count(c.waiting)));
    }
    line
}

/// How fsyncs that come together are made durable.
fn together(g: &Group) -> String {
    let way = |way: &str| match way {
        "parallel" => "durable writes in parallel",
        _ => "a shared flush",
    };
    let mut line = format!("together: {}, by {}", way(&g.way), g.by);
    let took = |ns: Option<u64>| ns.map_or_else(|| "-".into(), |ns| latency(ns as f64));
    for c in &g.measured {
        let (shared, parallel) = (took(c.shared_ns), took(c.parallel_ns));
        line.push_str(&format!(
            "; {} callers: {} (shared {shared}, parallel {parallel})",
            c.callers, c.way
        ));
    }
    line
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
        duration(s.time_s - c.checkpoint_last_s as f64),
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

fn unsynced(r: &RuntimeStatus) -> String {
    let p = &r.pending;
    format!(
        "{} of data, {} name operations, {} metadata blocks",
        show_size(r.cache.dirty_bytes),
        count(p.name_operations),
        count(p.metadata_blocks)
    )
}

/// What programs have begun and not ended.
fn begun(r: &RuntimeStatus) -> impl Iterator<Item = (&'static str, String)> {
    let lines = [("operations", operations(r)), ("direct files", direct(r))];
    lines.into_iter().filter_map(|(name, line)| Some((name, line?)))
}

/// Tickets and sections; nothing if there is nothing.
fn operations(r: &RuntimeStatus) -> Option<String> {
    let o = &r.operations;
    if o.tickets == 0 && o.sections == 0 {
        return None;
    }
    let (tickets, sections, bytes) =
        (count(o.tickets), count(o.sections), show_size(o.section_bytes));
    let line = format!("tickets not durable: {tickets}; atomic sections: {sections} ({bytes})");
    Some(match o.void_sections {
        0 => line,
        void => format!("{line}, {} of them void", count(void)),
    })
}

/// What programs have of files at the target; nothing where they never had anything.
fn direct(r: &RuntimeStatus) -> Option<String> {
    let o = &r.operations;
    let [alone, readers, recalls] =
        [o.direct_writers, o.direct_readers, o.direct_recalls].map(count);
    let any = o.direct_writers + o.direct_readers + o.direct_recalls > 0;
    let line = format!("{alone} of one program alone, {readers} readers, {recalls} taken back");
    any.then(|| line + &at_target(r))
}

/// What programs have done at the target.
fn at_target(r: &RuntimeStatus) -> String {
    let Some(device) = r.service.device.filter(|device| device.programs.requests > 0) else {
        return String::new();
    };
    let p = device.programs;
    let [queues, requests, groups, waited, lives] =
        [p.queues, p.requests, p.groups, p.waited, p.further_lives].map(count);
    let line = format!("; there: {queues} queues, {requests} requests in {groups} groups");
    let line = format!("{line}, {waited} waited");
    let further = match p.further_lives {
        0 => String::new(),
        _ => format!(", {lives} further lives"),
    };
    line + &further + &workers(&device.workers)
}

/// The target's threads that did it.
fn workers(w: &WorkerStatistics) -> String {
    let [workers, connections, helped, waited, most] =
        [w.workers, w.connections, w.helped, w.waited, w.most_helpers].map(count);
    let line = format!("; workers: {workers}, connections: {connections}");
    let helpers = match w.helped {
        0 => String::new(),
        _ => format!(", by helpers: {helped} ({most} at most, {waited} waits)"),
    };
    let broken = match w.broken {
        0 => String::new(),
        broken => format!(", broken: {}", count(broken)),
    };
    line + &helpers + &broken
}

/// Where the process's memory is, the largest structures first; small ones are left out.
fn memory(m: &Memory) -> Option<String> {
    const SMALL: u64 = 64 << 10;
    // Neither every daemon nor every kernel says how much it is.
    if m.resident == 0 {
        return None;
    }
    let mut parts = m.structures().to_vec();
    parts.retain(|(_, bytes)| *bytes >= SMALL);
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let mut line = format!("{} resident", show_size(m.resident));
    for (name, bytes) in parts {
        line.push_str(&format!(", {name} {}", show_size(bytes)));
    }
    Some(format!("{line}; {} of the heap are free", show_size(m.heap_free)))
}

fn cache(r: &RuntimeStatus) -> String {
    let bytes = |blocks: u64| show_size(blocks.saturating_mul(4096));
    format!(
        "{} of {} pages, {} metadata, {} inodes",
        bytes(r.cache.pages),
        bytes(r.cache.page_limit),
        bytes(r.cache.metadata_blocks),
        count(r.cache.inodes)
    )
}

/// What becomes of freed space; `None` where the storage cannot take it back.
fn discard(d: &Discard) -> Option<String> {
    let size = |blocks: u64| show_size(blocks.saturating_mul(4096));
    if d.unit_bytes == 0 {
        return None;
    }
    let when = if d.online { "online" } else { "off" };
    let waiting = d.waiting_blocks.saturating_add(d.asked_blocks);
    let mut line = format!("{when}, {} given back, {} to come", size(d.blocks), size(waiting));
    if d.failed > 0 {
        line.push_str(&format!(", {} ERRORS", count(d.failed)));
    }
    Some(line)
}

fn io(io: &IoCounts) -> String {
    let mut line = format!(
        "{} writes ({}), {} flushes, {} reads ({})",
        count(io.writes),
        show_size(io.write_bytes),
        count(io.flushes),
        count(io.reads),
        show_size(io.read_bytes)
    );
    if io.discards > 0 {
        line.push_str(&format!(
            ", {} discards ({})",
            count(io.discards),
            show_size(io.discard_bytes)
        ));
    }
    if io.errors > 0 {
        line.push_str(&format!(", {} ERRORS", count(io.errors)));
    }
    line
}

#[cfg(test)]
#[path = "status_text_tests.rs"]
mod tests;
