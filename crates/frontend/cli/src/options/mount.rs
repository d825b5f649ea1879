//! `-o` options.

use crate::daemon::logging::{Format, Level};
use crate::daemon::memory::Place;
use crate::daemon::metrics_server::Address;
use crate::options::size::parse_size;
use clap::ValueEnum;
use siftfs_fuse::{MountOptions, Priority, Requests, WriteCache};
use siftfs_placement::{
    Address as ServiceAddress, Dial, MIN_MEMORY, OpenOptions, ServicePlace, TransportOptions,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Everything that `-o` can say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// For the kernel.
    pub mount: MountOptions,
    /// For the volume.
    pub open: OpenOptions,
    /// For the daemon.
    pub daemon: DaemonOptions,
    /// For the process that does the background work.
    pub service: ServiceOptions,
}

/// Which process does the background work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceOptions {
    /// Where that process listens; `None`: the daemon itself does it.
    pub address: Option<ServiceAddress>,
    /// How long it may be away before the daemon does.
    pub fallback: Option<Duration>,
    /// What the connection may cost.
    pub transport: TransportOptions,
}

impl ServiceOptions {
    /// As a volume is opened with.
    ///
    /// # Errors
    /// A message that says what does not go together.
    pub fn place(&self, read_only: bool) -> Result<Option<ServicePlace>, String> {
        let Some(address) = &self.address else {
            return match self.fallback {
                Some(_) => Err("service-fallback without a service: say --service ADDRESS".into()),
                None => Ok(None),
            };
        };
        if read_only {
            return Err("a read-only mount has no background work: leave the service out".into());
        }
        let dial = Dial { address: address.clone(), options: self.transport.clone() };
        Ok(Some(ServicePlace { connector: Arc::new(dial), fallback: self.fallback }))
    }
}

/// What `-o` says about the daemon itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaemonOptions {
    /// Where metrics are served.
    pub metrics: Option<Address>,
    /// How the log is written.
    pub log_format: Format,
    /// What the log holds.
    pub log_level: Option<Level>,
    /// Where the log goes.
    pub log_file: Option<PathBuf>,
    /// Whose memory it takes.
    pub memory_group: Place,
}

/// Options that fstab and mount(8) use and a helper does not see a meaning in.
const IGNORED: [&str; 13] = [
    "defaults",
    "auto",
    "noauto",
    "nouser",
    "noowner",
    "nogroup",
    "_netdev",
    "nofail",
    // What holds in any case.
    "nostrictatime",
    "nodiratime",
    "nolazytime",
    "norelatime",
    "default_permissions",
];

/// Words about times that cannot be kept to: an administrator who gives one relies on it.
const NOT_KEPT: [(&str, &str); 3] = [
    (
        "strictatime",
        "the kernel answers repeated reads from its cache, so that not every one is seen; leave it out (relatime \
         holds for those that are), or say noatime",
    ),
    ("diratime", "access times of directories are not kept; leave it out"),
    (
        "lazytime",
        "times are journaled with everything else, when they are commit= seconds old; leave it out",
    ),
];

/// Why ext4's words for a mount without recovery are.
const NO_RECOVERY: &str = "a volume that was not unmounted cannot be read without its log, for its ext4 area \
                           may be half of a checkpoint; mount it with ro alone, which recovers it first, \
                           or look at it with `siftfs inspect`";

/// Parses the lists in order; a later option wins. With `sloppy`, unknown options are passed over
/// (mount(8)'s `-s`).
///
/// # Errors
/// A message naming the option that is unknown or has a wrong value.
pub fn parse(lists: &[String], sloppy: bool) -> Result<Options, String> {
    // The daemon handles SIGXCPU, which that needs.
    let mount = MountOptions { priority: Priority::Nice, ..MountOptions::default() };
    parse_onto(Options { mount, ..Options::default() }, lists, sloppy)
}

/// As [`parse`], for a daemon that may take `limit` bytes together with other programs: what is not
/// said is no more than a part of that.
///
/// # Errors
/// As [`parse`].
pub fn parse_within(limit: u64, lists: &[String], sloppy: bool) -> Result<Options, String> {
    let mut o = parse(&[], false)?;
    let part = |of: u64, least: u64, usual: u64| (limit / of).max(least).min(usual);
    o.open.page_cache = part(4, MIN_CACHE, o.open.page_cache);
    o.open.meta_cache = part(16, MIN_CACHE, o.open.meta_cache);
    o.open.replay.memory = part(4, MIN_MEMORY, o.open.replay.memory);
    parse_onto(o, lists, sloppy)
}

