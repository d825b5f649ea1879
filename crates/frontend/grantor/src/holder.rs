//! What the Runtime asks of a session's leases, under its own lock or with a request that waits: so
//! nothing here waits for anything.

use crate::session::Session;
use ahash::HashMap;
use siftfs_base::Timestamp;
use siftfs_lease::{FULL, Held, Memory, View, set_order, shown};
use siftfs_proto::{Holder, LeaseId, MAX_FILE_SIZE, Shown};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// Leases that are to be ended, of all sessions.
#[derive(Default)]
pub(crate) struct Recalls {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    leases: VecDeque<(Weak<Session>, LeaseId)>,
    closed: bool,
}

impl Recalls {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease is to end. There are no more of these than leases that the Runtime has granted.
    pub fn add(&self, session: Weak<Session>, lease: LeaseId) {
        self.lock().leases.push_back((session, lease));
        self.changed.notify_one();
    }

    /// Waits for the next one; none, when nothing more is to be done.
    pub fn next(&self) -> Option<(Weak<Session>, LeaseId)> {
        let mut queue = self.lock();
        loop {
            if let Some(next) = queue.leases.pop_front() {
                return Some(next);
            }
            if queue.closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing more comes.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

/// A lease as the Runtime names it.
pub(crate) struct Name {
    pub held: Held,
    /// The file's mtime when the lease was granted.
    pub mtime: Timestamp,
    /// When the Runtime was told last that it is used.
    pub kept: Instant,
    /// How long it may go without that.
    pub term: Duration,
}

/// The leases of a session that last.
#[derive(Default)]
pub(crate) struct Names {
    pub all: HashMap<LeaseId, Name>,
    /// The session asks for a lease just now, whose number it does not know yet.
    pub asking: bool,
    /// Recalled before the session knew of them.
    pub early: Vec<LeaseId>,
}

/// What the Runtime knows of a session.
pub(crate) struct Told {
    pub names: Mutex<Names>,
    pub memories: (Arc<Memory>, Arc<View>),
    pub recalls: Arc<Recalls>,
    pub session: OnceLock<Weak<Session>>,
    /// The session with the Runtime is lost, and what it took in and had not synced with it.
    pub lost: AtomicBool,
}

impl Told {
    pub fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder for Told {
    fn ordered(&self, order: u64) {
        set_order(&*self.memories.0, order);
    }

    fn recall(&self, lease: LeaseId) {
        let mut names = self.lock();
        if names.all.contains_key(&lease) {
            drop(names);
            if let Some(session) = self.session.get() {
                self.recalls.add(session.clone(), lease);
            }
        } else if names.asking {
            names.early.push(lease);
        }
    }

    /// All leases are to end: what is published of them cannot be taken in, which their programs
    /// are told.
    fn lost(&self) {
        self.lost.store(true, Ordering::SeqCst);
        let Some(session) = self.session.get() else { return };
        let all: Vec<LeaseId> = self.lock().all.keys().copied().collect();
        all.into_iter().for_each(|lease| self.recalls.add(session.clone(), lease));
    }

    fn attributes(&self, lease: LeaseId) -> Option<Shown> {
        let names = self.lock();
        let name = names.all.get(&lease)?;
        let (grantor, holder) = &self.memories;
        let said = shown((&**grantor, &**holder), &FULL, name.held)?;
        let mtime = believable(said.mtime, name.mtime);
        Some(Shown { size: said.size.min(MAX_FILE_SIZE), mtime })
    }
}

/// The time that a holder says, if it is one at which it can have written: not before it got the
/// lease of a file of this mtime, and not after now.
pub(crate) fn believable(time: i64, since: Timestamp) -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { sec: now.as_secs().cast_signed(), nsec: now.subsec_nanos() };
    timestamp(time).min(now).max(since)
}

fn timestamp(ns: i64) -> Timestamp {
    let (sec, nsec) = (i128::from(ns).div_euclid(SECOND), i128::from(ns).rem_euclid(SECOND));
    Timestamp { sec: sec as i64, nsec: nsec as u32 }
}

/// A time as a word says it; the nearest that it can.
pub(crate) fn nanoseconds(time: Timestamp) -> i64 {
    let ns = i128::from(time.sec) * SECOND + i128::from(time.nsec);
    ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[cfg(test)]
#[path = "holder_tests.rs"]
mod tests;
