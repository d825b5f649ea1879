//! The status document in Prometheus' text format.

use siftfs_status::{
    CheckpointReport, Distribution, IoCounts, Lane, Mount, RegionCounts, State, Status, Urgency,
    WorkerStatistics,
};
use std::fmt::Write;

/// The document being written.
struct Page(String);

/// Labels of one sample.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// Announces a family. Its samples follow.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A family of one sample.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    fn histogram(&mut self, name: &str, help: &str, latency: &Distribution) {
        self.family(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in &latency.buckets {
            let le = (*bound as f64 / 1e9).to_string();
            self.sample(&bucket, &[("le", &le)], *count as f64);
        }
        self.sample(&bucket, &[("le", "+Inf")], latency.count as f64);
        self.sample(&format!("{name}_sum"), &[], latency.sum_ns as f64 / 1e9);
        self.sample(&format!("{name}_count"), &[], latency.count as f64);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All metrics of a mount.
pub fn page(s: &Status) -> String {
    let mut p = Page(String::new());
    p.family("siftfs_info", "gauge", "The mount; always 1.");
    let labels = [("version", &*s.version), ("volume", &*s.volume), ("dir", &*s.dir)];
    p.sample("siftfs_info", &labels, 1.0);
    p.one("siftfs_uptime_seconds", "gauge", "Time since the mount.", s.uptime_s);
    let failed = f64::from(u8::from(s.runtime.failed.is_some()));
    p.one("siftfs_failed", "gauge", "1 after a failed write or flush: changes get EIO.", failed);
    p.family("siftfs_state", "gauge", "1 for what the process does with its volume.");
    for state in State::ALL {
        let is = f64::from(u8::from(s.state == Some(state)));
        p.sample("siftfs_state", &[("state", state.name())], is);
    }
    let oldest = s.oldest_call_ms() as f64 / 1e3;
    let help = "For how long the oldest call of the storage has not returned.";
    p.one("siftfs_oldest_call_seconds", "gauge", help, oldest);
    let short = f64::from(u8::from(s.runtime.no_room.is_some()));
    p.one("siftfs_no_room", "gauge", "1 while background work waits for room below.", short);
    if let Some(at) = s.runtime.failed_s {
        p.one("siftfs_failed_time_seconds", "gauge", "When that came, since 1970.", at);
    }
    p.family("siftfs_requests_total", "counter", "Requests of the kernel by kind.");
    for (kind, n) in &s.requests {
        p.sample("siftfs_requests_total", &[("kind", kind)], *n as f64);
    }
    mounts(&mut p, &s.mounts);
    latencies(&mut p, s);
    fsyncs(&mut p, s);
    background(&mut p, s);
    checkpoints(&mut p, s);
    link(&mut p, s);
    space(&mut p, s);
    storage(&mut p, s);
    p.0
}

/// What each mount says of itself. Two may be on one directory; their numbers differ.
fn mounts(p: &mut Page, all: &[Mount]) {
    p.family("siftfs_mount_info", "gauge", "A mount of the volume; always 1.");
    for m in all {
        let labels = [
            ("device", &*m.device),
            ("dir", &*m.dir),
            ("subdir", m.subdir.as_deref().unwrap_or_default()),
            ("options", &*m.options),
            ("requests", &*m.request_loop.kind),
        ];
        p.sample("siftfs_mount_info", &labels, 1.0);
    }
    p.family("siftfs_mount_uptime_seconds", "gauge", "Time since this mount was made.");
    for m in all {
        let labels = [("device", &*m.device), ("dir", &*m.dir)];
        p.sample("siftfs_mount_uptime_seconds", &labels, m.uptime_s);
    }
    p.family("siftfs_mount_warnings", "gauge", "What of this mount is not as it should be.");
    for m in all {
        let labels = [("device", &*m.device), ("dir", &*m.dir)];
        p.sample("siftfs_mount_warnings", &labels, m.warnings.len() as f64);
    }
    p.family("siftfs_mount_requests_total", "counter", "Requests of this mount by kind.");
    for m in all {
        for (kind, n) in &m.requests {
            let labels = [("device", &*m.device), ("dir", &*m.dir), ("kind", kind)];
            p.sample("siftfs_mount_requests_total", &labels, *n as f64);
        }
    }
}

fn latencies(p: &mut Page, s: &Status) {
    let r = &s.runtime;
    p.histogram("siftfs_fsync_seconds", "Latency of fsync and fdatasync.", &r.fsync_latency);
    p.histogram(
        "siftfs_commit_seconds",
        "From a background transaction's cut to its commit.",
        &r.commit_latency,
    );
    p.histogram(
        "siftfs_lock_hold_seconds",
        "How long steps of assembly held the state lock.",
        &r.assembly_lock_hold,
    );
    p.histogram(
        "siftfs_emergency_checkpoint_seconds",
        "Checkpoints whose end a caller waited for.",
        &r.emergency_checkpoint_latency,
    );
    let waits = "Waits of small fsyncs for room in the log.";
    p.histogram("siftfs_credit_wait_seconds", waits, &r.credit_wait);
    let waits = "Waits of fsyncs of more than 64 KiB for room in the log.";
    p.histogram("siftfs_bulk_wait_seconds", waits, &r.bulk_wait);
}

fn fsyncs(p: &mut Page, s: &Status) {
    let c = &s.runtime.runtime;
    p.one(
        "siftfs_staged_transactions_total",
        "counter",
        "Staged transactions.",
        c.staged_transactions as f64,
    );
    p.one(
        "siftfs_staged_bytes_total",
        "counter",
        "Bytes of them, padding included.",
        c.staged_bytes as f64,
    );
    p.one(
        "siftfs_staged_data_bytes_total",
        "counter",
        "File data in them.",
        c.staged_data_bytes as f64,
    );
    p.family(
        "siftfs_full_commits_total",
        "counter",
        "Fsyncs that waited for a background transaction.",
    );
    for reason in ["DirectoryMove", "ClosureTooLarge", "UnknownAncestors", "TooMuchData"] {
        let n = c.full_commits.get(reason).copied().unwrap_or(0);
        p.sample("siftfs_full_commits_total", &[("reason", reason)], n as f64);
    }
    p.family("siftfs_stalls_total", "counter", "Operations that made background progress first.");
    for (reason, n) in &c.stalls {
        p.sample("siftfs_stalls_total", &[("reason", reason)], *n as f64);
    }
    let q = &s.runtime.queues;
    p.one(
        "siftfs_fsyncs_waiting",
        "gauge",
        "Callers waiting for durability.",
        q.fsyncs_waiting as f64,
    );
    p.one(
        "siftfs_records_in_flight",
        "gauge",
        "Records being written.",
        q.records_in_flight as f64,
    );
}

fn background(p: &mut Page, s: &Status) {
    let c = &s.runtime.service;
    p.one(
        "siftfs_journaled_transactions_total",
        "counter",
        "Background transactions made durable.",
        c.journaled_transactions as f64,
    );
    p.one(
        "siftfs_journaled_bytes_total",
        "counter",
        "Journal bytes written.",
        c.journaled_bytes as f64,
    );
    p.family("siftfs_checkpoints_total", "counter", "Checkpoint requests answered.");
    for (urgency, n) in
        [("background", c.checkpoints_background), ("emergency", c.checkpoints_emergency)]
    {
        p.sample("siftfs_checkpoints_total", &[("urgency", urgency)], n as f64);
    }
    p.one(
        "siftfs_unreclaimed_transactions",
        "gauge",
        "Transactions not in the ext4 area yet.",
        s.runtime.unreclaimed_transactions as f64,
    );
}

/// A value of a label, and its number in a report.
type Field = (&'static str, fn(&CheckpointReport) -> f64);
/// What of it, the label, the help and the values.
type Family = (&'static str, &'static str, &'static str, &'static [Field]);
/// What is counted of checkpoints.
const FAMILIES: [Family; 11] = [
    ("transactions", "", "Background transactions checkpointed.", &[("", |c| c.batch as f64)]),
    (
        "batches",
        "mode",
        "Ready-prefix batches built, by mode; ordered replay builds none.",
        &[("coalesce", |c| c.coalesced_batches as f64), ("light", |c| c.light_batches as f64)],
    ),
    (
        "tags",
        "kind",
        "Tags and images found in the journal, and what was left of them to be replayed.",
        &[("raw", |c| c.raw_tags as f64), ("surviving", |c| c.surviving_tags as f64)],
    ),
    (
        "blocks",
        "kind",
        "Blocks that they name, and blocks replayed into the ext4 area.",
        &[("raw", |c| c.raw_blocks as f64), ("surviving", |c| c.surviving_blocks as f64)],
    ),
    (
        "images",
        "kind",
        "Metadata blocks among them.",
        &[("raw", |c| c.raw_images as f64), ("surviving", |c| c.surviving_images as f64)],
    ),
    (
        "inodes",
        "kind",
        "Updates of inodes found, and inodes replayed.",
        &[("raw", |c| c.raw_inodes as f64), ("surviving", |c| c.surviving_inodes as f64)],
    ),
    (
        "io",
        "kind",
        "I/Os issued.",
        &[
            ("read", |c| c.reads as f64),
            ("write", |c| c.writes as f64),
            ("flush", |c| c.flushes as f64),
        ],
    ),
    (
        "io_bytes",
        "kind",
        "Bytes of them.",
        &[("read", |c| c.read_bytes as f64), ("write", |c| c.write_bytes as f64)],
    ),
    ("windows", "", "Read windows used.", &[("", |c| c.windows as f64)]),
    (
        "credit_bytes",
        "region",
        "Log space returned.",
        &[("journal", |c| c.journal_credits as f64), ("staging", |c| c.staging_credits as f64)],
    ),
    (
        "seconds",
        "phase",
        "Time spent in steps: by phase, and all of it.",
        &[
            ("index", |c| c.index_nanos as f64 / 1e9),
            ("read", |c| c.read_nanos as f64 / 1e9),
            ("write", |c| c.write_nanos as f64 / 1e9),
            ("flush", |c| c.flush_nanos as f64 / 1e9),
            ("all", |c| c.nanos as f64 / 1e9),
        ],
    ),
];

/// What checkpoints found and did: the sum of all, and the last one by itself.
fn checkpoints(p: &mut Page, s: &Status) {
    let c = &s.runtime.service;
    for (what, label, help, fields) in FAMILIES {
        let last = format!("Of the last checkpoint: {}{}", help[..1].to_lowercase(), &help[1..]);
        for (name, kind, help, report) in [
            (format!("siftfs_checkpoint_{what}_total"), "counter", help, &c.checkpoint_total),
            (format!("siftfs_checkpoint_last_{what}"), "gauge", &*last, &c.checkpoint_last),
        ] {
            p.family(&name, kind, help);
            for (value, of) in fields {
                let labels = [(label, *value)];
                let labels = if label.is_empty() { &[][..] } else { &labels };
                p.sample(&name, labels, of(report));
            }
        }
    }
    p.family(
        "siftfs_checkpoint_last",
        "gauge",
        "How the last one replayed and why; 1 once there was one.",
    );
    let last = &c.checkpoint_last;
    let labels = [("mode", last.mode()), ("trigger", last.trigger.map_or("none", Urgency::name))];
    p.sample("siftfs_checkpoint_last", &labels, f64::from(u8::from(last.trigger.is_some())));
}

/// The way to the Service, and what each side costs.
fn link(p: &mut Page, s: &Status) {
    let link = &s.runtime.link;
    p.family(
        "siftfs_cpu_seconds_total",
        "counter",
        "Processor time of the mount's process, and of the device process since its own start.",
    );
    p.sample("siftfs_cpu_seconds_total", &[("side", "host")], link.host_cpu_us as f64 / 1e6);
    let Some(l) = &link.remote else { return };
    let device = s.runtime.service.device.as_ref();
    if let Some(d) = device {
        p.sample("siftfs_cpu_seconds_total", &[("side", "device")], d.cpu_us as f64 / 1e6);
    }
    let flag = |b: bool| f64::from(u8::from(b));
    for (name, help, value) in [
        ("connected", "1 while a Service does the background work.", flag(l.connected)),
        ("fallback", "1 while that is the mount's own process.", flag(l.connected && l.fallback)),
        ("away_seconds", "How long no Service has done it.", l.away_s.unwrap_or(0.0)),
        ("unanswered", "Messages kept until they are answered.", l.unanswered as f64),
    ] {
        p.one(&format!("siftfs_link_{name}"), "gauge", help, value);
    }
    for (name, help, value) in [
        ("greetings", "Times that a Service began to do the background work.", l.greetings),
        ("losses", "Times that it was gone.", l.losses),
        ("takeovers", "Times that the mount's process took over.", l.takeovers),
        ("refusals", "Times that the device process refused this host.", l.refusals),
        ("objections", "Answers that this host refused.", l.objections),
        ("messages", "Messages sent, repetitions included.", l.messages),
        ("hints", "Hints among them that small durable steps are expected.", l.hints),
    ] {
        p.one(&format!("siftfs_link_{name}_total"), "counter", help, value as f64);
    }
    p.one(
        "siftfs_link_waited_seconds_total",
        "counter",
        "Time without a Service, waits that last not included.",
        l.waited_s,
    );
    let Some(d) = device else { return };
    for (name, help, value) in [
        ("messages", "Messages that the device process received.", d.messages),
        ("refusals", "Connections, hosts and messages that it refused.", d.refusals),
        ("hosts", "Hosts that it greeted.", d.hosts),
        ("hints", "Hints received that small durable steps are expected.", d.hints),
    ] {
        p.one(&format!("siftfs_device_{name}_total"), "counter", help, value as f64);
    }
    let programs = &d.programs;
    let help = "Queues that programs have attached at the target.";
    p.one("siftfs_device_program_queues", "gauge", help, programs.queues as f64);
    for (name, help, value) in [
        ("requests", "Requests of programs at the target.", programs.requests),
        ("groups", "Groups that these requests began.", programs.groups),
        ("waited", "Requests that waited for the group before theirs.", programs.waited),
        ("further_lives", "Lives of queues that followed on others.", programs.further_lives),
    ] {
        p.one(&format!("siftfs_device_program_{name}_total"), "counter", help, value as f64);
    }
    workers(p, &d.workers);
    io_families(p, "siftfs_device_io", "by the device process since it took the volume", &d.io);
}

/// The threads of a target that serve programs.
fn workers(p: &mut Page, w: &WorkerStatistics) {
    for (name, help, value) in [
        ("threads", "Threads of the target that serve programs.", w.workers),
        ("connections", "Connections of programs that they serve.", w.connections),
        ("helpers_most", "Helpers of them that were busy at one time, at most.", w.most_helpers),
    ] {
        p.one(&format!("siftfs_device_worker_{name}"), "gauge", help, value as f64);
    }
    for (name, help, value) in [
        ("begun", "Requests of programs that a worker has begun by itself.", w.begun),
        ("helped", "Requests that a helper was given.", w.helped),
        ("waited", "Waits of such requests for a helper.", w.waited),
        ("broken", "Connections of programs that broke.", w.broken),
    ] {
        p.one(&format!("siftfs_device_worker_{name}_total"), "counter", help, value as f64);
    }
}

fn space(p: &mut Page, s: &Status) {
    let r = &s.runtime;
    p.one("siftfs_journal_bytes", "gauge", "Size of the journal.", r.log.journal_bytes as f64);
    p.one("siftfs_journal_used_bytes", "gauge", "Journal in use.", r.log.journal_used as f64);
    for (name, help, of) in [
        ("siftfs_staging_bytes", "Size of a staging lane.", (|l| l.bytes) as fn(&Lane) -> u64),
        ("siftfs_staging_used_bytes", "Lane in use.", |l| l.used),
    ] {
        p.family(name, "gauge", help);
        for (i, lane) in r.log.lanes.iter().enumerate() {
            p.sample(name, &[("lane", &i.to_string())], of(lane) as f64);
        }
    }
    p.one(
        "siftfs_quarantined_blocks",
        "gauge",
        "Freed blocks not to be used again yet.",
        r.credits.quarantined_blocks as f64,
    );
    p.one("siftfs_dirty_bytes", "gauge", "Unsynced file data.", r.cache.dirty_bytes as f64);
    p.one(
        "siftfs_pending_name_operations",
        "gauge",
        "Name operations not durable yet.",
        r.pending.name_operations as f64,
    );
    let o = &r.operations;
    p.one("siftfs_open_tickets", "gauge", "Tickets not durable.", o.tickets as f64);
    p.one("siftfs_open_sections", "gauge", "Atomic sections not ended.", o.sections as f64);
    p.one("siftfs_file_locks", "gauge", "Locks on files of shared mounts.", o.locks as f64);
    p.one("siftfs_file_lock_waits", "gauge", "Requests waiting for one.", o.lock_waits as f64);
    p.one("siftfs_direct_writers", "gauge", "Direct files written.", o.direct_writers as f64);
    p.one("siftfs_direct_readers", "gauge", "Direct files read.", o.direct_readers as f64);
    p.one("siftfs_direct_recalls_total", "counter", "Taken back.", o.direct_recalls as f64);
    p.one("siftfs_section_bytes", "gauge", "Memory of sections.", o.section_bytes as f64);
    p.one(
        "siftfs_cache_pages",
        "gauge",
        "Pages of 4096 bytes in the page cache.",
        r.cache.pages as f64,
    );
    p.one(
        "siftfs_cache_metadata_blocks",
        "gauge",
        "Metadata blocks in memory.",
        r.cache.metadata_blocks as f64,
    );
    p.one("siftfs_cache_inodes", "gauge", "Inodes in memory.", r.cache.inodes as f64);
}

fn storage(p: &mut Page, s: &Status) {
    io_families(p, "siftfs_io", "to the volume by the mount's process", &s.runtime.storage);
}

/// I/O by region and origin.
fn io_families(p: &mut Page, prefix: &str, whose: &str, io: &RegionCounts) {
    type Field = (&'static str, fn(&IoCounts) -> u64);
    let families: [(&str, &str, &[Field]); 3] = [
        (
            "total",
            "I/Os issued",
            &[
                ("read", |i| i.reads),
                ("write", |i| i.writes),
                ("flush", |i| i.flushes),
                ("discard", |i| i.discards),
            ],
        ),
        (
            "bytes_total",
            "Bytes of I/Os issued",
            &[
                ("read", |i| i.read_bytes),
                ("write", |i| i.write_bytes),
                ("discard", |i| i.discard_bytes),
            ],
        ),
        ("errors_total", "Failed I/Os issued", &[("any", |i| i.errors)]),
    ];
    for (name, help, kinds) in families {
        let name = format!("{prefix}_{name}");
        p.family(&name, "counter", &format!("{help} {whose}."));
        for (region, origins) in io.by_name() {
            for (origin, io) in origins.by_name() {
                for (kind, of) in kinds {
                    let labels = [("region", region), ("origin", origin), ("kind", *kind)];
                    p.sample(&name, &labels, of(io) as f64);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
pub(crate) mod tests;
