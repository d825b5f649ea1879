//! What `-o` takes, for people: the help text and the man pages are made of it.

/// One option.
pub struct MountOption {
    /// As it is written.
    pub usage: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What the option does.
    pub meaning: &'static str,
}

const fn option(usage: &'static str, default: &'static str, meaning: &'static str) -> MountOption {
    MountOption { usage, default, meaning }
}

/// All options that mean something here.
pub const OPTIONS: &[MountOption] = &[
    option("ro", "rw", "refuse every change; a volume that was not unmounted is recovered first"),
    option("nosuid", "suid", "ignore setuid, setgid and file capabilities"),
    option("nodev", "dev", "ignore device files"),
    option("noexec", "exec", "refuse to run programs"),
    option("user, users", "off", "imply nosuid, nodev and noexec, unless a later option differs"),
    option("owner, group", "off", "imply nosuid and nodev, unless a later option differs"),
    option(
        "noatime",
        "relatime",
        "keep no access times; those of directories are not kept in any case",
    ),
    option("sync", "async", "every write as if the file were opened with O_SYNC"),
    option("allow_other", "on for root", "let other users in (the kernel checks permissions)"),
    option("noallow_other", "on for others", "the mounting user alone may use it"),
    option(
        "idmap",
        "off",
        "bind mounts of it may map users to others (Linux 6.12); the daemon then knows fewer callers",
    ),
    option("subtype=NAME", "siftfs", "the mount's type is `fuse.NAME`; empty: plain `fuse`"),
    option("commit=SECONDS", "5", "age at which unsynced changes are journaled; 0.01 to 3600"),
    option(
        "write_cache=MODE",
        "writethrough",
        "where write(2) leaves data: writeback (the kernel's page cache, until fsync, close or age) or \
         writethrough (the daemon)",
    ),
    option("cache=SIZE", "256M", "page cache, at least 8M"),
    option("meta_cache=SIZE", "64M", "cache of clean metadata blocks, at least 8M"),
    option(
        "group_wait=MICROSECONDS",
        "1000",
        "how long a flush may wait for other fsyncs to share it",
    ),
    option(
        "fsyncs=MODE",
        "auto",
        "those that come together: shared (one flush for all), parallel (each a durable write), or \
         auto (what measures better)",
    ),
    option(
        "low_watermark=PERCENT",
        "50",
        "free share of staging or journal below which a background checkpoint starts",
    ),
    option(
        "discard=WHEN",
        "online, where that is of use",
        "whether freed blocks go back to what the volume lies on: online (after the checkpoint that frees them) or \
         off (only when `siftfs trim` is run); off is the default where the volume's file has no hole; \
         discard and nodiscard mean the same",
    ),
    option(
        "replay=MODE",
        "auto",
        "how this process's checkpoints replay: ordered, coalesce (what is left of a batch), or \
         auto; a `siftfs device` process has its own --replay",
    ),
    option(
        "checkpoint_memory=SIZE",
        "256M",
        "memory that a checkpoint of this process may take, at least 64M; a `siftfs device` \
         process has its own --memory",
    ),
    option(
        "memory_group=MODE",
        "auto",
        "the memory control group that the daemon is in: own, stay (that of the program that mounts), or \
         auto (own where the kernel could let it wait for its own mount)",
    ),
    option("log=PATH", "searched for", "where the log is, if not with the volume"),
    option(
        "record_area=PLACE",
        "where it was",
        "where the record area is, if the volume has one: PATH, pmr:DDDD:BB:DD.F or volatile:PATH",
    ),
    option(
        "record_max=SIZE",
        "12K",
        "bytes of file data up to which an fsync goes to the record area; 0: no fsync does",
    ),
    option(
        "record_share=PERCENT",
        "100",
        "and share of the dirty pages that these bytes may be, 1 to 100",
    ),
    option(
        "record_physical=SWITCH",
        "on",
        "on or off: whether what overwrites mapped blocks names them in the record area, so that \
         the journal says nothing of it",
    ),
    option(
        "record_read_back=NANOSECONDS",
        "0",
        "for measurements: what each persist of a volatile: record area takes longer, at most \
         1000000",
    ),
    option(
        "service=ADDRESS",
        "the mount itself",
        "the `siftfs device` process that does the background work: unix:PATH or tcp:HOST:PORT",
    ),
    option(
        "service_fallback=SECONDS",
        "off",
        "when that process has been away for so long, the mount does the work until it is back",
    ),
    option(
        "service_spin=MICROSECONDS",
        "20",
        "how long to spin for that process's answer before sleeping, at most 10000; 0 never spins",
    ),
    option(
        "service_memory=SIZE",
        "16M",
        "memory shared with that process through a unix address, at most 1G; 0: all through the socket",
    ),
    option(
        "operations=SWITCH",
        "on",
        "on or off: whether programs have publish, compounds, tickets and atomic sections",
    ),
    option("threads=N", "2", "threads that stay ready to read a request, 1 to 64"),
    option(
        "requests=MODE",
        "auto",
        "how the kernel's requests come: ring (FUSE over io_uring, on the program's own \
         processor; root switches it on in the kernel), device (/dev/fuse), or auto: ring where \
         it is switched on",
    ),
    option(
        "priority=HOW",
        "nice",
        "how soon request threads get a busy processor: normal, slice (a short one), nice (that, \
         and nice -10) or realtime (SCHED_RR, for root; a thread that computes for 0.2 s without \
         a wait ends it for all, and after 5 s the kernel ends the daemon)",
    ),
    option(
        "metrics=ADDRESS",
        "off",
        "serve Prometheus' text format at 127.0.0.1:PORT or on a unix socket's path",
    ),
    option("log_file=PATH", "nowhere", "where the daemon writes its log"),
    option("log_level=LEVEL", "info", "what the log holds: error, warn, info, debug or trace"),
    option("log_format=FORMAT", "text", "text, or json: one document per line"),
    option("nodirect", "off", "no O_DIRECT on the volume"),
    option("nouring", "off", "no io_uring on the volume"),
];

/// The rest of the words.
pub const OTHERS: &str = "mount(8)'s other usual words (defaults, auto, noauto, nofail, _netdev, \
                          x-...) are accepted and mean nothing here. strictatime, diratime and lazytime \
                          cannot be kept to and are refused. remount changes a mount: see mount.siftfs(8).";

/// For `siftfs mount --help`.
pub fn help() -> String {
    let width = OPTIONS.iter().map(|o| o.usage.len()).max().unwrap_or(0);
    let mut text = String::from("Mount options (-o):\n");
    for o in OPTIONS {
        text.push_str(&format!("  {:width$}  {} [default: {}]\n", o.usage, o.meaning, o.default));
    }
    text.push('\n');
    text.push_str(OTHERS);
    text
}

#[cfg(test)]
#[path = "option_list_tests.rs"]
mod tests;
