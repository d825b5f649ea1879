//! When a lease is asked for. It costs several requests, so it is to save more than that: a file's
//! descriptor has called fsync(2) a few times, and after leases that did not pay, or were refused,
//! the next one is asked for later and later.

use siftfs_accel::By;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, Ordering};

/// Calls of fsync(2) by one descriptor before its file is looked at. The first lease of a program
/// makes the daemon write a whole log, and a rollback journal is gone after two.
const FIRST: u8 = 8;
/// Writes that a lease must have taken to have paid.
const PAID: u32 = 64;
/// Reads between two calls of fsync(2) after which the kernel's cache is worth more than a lease.
const MOST_READS: u32 = 4096;
/// A lease is given back when it has this balance: it costs more questions than it saves.
const LOST: i32 = -32;
/// A lease is given back when its calls of fsync(2) come to this: what one costs by the daemon that
/// has a log beside it counts as [`BESIDE_LOG`], and one by the log takes one away.
const MOST_BESIDE_LOG: i32 = 64;
const BESIDE_LOG: i32 = 3;
/// What such leases count as, of leases that did not pay.
const LOSSES: u8 = 4;
/// The next lease is asked for after two to the power of this many calls of fsync(2) at most.
const MOST_LEVEL: u8 = 12;

/// A lease is asked for at each fsync(2) without one (SIFTFS_ACCEL=eager).
static EAGER: AtomicBool = AtomicBool::new(false);

/// Files are read and written at targets where that can be (SIFTFS_ACCEL_DIRECT=on).
static DIRECT: AtomicBool = AtomicBool::new(false);
/// As [`FIRST`] then: no log is made.
const FIRST_DIRECT: u8 = 2;

/// From now on, leases of the direct kind are asked for.
pub fn be_direct() {
    DIRECT.store(true, Ordering::Relaxed);
}

/// Are they?
pub fn is_direct() -> bool {
    DIRECT.load(Ordering::Relaxed)
}

/// From now on, leases need not pay.
pub fn be_eager() {
    EAGER.store(true, Ordering::Relaxed);
}

/// Has a descriptor called fsync(2) so often that its file is to be looked at?
pub fn is_worth_a_look(syncs: u8) -> bool {
    let first = if is_direct() { FIRST_DIRECT } else { FIRST };
    syncs >= first || EAGER.load(Ordering::Relaxed)
}

/// How often leases of files did not pay, for longer than a file is open. Files share levels, which
/// costs speed at most.
static LEVELS: [AtomicU8; 1024] = [const { AtomicU8::new(0) }; 1024];

/// The pace of one file.
#[derive(Default)]
pub struct Pace {
    syncs: AtomicU32,
    /// The call of fsync(2) at which a lease is asked for.
    due: AtomicU32,
    /// By the lease that there is.
    writes: AtomicU32,
    /// Since the last fsync(2).
    reads: AtomicU32,
    /// Writes by the lease, which were no requests, less the reads and looks at attributes, which
    /// the kernel would have answered by itself.
    balance: AtomicI32,
    /// What its calls of fsync(2) come to.
    synced: AtomicI32,
    place: usize,
}

impl Pace {
    /// Of a file of this number.
    pub fn of(ino: u64) -> Self {
        let place = (ino.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
        let pace = Self { place, ..Self::default() };
        pace.wait();
        pace
    }

    fn level(&self, change: impl Fn(u8) -> u8) {
        if let Some(level) = LEVELS.get(self.place) {
            level.store(change(level.load(Ordering::Relaxed)).min(MOST_LEVEL), Ordering::Relaxed);
        }
    }

    fn wait(&self) {
        let level = LEVELS.get(self.place).map_or(0, |level| level.load(Ordering::Relaxed));
        // At once, if all is well.
        let calls = (1_u32 << level.min(MOST_LEVEL)) - 1;
        let due = self.syncs.load(Ordering::Relaxed).wrapping_add(calls);
        self.due.store(due, Ordering::Relaxed);
    }

    /// A call of fsync(2). Is a lease to be asked for?
    pub fn sync(&self) -> bool {
        self.reads.store(0, Ordering::Relaxed);
        let before = self.syncs.fetch_add(1, Ordering::Relaxed);
        let due = before.wrapping_sub(self.due.load(Ordering::Relaxed)).cast_signed() >= 0;
        due || EAGER.load(Ordering::Relaxed)
    }

    /// A write by the lease.
    pub fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.balance.fetch_add(1, Ordering::Relaxed);
    }

    /// A read. Is the file read so much that the lease is to go back?
    pub fn read(&self) -> bool {
        self.reads.fetch_add(1, Ordering::Relaxed) >= MOST_READS
    }

    /// A look at the file's attributes. Is the lease to go back?
    pub fn look(&self) -> bool {
        self.balance.fetch_sub(1, Ordering::Relaxed) <= LOST
    }

    /// A call of fsync(2) was made by the lease. Is that to go back? It costs more than it saves
    /// where others rename files all the time, say.
    pub fn synced(&self, by: By) -> bool {
        let more = match by {
            By::Log | By::Target => -1,
            By::Daemon => return false,
            By::DaemonBesideLog => BESIDE_LOG,
        };
        let now = self.synced.load(Ordering::Relaxed).saturating_add(more).max(0);
        self.synced.store(now, Ordering::Relaxed);
        let lost = now >= MOST_BESIDE_LOG && !EAGER.load(Ordering::Relaxed);
        if lost {
            self.balance.store(LOST, Ordering::Relaxed);
        }
        lost
    }

    /// There is a lease.
    pub fn granted(&self) {
        self.synced.store(0, Ordering::Relaxed);
        self.writes.store(0, Ordering::Relaxed);
        self.balance.store(0, Ordering::Relaxed);
    }

    /// The daemon refused the lease, for a reason that may pass.
    pub fn refused(&self) {
        self.level(|level| level.saturating_add(1));
        self.wait();
    }

    /// The lease has ended.
    pub fn ended(&self) {
        let writes = self.writes.load(Ordering::Relaxed);
        match self.balance.load(Ordering::Relaxed) {
            ..=LOST => self.level(|level| level.saturating_add(LOSSES)),
            _ if writes < PAID => self.level(|level| level.saturating_add(1)),
            _ => self.level(|_| 0),
        }
        self.wait();
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
