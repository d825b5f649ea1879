//! Understands `-o`: the options of the table, and the words of mount(8)'s that mean nothing here
//! or cannot be kept to.

use crate::options::given::{Given, MIN_CACHE};
use crate::options::parsed::Options;
use crate::options::table;
use siftfs_fuse::{MountOptions, Priority, WriteCache};
use siftfs_placement::MIN_MEMORY;

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

/// ext4's words for a mount without recovery, which are refused.
const NO_RECOVERY: [&str; 2] = ["noload", "norecovery"];

/// Why they are.
const WHY_RECOVERY: &str = "a volume that was not unmounted cannot be read without its log, for its ext4 area \
                           may be half of a checkpoint; mount it with ro alone, which recovers it first, \
                           or look at it with `siftfs inspect`";

/// Why a mount with the writeback cache has no private logs.
const NO_LOGS: &str = "private_logs=on and write_cache=writeback exclude each other: the kernel owns sizes and times of \
                       files there";
/// Why a mount without operations has none.
const NO_GRANT: &str = "private_logs=on and operations=off exclude each other: programs ask for a log by one of the operations";
/// Why a shared mount has no writeback cache.
const NOT_SHARED: &str = "shared and write_cache=writeback exclude each other: other mounts would not see what the \
                          kernel holds back; leave one of them out";

/// Options whose value is a name that means nothing here; `user=NAME` is what mount(8) keeps.
const NAMES: [&str; 4] = ["fsname", "context", "comment", "user"];

/// Parses the lists in order; a later option wins. With `sloppy`, unknown options are passed over
/// (mount(8)'s `-s`).
///
/// # Errors
/// A message naming the option that is unknown or has a wrong value.
pub fn parse(lists: &[String], sloppy: bool) -> Result<Options, String> {
    parse_onto(Options { mount: usual(), ..Options::default() }, lists, sloppy)
}

/// A mount's own options where nothing is said.
pub fn usual() -> MountOptions {
    // The daemon handles SIGXCPU, which that needs.
    MountOptions { priority: Priority::Nice, ..MountOptions::default() }
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
            Some((name, value)) => (name, set_value(&mut o, Given { name, value })?),
            None => (option, set_word(&mut o, option)?),
        };
        if !known && !sloppy {
            return Err(format!(
                "unknown mount option `{name}`; mount.siftfs(8) has those there are"
            ));
        }
    }
    let writeback = o.mount.write_cache == WriteCache::Writeback;
    if o.mount.shared && writeback {
        return Err(NOT_SHARED.into());
    }
    if o.mount.private_logs && writeback {
        return Err(NO_LOGS.into());
    }
    if o.mount.private_logs && !o.mount.operations {
        return Err(NO_GRANT.into());
    }
    Ok(o)
}

/// False if there is no such word.
fn set_word(o: &mut Options, word: &str) -> Result<bool, String> {
    if let Some((set, meant)) = table::word(word) {
        set(o, meant);
        return Ok(true);
    }
    if NO_RECOVERY.contains(&word) {
        return Err(format!("{word}: {WHY_RECOVERY}"));
    }
    match NOT_KEPT.iter().find(|(kept, _)| *kept == word) {
        Some((word, why)) => Err(format!("{word}: {why}")),
        None => Ok(IGNORED.contains(&word) || is_private(word)),
    }
}

/// Options that are for programs around mount(8), such as `x-systemd.automount`.
fn is_private(name: &str) -> bool {
    name.starts_with("x-") || name.starts_with("X-")
}

/// False if there is no such option.
fn set_value(o: &mut Options, given: Given<'_>) -> Result<bool, String> {
    let Given { name, value } = given;
    if let Some(set) = table::value_of(name) {
        return set(o, given).map(|()| true);
    }
    if is_private(name) || NAMES.contains(&name) {
        return Ok(true);
    }
    // A flag with a value is not one of its own that may be passed over.
    if set_word(&mut o.clone(), name)? {
        return Err(format!("{name}={value}: {name} has no value"));
    }
    Ok(false)
}

#[cfg(test)]
#[path = "mount_tests.rs"]
mod tests;