/// As [`parse`]; what is not named stays as it is in `o`.
///
/// # Errors
/// As [`parse`].
pub fn parse_onto(mut o: Options, lists: &[String], sloppy: bool) -> Result<Options, String> {
    for option in lists.iter().flat_map(|l| l.split(',')).filter(|s| !s.is_empty()) {
        let (name, known) = match option.split_once('=') {
            Some((name, value)) => (name, set_value(&mut o, name, value)?),
            None => (option, set_flag(&mut o, option)?),
        };
        if !known && !sloppy {
            return Err(format!(
                "unknown mount option `{name}`; mount.siftfs(8) has those there are"
            ));
        }
    }
    Ok(o)
}

/// False if there is no such flag.
fn set_flag(o: &mut Options, flag: &str) -> Result<bool, String> {
    let m = &mut o.mount;
    match flag {
        "ro" | "rw" => {
            m.read_only = flag == "ro";
            o.open.read_only = flag == "ro";
        }
        "nosuid" | "suid" => m.nosuid = flag == "nosuid",
        "nodev" | "dev" => m.nodev = flag == "nodev",
        "noexec" | "exec" => m.noexec = flag == "noexec",
        "sync" | "async" => m.sync = flag == "sync",
        "idmap" => m.idmap = true,
        "allow_other" | "noallow_other" => m.allow_other = flag == "allow_other",
        // mount(8): these imply the others, unless a later option says otherwise.
        "user" | "users" => (m.nosuid, m.nodev, m.noexec) = (true, true, true),
        "owner" | "group" => (m.nosuid, m.nodev) = (true, true),
        "noatime" | "relatime" | "atime" => {
            m.noatime = flag == "noatime";
            o.open.noatime = flag == "noatime";
        }
        "discard" | "nodiscard" => o.open.discard = Some(flag == "discard"),
        "nodirect" => o.open.direct = false,
        "nouring" => o.open.uring = false,
        "noload" | "norecovery" => return Err(format!("{flag}: {NO_RECOVERY}")),
        f => match NOT_KEPT.iter().find(|(word, _)| *word == f) {
            Some((word, why)) => return Err(format!("{word}: {why}")),
            None => return Ok(IGNORED.contains(&f) || is_private(f)),
        },
    }
    Ok(true)
}

/// Options that are for programs around mount(8), such as `x-systemd.automount`.
fn is_private(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-")
}

/// False if there is no such option.
fn set_value(o: &mut Options, name: &str, value: &str) -> Result<bool, String> {
    let number = |low: u64, high: u64| match value.parse::<u64>() {
        Ok(n) if (low..=high).contains(&n) => Ok(n),
        _ => Err(format!("{name}={value}: not a number from {low} to {high}")),
    };
    match name {
        "subtype" => {
            let odd = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_';
            if value.contains(odd) {
                return Err(format!("subtype={value}: letters and digits only"));
            }
            o.mount.subtype = Some(value.to_string()).filter(|v| !v.is_empty());
        }
        "log" if value.is_empty() => return Err("log=: no path".into()),
        "log" => o.open.log = Some(value.into()),
        "record_area" => {
            let place = value.parse().map_err(|e| format!("record_area={value}: {e}"))?;
            o.open.record_area_at = Some(place);
        }
        "record_max" => {
            o.open.record_area.most = match value {
                "0" => 0,
                size => parse_size(size).map_err(|e| format!("record_max={size}: {e}"))?,
            }
        }
        "record_share" => {
            o.open.record_area.percent = u8::try_from(number(1, 100)?).unwrap_or(100);
        }
        "record_physical" => o.open.record_area.physical = switch(name, value, "on")?,
        "discard" => o.open.discard = Some(switch(name, value, "online")?),
        "record_read_back" => {
            o.open.record_read_back = Duration::from_nanos(number(0, 1_000_000)?);
        }
        "service" => {
            let address = value.parse().map_err(|e| format!("service={value}: {e}"))?;
            o.service.address = Some(address);
        }
        "service_fallback" => {
            o.service.fallback = Some(Duration::from_secs(number(0, 86_400)?));
        }
        "service_spin" => {
            o.service.transport.spin = Duration::from_micros(number(0, MAX_SPIN)?);
        }
        "service_memory" => {
            o.service.transport.shared_memory =
                parse_arena(value).map_err(|e| format!("{name}={e}"))?;
        }
        "replay" => {
            o.open.replay.mode = value.parse().map_err(|e| format!("replay={value}: {e}"))?;
        }
        "checkpoint_memory" => {
            o.open.replay.memory = parse_memory(value).map_err(|e| format!("{name}={e}"))?;
        }
        "metrics" => o.daemon.metrics = Some(Address::parse(value)?),
        "memory_group" => o.daemon.memory_group = value.parse()?,
        "log_format" => {
            o.daemon.log_format = match value {
                "text" => Format::Text,
                "json" => Format::Json,
                _ => return Err(format!("log_format={value}: neither text nor json")),
            }
        }
        "log_level" => {
            let level = Level::from_str(value, false);
            let what = format!("log_level={value}: not one of error, warn, info, debug, trace");
            o.daemon.log_level = Some(level.map_err(|_| what)?);
        }
        "log_file" if !value.starts_with('/') => {
            return Err(format!("log_file={value}: not an absolute path"));
        }
        "log_file" => o.daemon.log_file = Some(value.into()),
        "write_cache" => {
            o.mount.write_cache = match value {
                "writeback" => WriteCache::Writeback,
                "writethrough" => WriteCache::Writethrough,
                _ => {
                    return Err(format!("write_cache={value}: neither writeback nor writethrough"));
                }
            }
        }
        "operations" => {
            o.mount.operations = switch(name, value, "on")?;
        }
        "threads" => o.mount.threads = usize::try_from(number(1, 64)?).unwrap_or(4),
        "requests" => {
            o.mount.requests = match value {
                "auto" => Requests::Auto,
                "ring" => Requests::Ring,
                "device" => Requests::Device,
                _ => return Err(format!("requests={value}: not one of auto, ring, device")),
            }
        }
        "priority" => {
            o.mount.priority = match value {
                "normal" => Priority::Normal,
                "slice" => Priority::Slice,
                "nice" => Priority::Nice,
                "realtime" => Priority::Realtime,
                _ => {
                    let all = "normal, slice, nice, realtime";
                    return Err(format!("priority={value}: not one of {all}"));
                }
            }
        }
        "commit" => {
            o.open.commit_ms = milliseconds(value)?;
            o.mount.write_back_every = Duration::from_millis(o.open.commit_ms / 2);
        }
        "cache" => o.open.page_cache = cache_size(name, value)?,
        "meta_cache" => o.open.meta_cache = cache_size(name, value)?,
        "group_wait" => o.open.group_wait_us = number(0, 100_000)?,
        "fsyncs" => {
            let what = || format!("fsyncs={value}: not one of auto, shared, parallel");
            o.open.group = value.parse().map_err(|()| what())?;
        }
        "low_watermark" => o.open.low_watermark = u8::try_from(number(1, 99)?).unwrap_or(50),
        n if is_private(n) || ["fsname", "context", "comment", "user"].contains(&n) => {}
        // A flag with a value is not one of its own that may be passed over.
        n if set_flag(&mut o.clone(), n)? => return Err(format!("{n}={value}: {n} has no value")),
        _ => return Ok(false),
    }
    Ok(true)
}

