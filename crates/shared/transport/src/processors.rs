//! Have both ends of a connection one processor between them?

use crate::Peer;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

/// May the calling thread run on a single processor, and the peer on no other one, as far as is
/// known? Where both were given one each, and a different one, it is not so.
pub(crate) fn are_one(peer: Option<Peer>) -> bool {
    let Ok(own) = sched_getaffinity(None) else { return false };
    let pid = peer.and_then(|peer| Pid::from_raw(peer.pid.try_into().ok()?));
    // Those of its first thread.
    let theirs = pid.and_then(|pid| sched_getaffinity(Some(pid)).ok());
    is_one(&own, theirs.as_ref())
}

fn is_one(own: &CpuSet, theirs: Option<&CpuSet>) -> bool {
    let others =
        |theirs: &CpuSet| (0..CpuSet::MAX_CPU).any(|cpu| theirs.is_set(cpu) && !own.is_set(cpu));
    own.count() == 1 && !theirs.is_some_and(others)
}

#[cfg(test)]
#[path = "processors_tests.rs"]
mod tests;
