//! The caller of a request: its rights, its groups, and the process that it is.
//!
//! A request brings a user, a group and the number of a thread. All else is read from the status
//! of that thread, which waits for our answer meanwhile.

use rustix::time::{ClockId, clock_gettime};
use siftfs_proto::{Attr, Credentials, FileKind, Rights};

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;
/// The user of a request that does not say whose it is.
pub(crate) const UNKNOWN: u32 = u32::MAX;
/// The right to give files away.
const CAP_CHOWN: u32 = 0;
/// The right to go everywhere.
const CAP_DAC_OVERRIDE: u32 = 1;
/// The right to read everything, and to search every directory.
const CAP_DAC_READ_SEARCH: u32 = 2;
/// The right to change what one does not own.
const CAP_FOWNER: u32 = 3;
/// The right to keep set-id bits over a change.
const CAP_FSETID: u32 = 4;
/// The right to make files immutable.
const CAP_LINUX_IMMUTABLE: u32 = 9;
/// The right to make device files.
const CAP_MKNOD: u32 = 27;
/// The right to administer the system: to see `trusted.` attributes, to trim, and many more.
const CAP_SYS_ADMIN: u32 = 21;
/// The right to set and remove file capabilities.
const CAP_SETFCAP: u32 = 31;
/// Whether files are protected against links by users who may not write them: 0 if not.
const PROTECTED_HARDLINKS: &str = "/proc/sys/fs/protected_hardlinks";

/// Does a change by this caller clear setgid of a file whose group may not execute it? It does
/// unless the caller is in the file's group or may keep set-id bits.
pub(crate) fn takes_setgid(cred: &Credentials, attr: &Attr) -> bool {
    let alone = attr.perm & (S_ISGID | S_IXGRP) == S_ISGID && attr.kind != FileKind::Directory;
    alone && !in_group(cred, attr.gid) && !capable(cred, CAP_FSETID)
}

/// Has the file set-id bits that a change by this caller takes away?
pub(crate) fn has_bits(cred: &Credentials, attr: &Attr) -> bool {
    let both = S_ISGID | S_IXGRP;
    attr.perm & S_ISUID != 0 || attr.perm & both == both || takes_setgid(cred, attr)
}

/// May the caller keep set-id bits over a change?
pub(crate) fn keeps_bits(cred: &Credentials) -> bool {
    capable(cred, CAP_FSETID)
}

/// Has the file set-id bits at all?
pub(crate) fn any_bits(attr: &Attr) -> bool {
    attr.perm & (S_ISUID | S_ISGID) != 0
}

/// May the caller change the file's attributes?
pub(crate) fn owns(cred: &Credentials, attr: &Attr) -> bool {
    cred.uid == attr.uid || capable(cred, CAP_FOWNER)
}

/// May the caller remove the file's capabilities because it wants to?
pub(crate) fn may_set_capabilities(cred: &Credentials) -> bool {
    capable(cred, CAP_SETFCAP)
}

/// May the caller see what is root's alone, and do what concerns the whole volume?
pub(crate) fn administers(cred: &Credentials) -> bool {
    capable(cred, CAP_SYS_ADMIN)
}

/// May the caller do everything in directories, and with the files of all users?
pub(crate) fn may_do_all(cred: &Credentials) -> bool {
    [CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER].iter().all(|c| capable(cred, *c))
}

/// The user that the thread acts as, as its status says.
pub(crate) fn acting_user(pid: u32) -> Option<u32> {
    // Real, effective, saved, and the one that counts for files.
    status(pid, "Uid:")?.split_whitespace().nth(3)?.parse().ok()
}

/// What the caller may do in directories that the kernel has not checked for it.
pub(crate) fn rights(cred: &Credentials) -> Rights {
    Rights {
        links_all: std::fs::read(PROTECTED_HARDLINKS).is_ok_and(|text| text.starts_with(b"0")),
        file_size: file_size_limit(cred.pid),
        ..groups_and_capabilities(cred, &whole_status(cred.pid).unwrap_or_default())
    }
}

/// What a server that checks callers is told of this one. A thread may ask with other credentials
/// than its own (an overlay, which copies a file up as the user that mounted it): then its status
/// says nothing of them, and they are root's, or those of a user without groups.
pub(crate) fn vouched(cred: &Credentials) -> Rights {
    let text = whole_status(cred.pid).unwrap_or_default();
    let own = field_of(&text, "Uid:").and_then(|ids| ids.split_whitespace().nth(3));
    let own: Option<u32> = own.and_then(|uid| uid.parse().ok());
    match own.is_none_or(|own| own == cred.uid) {
        true => groups_and_capabilities(cred, &text),
        false => groups_and_capabilities(cred, ""),
    }
}

