//! What the workers of a round and the thread that kills tell each other.

use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What the workers and the thread that kills tell each other.
#[derive(Default)]
pub struct Signals {
    stop: AtomicBool,
    dying: AtomicBool,
    /// Odd while the server of the volume is lost: one more when it dies, and when its mount has
    /// it again.
    server: AtomicU64,
    /// Calls of which nobody could say whether they were carried out.
    pub uncertain: AtomicU64,
    /// Calls that returned.
    pub calls: AtomicU64,
    /// Of them, those that promised durability.
    pub acknowledged: AtomicU64,
    failed: Mutex<Option<String>>,
}

impl Signals {
    /// Workers end after their present operation.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// From here on the host may be gone: errors that say so are no failure.
    pub fn host_dies(&self) {
        self.dying.store(true, Ordering::SeqCst);
    }

    /// May the host be gone?
    pub fn is_dying(&self) -> bool {
        self.dying.load(Ordering::SeqCst)
    }

    /// From here on the server of the volume may be lost. Calls wait for it.
    pub fn server_dies(&self) {
        self.server.fetch_or(1, Ordering::SeqCst);
    }

    /// The mount has its server again.
    pub fn server_is_back(&self) {
        let lost = self.server.load(Ordering::SeqCst) & 1;
        self.server.fetch_add(lost, Ordering::SeqCst);
    }

    /// A moment in the life of the server, for [`Signals::server_was_lost`].
    pub fn server_now(&self) -> u64 {
        self.server.load(Ordering::SeqCst)
    }

    /// Was the server lost at `then`, or at any time since?
    pub fn server_was_lost(&self, then: u64) -> bool {
        then & 1 == 1 || self.server_now() != then
    }

    /// The first failure of a worker.
    pub fn failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Is this the end?
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// A call returned, which promised durability or did not.
    pub fn returned(&self, acknowledged: bool) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.acknowledged.fetch_add(u64::from(acknowledged), Ordering::SeqCst);
    }

    /// Something is wrong: all end.
    pub fn fail(&self, why: String) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.stop();
    }
}

/// Does this error say that the host has died? EINTR does, of a request by a ring: the kernel
/// copies it in a task of the host, and a task that is being killed gets no pages to copy to.
pub fn is_gone(e: Errno) -> bool {
    let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::NODEV, Errno::CANCELED, Errno::INTR];
    gone.contains(&e)
}
