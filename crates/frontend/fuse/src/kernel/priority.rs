//! How soon request threads get a processor that others use as well.
#![allow(unsafe_code)] // the scheduler's calls have no safe wrapper here

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How the scheduler treats the threads that carry requests out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Priority {
    /// As any program.
    #[default]
    Normal,
    /// With a short slice: a thread that wants a processor waits for less, and keeps it for less.
    Slice,
    /// With a short slice and a larger share ([`NICE`]) of its session, and so the session (where
    /// the kernel has autogroups) of the processors.
    Nice,
    /// Before every program that is not realtime itself (SCHED_RR), under RLIMIT_RTTIME: the
    /// process must handle SIGXCPU, by setting `FuseMount::overtime`, which makes them
    /// [`Priority::Nice`].
    Realtime,
}

/// Nice value of [`Priority::Nice`].
pub(crate) const NICE: i32 = -10;
/// The share of this process's session.
const AUTOGROUP: &str = "/proc/self/autogroup";
/// The slice, in nanoseconds: the shortest that the scheduler takes.
const SLICE: u64 = 100_000;
/// RLIMIT_RTTIME in microseconds: the signal SIGXCPU comes after the first; the second ends the
/// process, for the machine must go on.
pub(crate) const OVERTIME: (u64, u64) = (200_000, 5_000_000);
/// Realtime priority, the lowest there is.
const REALTIME: u32 = 1;

/// The scheduling of one mount's request threads.
pub(crate) struct Schedule {
    wanted: Priority,
    /// A realtime thread computed for too long.
    overtime: Arc<AtomicBool>,
}

/// What sched_setattr(2) takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Schedule {
    pub(crate) fn new(wanted: Priority) -> Self {
        Self { wanted, overtime: Arc::default() }
    }

    /// Is to be set on SIGXCPU.
    pub(crate) fn overtime(&self) -> Arc<AtomicBool> {
        self.overtime.clone()
    }

    /// The calling thread is a request thread from here on. What the kernel refuses is logged: the
    /// thread serves with less.
    pub(crate) fn enter(&self) {
        let priority = if self.is_over() { Priority::Nice } else { self.wanted };
        let entered = enter(priority).or_else(|error| match priority {
            Priority::Realtime => {
                tracing::info!(%error, "request threads cannot be realtime");
                enter(Priority::Nice)
            }
            _ => Err(error),
        });
        if let Err(error) = entered {
            tracing::info!(%error, ?priority, "request threads run as any other");
        }
    }

    fn is_over(&self) -> bool {
        self.wanted == Priority::Realtime && self.overtime.load(Ordering::Relaxed)
    }

    /// To be called by a request thread before each request.
    pub(crate) fn check(&self) {
        thread_local! {
            static LEFT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        }
        if self.is_over() && !LEFT.replace(true) {
            tracing::warn!("a realtime request thread computed for too long: they are so no more");
            self.enter();
        }
    }
}

fn enter(priority: Priority) -> io::Result<()> {
    let usual = Attributes { policy: libc::SCHED_OTHER as u32, ..Attributes::default() };
    set(match priority {
        Priority::Normal => return Ok(()),
        Priority::Slice => Attributes { runtime: SLICE, ..usual },
        Priority::Nice => {
            share();
            Attributes { runtime: SLICE, nice: NICE, ..usual }
        }
        Priority::Realtime => {
            bound()?;
            let policy = libc::SCHED_RR as u32;
            // Threads that a request starts are not realtime.
            let flags = u64::from(libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned());
            Attributes { policy, flags, priority: REALTIME, ..Attributes::default() }
        }
    })
}

/// The kernel may share processors between sessions first, and inside of one then: a daemon that
/// has a session of its own asks for a larger share for it. Where sessions do not count there is no
/// such file.
fn share() {
    use nix::unistd::{getpid, getsid};
    // A session that was begun outside of the daemon's PID namespace has the number 0.
    if getsid(None) == Ok(getpid())
        && let Err(error) = std::fs::write(AUTOGROUP, NICE.to_string())
    {
        tracing::debug!(%error, "the daemon's session has no share of its own");
    }
}

/// No thread of this process computes in realtime for ever.
fn bound() -> io::Result<()> {
    let now = getrlimit(Resource::Rttime);
    let (soft, hard) = OVERTIME;
    let hard = now.maximum.map_or(hard, |most| most.min(hard));
    setrlimit(Resource::Rttime, Rlimit { current: Some(soft.min(hard)), maximum: Some(hard) })?;
    Ok(())
}

fn set(attributes: Attributes) -> io::Result<()> {
    let size = u32::try_from(size_of::<Attributes>()).expect("a few bytes");
    let attributes = Attributes { size, ..attributes };
    // SAFETY: the structure is laid out as the call has it in its first version, says its own
    // length, and is only read.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[path = "priority_tests.rs"]
mod tests;