/// The caller's groups, and what its capabilities come to, from the text of its status.
fn groups_and_capabilities(cred: &Credentials, text: &str) -> Rights {
    let groups = match cred.uid {
        UNKNOWN => "",
        _ => field_of(text, "Groups:").unwrap_or_default(),
    };
    let set = capabilities(cred, text);
    let can = |capability: u32| set & 1 << capability != 0;
    Rights {
        groups: groups.split_whitespace().filter_map(|g| g.parse().ok()).collect(),
        overrides_access: can(CAP_DAC_OVERRIDE),
        reads_all: can(CAP_DAC_READ_SEARCH),
        makes_devices: can(CAP_MKNOD),
        sets_fixed: can(CAP_LINUX_IMMUTABLE),
        sets_capabilities: can(CAP_SETFCAP),
        administers: can(CAP_SYS_ADMIN),
        owns_all: can(CAP_FOWNER),
        gives_away: can(CAP_CHOWN),
        keeps_set_id: can(CAP_FSETID),
        links_all: false,
        file_size: None,
        running: Vec::new(),
    }
}

/// How long a file may become by what this caller writes. write(2) would send it SIGXFSZ as well.
fn file_size_limit(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max file size"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Groups of a caller who may be mapped are not the file's.
fn in_group(cred: &Credentials, gid: u32) -> bool {
    if cred.uid == UNKNOWN {
        return false;
    }
    cred.gid == gid
        || status(cred.pid, "Groups:")
            .is_some_and(|list| list.split_whitespace().any(|g| g.parse() == Ok(gid)))
}

/// Has the caller this right over the mount? The request carries only its ids; the status of a
/// thread that waits for our answer can be read from /proc. If it cannot (another process
/// namespace), root has every right and any other user none.
fn capable(cred: &Credentials, capability: u32) -> bool {
    let text = whole_status(cred.pid).unwrap_or_default();
    capabilities(cred, &text) & 1 << capability != 0
}

/// The caller's capabilities over the mount, as bits, from the text of its status.
fn capabilities(cred: &Credentials, text: &str) -> u64 {
    let set = field_of(text, "CapEff:").and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    match set {
        // Those of nobody count for nothing in any name space.
        Some(0) if cred.uid != 0 => 0,
        Some(set) if same_user_namespace(cred.pid) => set,
        _ if cred.uid == 0 => u64::MAX,
        _ => 0,
    }
}

/// The caller's umask, which an ioctl does not bring.
pub(crate) fn umask(pid: u32) -> u16 {
    let octal = status(pid, "Umask:").and_then(|text| u16::from_str_radix(text.trim(), 8).ok());
    // Nobody else may do anything with what is made, rather than anybody anything.
    octal.unwrap_or(0o077)
}

/// A line of a thread's status.
pub(crate) fn status(pid: u32, field: &str) -> Option<String> {
    field_of(&whole_status(pid)?, field).map(str::to_string)
}

/// A thread's status; none for a caller whose number is not known.
fn whole_status(pid: u32) -> Option<String> {
    match pid {
        0 => None,
        pid => std::fs::read_to_string(format!("/proc/{pid}/status")).ok(),
    }
}

fn field_of<'a>(status: &'a str, field: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(field))
}

/// The process that a thread belongs to, if it can be known.
pub(crate) fn thread_group(pid: u32) -> Option<u32> {
    status(pid, "Tgid:")?.trim().parse().ok()
}

/// Nanoseconds since the machine began, its sleep included.
pub(crate) fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (sec, nsec) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    sec.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nsec.unwrap_or(0))
}

/// The process of the thread that had this number at that moment, in nanoseconds since the machine
/// began; none if that thread has ended.
pub(crate) fn process_then(pid: u32, at: u64) -> Option<u32> {
    if pid == 0 {
        return None;
    }
    let process = thread_group(pid)?;
    // Its start is the 22nd field; the second one is a name in brackets.
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let start: u64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let second = rustix::param::clock_ticks_per_second();
    let start = start.checked_mul(1_000_000_000)?.checked_div(second)?;
    // Another thread may have the number since.
    (start <= at).then_some(process)
}

/// Is this process there, and not at its end?
pub(crate) fn is_running(process: u32) -> bool {
    status(process, "State:").is_some_and(|state| !state.trim_start().starts_with(['Z', 'X']))
}

/// Is the process in our user namespace? Capabilities in another one count for nothing here.
fn same_user_namespace(pid: u32) -> bool {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let theirs = of(&pid.to_string());
    theirs.is_some() && theirs == of("self")
}

#[cfg(test)]
#[path = "caller_tests.rs"]
mod tests;
