//! `-o` options.

use crate::size::parse_size;
use siftfs_fuse::MountOptions;
use siftfs_placement::OpenOptions;

/// Everything that `-o` can say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// For the kernel.
    pub mount: MountOptions,
    /// For the volume.
    pub open: OpenOptions,
}

/// Options that fstab and mount(8) use and a helper does not see a meaning in.
const IGNORED: [&str; 22] = [
    "defaults",
    "rw",
    "suid",
    "dev",
    "exec",
    "async",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "atime",
    "noatime",
    "relatime",
    "strictatime",
    "diratime",
    "nodiratime",
    "default_permissions",
];

/// Parses the lists in order; a later option wins.
///
/// # Errors
/// A message naming the option that is unknown or has a wrong value.
pub fn parse(lists: &[String]) -> Result<Options, String> {
    let mut o = Options::default();
    for option in lists.iter().flat_map(|l| l.split(',')).filter(|s| !s.is_empty()) {
        match option.split_once('=') {
            Some((name, value)) => set_value(&mut o, name, value)?,
            None => set_flag(&mut o, option)?,
        }
    }
    Ok(o)
}

fn set_flag(o: &mut Options, flag: &str) -> Result<(), String> {
    match flag {
        "ro" => {
            o.mount.read_only = true;
            o.open.read_only = true;
        }
        "nosuid" => o.mount.nosuid = true,
        "nodev" => o.mount.nodev = true,
        "noexec" => o.mount.noexec = true,
        "sync" => o.mount.sync = true,
        "allow_other" => o.mount.allow_other = true,
        "noallow_other" => o.mount.allow_other = false,
        "nodirect" => o.open.direct = false,
        "nouring" => o.open.uring = false,
        f if IGNORED.contains(&f) || f.starts_with("x-") => {}
        f => return Err(format!("unknown mount option `{f}`")),
    }
    Ok(())
}

fn set_value(o: &mut Options, name: &str, value: &str) -> Result<(), String> {
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
        "threads" => o.mount.threads = usize::try_from(number(1, 64)?).unwrap_or(4),
        "commit" => o.open.commit_ms = milliseconds(value)?,
        "cache" => o.open.page_cache = cache_size(name, value)?,
        "meta_cache" => o.open.meta_cache = cache_size(name, value)?,
        "group_wait" => o.open.group_wait_us = number(0, 100_000)?,
        "low_watermark" => o.open.low_watermark = u8::try_from(number(1, 99)?).unwrap_or(50),
        n if n.starts_with("x-") || n == "fsname" || n == "context" => {}
        n => return Err(format!("unknown mount option `{n}`")),
    }
    Ok(())
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

fn cache_size(name: &str, value: &str) -> Result<u64, String> {
    match parse_size(value)? {
        n if n >= 8 << 20 => Ok(n),
        _ => Err(format!("{name}={value}: at least 8M")),
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
