//! The status document in Prometheus' text format.

use crate::view::{Io, Latency, Status};
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

    fn histogram(&mut self, name: &str, help: &str, latency: &Latency) {
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
    latencies(&mut p, s);
    fsyncs(&mut p, s);
    background(&mut p, s);
    space(&mut p, s);
    storage(&mut p, s);
    p.0
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
        "Checkpoints whose end somebody waited for.",
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
        "siftfs_checkpoint_blocks_total",
        "counter",
        "Blocks replayed into the ext4 area.",
        c.checkpoint_total.surviving_blocks as f64,
    );
    p.one(
        "siftfs_checkpoint_written_bytes_total",
        "counter",
        "Bytes written by it.",
        c.checkpoint_total.write_bytes as f64,
    );
    p.one(
        "siftfs_unreclaimed_transactions",
        "gauge",
        "Transactions not in the ext4 area yet.",
        s.runtime.unreclaimed_transactions as f64,
    );
}

fn space(p: &mut Page, s: &Status) {
    let r = &s.runtime;
    p.one("siftfs_journal_bytes", "gauge", "Size of the journal.", r.log.journal_bytes as f64);
    p.one("siftfs_journal_used_bytes", "gauge", "Journal in use.", r.log.journal_used as f64);
    for (name, help, of) in [
        (
            "siftfs_staging_bytes",
            "Size of a staging lane.",
            (|l| l.bytes) as fn(&crate::view::Lane) -> u64,
        ),
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
    type Field = (&'static str, fn(&Io) -> u64);
    let families: [(&str, &str, &[Field]); 3] = [
        (
            "siftfs_io_total",
            "I/Os issued to the volume.",
            &[("read", |i| i.reads), ("write", |i| i.writes), ("flush", |i| i.flushes)],
        ),
        (
            "siftfs_io_bytes_total",
            "Bytes of them.",
            &[("read", |i| i.read_bytes), ("write", |i| i.write_bytes)],
        ),
        ("siftfs_io_errors_total", "I/Os that failed.", &[("any", |i| i.errors)]),
    ];
    for (name, help, kinds) in families {
        p.family(name, "counter", help);
        for (region, origins) in &s.runtime.storage {
            for (origin, io) in origins {
                for (kind, of) in kinds {
                    let labels = [("region", &**region), ("origin", &**origin), ("kind", *kind)];
                    p.sample(name, &labels, of(io) as f64);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
pub(crate) mod tests;
