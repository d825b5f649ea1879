//! The limits of setrlimit(2) that this process was started with. They are meant for a job of the
//! user who starts it, and a daemon, which serves everybody's, would fail or be killed halfway by
//! them. Those in the way are lifted as far as that is allowed; what is left is said.

use crate::options::size::show_size;
use crate::show::failure::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use siftfs_placement::parts_of;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// A limit that may be in the way.
struct Limit {
    resource: Resource,
    /// As setrlimit(2) and the shell's `ulimit` call it, and in words.
    name: &'static str,
    flag: char,
    what: &'static str,
    /// A limit of this size or more counts as unlimited.
    enough: u64,
}

const fn limit(
    (resource, name, flag): (Resource, &'static str, char),
    what: &'static str,
    enough: u64,
) -> Limit {
    Limit { resource, name, flag, what, enough }
}

/// Open files: volume, log, rings for each processor, sockets of commands. The stack is the first
/// thread's, which opens and closes the volume. Memory that may be locked is the rings'.
static LIMITS: [Limit; 8] = [
    limit((Resource::Fsize, "RLIMIT_FSIZE", 'f'), "the size of files", u64::MAX),
    limit((Resource::As, "RLIMIT_AS", 'v'), "address space", u64::MAX),
    limit((Resource::Data, "RLIMIT_DATA", 'd'), "memory", u64::MAX),
    limit((Resource::Cpu, "RLIMIT_CPU", 't'), "seconds of processor time", u64::MAX),
    limit((Resource::Nofile, "RLIMIT_NOFILE", 'n'), "open files", 4096),
    limit((Resource::Nproc, "RLIMIT_NPROC", 'u'), "processes and threads", 4096),
    limit((Resource::Memlock, "RLIMIT_MEMLOCK", 'l'), "locked memory", 8 << 20),
    limit((Resource::Stack, "RLIMIT_STACK", 's'), "the stack", 8 << 20),
];
/// Memory that a mount takes besides what its options name.
const BESIDES: u64 = 256 << 20;

/// A limit that could not be lifted.
#[derive(Clone, Copy)]
pub struct Left {
    limit: &'static Limit,
    is: u64,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { name, flag, what, .. } = self.limit;
        let is = self.is;
        write!(
            f,
            "the limit of {what} ({name}, `ulimit -{flag}`) is {is}, and only CAP_SYS_RESOURCE may lift it"
        )
    }
}

static LEFT: OnceLock<Vec<Left>> = OnceLock::new();

/// A write past the limit of file sizes is an error of that write, and does not kill the process.
/// A program that this one becomes or starts has the signal as it was.
///
/// # Errors
/// The signal's handler cannot be set.
pub fn outlive_large_files() -> io::Result<()> {
    let seen = std::sync::Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(libc::SIGXFSZ, seen).map(drop)
}

/// Lifts the limits that are in the way of work on a volume; called before a thread is started.
pub fn lift() {
    let left = LIMITS.iter().filter_map(lift_one).collect();
    // A process does one command.
    let _ = LEFT.set(left);
}

fn lift_one(limit: &'static Limit) -> Option<Left> {
    let Rlimit { current, maximum } = getrlimit(limit.resource);
    let enough = |value: Option<u64>| value.is_none_or(|v| v >= limit.enough);
    if enough(current) {
        return None;
    }
    let wanted = (limit.enough != u64::MAX).then_some(limit.enough);
    let hard = if enough(maximum) { maximum } else { wanted };
    let lifted = setrlimit(limit.resource, Rlimit { current: wanted, maximum: hard });
    if lifted.is_ok() {
        return None;
    }
    // Up to the hard limit every process may.
    let all = setrlimit(limit.resource, Rlimit { current: maximum, maximum });
    let is = if all.is_ok() { maximum } else { current };
    Some(Left { limit, is: is.unwrap_or(u64::MAX) })
}

/// The limits that are in the way still.
pub fn left() -> &'static [Left] {
    LEFT.get().map_or(&[], |left| left)
}

fn left_of(resource: Resource) -> Option<&'static Left> {
    left().iter().find(|l| l.limit.resource == resource)
}

/// Refuses work on files that are larger than what may be written: it would fail halfway.
///
/// # Errors
/// Which of the files, and the limit.
pub fn check_files<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    let Some(left) = left_of(Resource::Fsize) else { return Ok(()) };
    for file in files.into_iter().flat_map(parts_of) {
        let large = std::fs::metadata(&file).is_ok_and(|m| m.is_file() && m.len() > left.is);
        if large {
            return Err(Failure::about(
                &file,
                format!("it is larger than what may be written: {left}"),
            ));
        }
    }
    Ok(())
}

/// Refuses a mount that would run out of memory which it may not have. `options` is what its
/// options let it take.
///
/// # Errors
/// Both numbers, and the limit.
pub fn check_memory(options: u64) -> Result<(), Failure> {
    let all = options.saturating_add(BESIDES);
    let tight = [Resource::As, Resource::Data].into_iter().filter_map(left_of).find(|l| l.is < all);
    match tight {
        None => Ok(()),
        Some(left) => Err(Failure::plain(format!(
            "this mount may come to take {}, and {left}; smaller cache=, meta_cache= and \
             checkpoint_memory= take less",
            show_size(all)
        ))),
    }
}

/// A message with the limit behind it that explains it, if one does.
pub fn explained(message: String) -> String {
    let explains = |(resource, errno): (Resource, i32)| {
        let seen = message.contains(&format!("(os error {errno})"));
        left_of(resource).filter(|_| seen)
    };
    let known = [(Resource::Fsize, libc::EFBIG), (Resource::Nofile, libc::EMFILE)];
    match known.into_iter().find_map(explains) {
        Some(left) => format!("{message}: {left}"),
        None => message,
    }
}