/// The word `on`, or `off`.
fn switch(name: &str, value: &str, on: &str) -> Result<bool, String> {
    match value {
        "off" => Ok(false),
        other if other == on => Ok(true),
        _ => Err(format!("{name}={value}: {on} or off")),
    }
}

/// Seconds, also in parts, from 0.01 to an hour.
fn milliseconds(value: &str) -> Result<u64, String> {
    let wrong = || format!("commit={value}: not a number of seconds from 0.01 to 3600");
    let (whole, part) = value.split_once('.').unwrap_or((value, "0"));
    if part.is_empty() || part.len() > 3 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = format!("{part:0<3}").parse().map_err(|_| wrong())?;
    match whole.checked_mul(1000).map(|ms| ms + part) {
        Some(ms) if (10..=3_600_000).contains(&ms) => Ok(ms),
        _ => Err(wrong()),
    }
}

/// Smallest of each cache, in bytes.
const MIN_CACHE: u64 = 8 << 20;

fn cache_size(name: &str, value: &str) -> Result<u64, String> {
    match parse_size(value).map_err(|e| format!("{name}={value}: {e}"))? {
        n if n >= MIN_CACHE => Ok(n),
        _ => Err(format!("{name}={value}: at least 8M")),
    }
}

/// Memory of a checkpoint, in bytes.
///
/// # Errors
/// A message that says what is possible.
pub fn parse_memory(value: &str) -> Result<u64, String> {
    let bytes = parse_size(value).map_err(|e| format!("{value}: {e}"))?;
    if bytes < MIN_MEMORY {
        return Err(format!("{value}: a checkpoint needs at least {}M", MIN_MEMORY >> 20));
    }
    Ok(bytes)
}

/// Most microseconds that a wait for the other side may spin.
pub const MAX_SPIN: u64 = 10_000;
/// Most bytes of memory shared with a device process.
const MAX_ARENA: u64 = 1 << 30;

/// `service_memory=`.
fn parse_arena(value: &str) -> Result<u64, String> {
    if value == "0" {
        return Ok(0);
    }
    let bytes = parse_size(value).map_err(|e| format!("{value}: {e}"))?;
    if bytes > MAX_ARENA {
        return Err(format!("{value}: at most {}M can be shared", MAX_ARENA >> 20));
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "mount_tests.rs"]
mod tests;
