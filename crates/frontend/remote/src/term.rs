//! For how long what a kernel knows counts while its server says nothing
//! (`docs/design/lost-server.md`, "What a kernel knows without a connection").

use std::time::Duration;

/// Others wait for a kernel whose connection is lost until its last question that was answered is
/// that old.
pub(crate) const TERM: Duration = Duration::from_secs(4);
/// How often a client asks.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// A kernel begins to forget when its last question that was answered is that old. What is left of
/// the term is for forgetting.
pub(crate) const DOUBT: Duration = Duration::from_millis(2500);

/// A moment of this machine, which goes on while the machine is suspended.
pub(crate) fn moment() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).expect("a machine has no time before it was started")
}
