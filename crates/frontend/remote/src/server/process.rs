//! The process at the other end of a unix socket.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use siftfs_transport::Peer;
use std::os::fd::OwnedFd;

/// A process that ends closes its sockets a moment before it has ended.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// A process of this machine.
pub(super) struct Process(OwnedFd);

impl Process {
    /// The one at the other end; none if it is of another PID namespace, or has ended already.
    pub fn of(peer: Peer) -> Option<Self> {
        let pid = i32::try_from(peer.pid).ok().and_then(Pid::from_raw)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// Has it ended, or does it within a moment?
    pub fn has_ended(&self) -> bool {
        let mut ended = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut ended, Some(&MOMENT)).is_ok_and(|ready| ready > 0)
    }
}
