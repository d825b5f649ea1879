//! Memory that callers may have for bytes that are no file's: those of sections, and of compounds
//! while they run. One bound for all together, and a share of it for each user, so that one user
//! leaves something to the others.

use crate::locks::relock;
use siftfs_base::{Result, errno};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Bytes for everybody together.
pub const MOST: u64 = 256 << 20;
/// Bytes of one user.
pub const SHARE: u64 = MOST / 4 * 3;
/// Threads that wait for some to become free. They are threads that serve requests, of which there
/// are many more.
const WAITERS: usize = 8;
/// How long they wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// The memory that there is.
#[derive(Clone, Default)]
pub struct Allowance(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    freed: Condvar,
}

#[derive(Default)]
struct Table {
    users: BTreeMap<u32, u64>,
    usage: Usage,
    waiting: usize,
}

/// How much of it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In bytes.
    pub now: u64,
    /// The most at any time.
    pub peak: u64,
    /// How often there was too little left.
    pub refused: u64,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        relock(self.table.lock())
    }
}

impl Table {
    fn has(&self, user: u32, bytes: u64) -> bool {
        let own = self.users.get(&user).copied().unwrap_or(0);
        let within = |used: u64, most: u64| used.checked_add(bytes).is_some_and(|sum| sum <= most);
        within(self.usage.now, MOST) && within(own, SHARE)
    }

    /// Takes so much, if it is left.
    fn take(&mut self, user: u32, bytes: u64) -> bool {
        let has = self.has(user, bytes);
        if has && bytes > 0 {
            *self.users.entry(user).or_default() += bytes;
            self.usage.now += bytes;
            self.usage.peak = self.usage.peak.max(self.usage.now);
        }
        has
    }

    fn give_back(&mut self, user: u32, bytes: u64) {
        self.usage.now -= bytes;
        let left = self.users.get(&user).map_or(0, |own| own - bytes);
        match left {
            0 => drop(self.users.remove(&user)),
            left => drop(self.users.insert(user, left)),
        }
    }
}

impl Allowance {
    /// Nothing yet, for a user.
    pub fn of(&self, user: u32) -> Charge {
        Charge { of: self.clone(), user, bytes: 0 }
    }

    /// So much for a user, who waits for it for some seconds at most.
    ///
    /// # Errors
    /// E2BIG for more than a user may have; EAGAIN if it did not become free, or too many wait.
    pub fn wait(&self, user: u32, bytes: u64) -> Result<Charge> {
        if bytes > SHARE {
            return Err(errno(libc::E2BIG));
        }
        let mut table = self.0.table();
        if !table.take(user, bytes) {
            let first = table.waiting < WAITERS;
            if first {
                table.waiting += 1;
                let lacks = |table: &mut Table| !table.has(user, bytes);
                let waited = self.0.freed.wait_timeout_while(table, PATIENCE, lacks);
                table = relock(waited).0;
                table.waiting -= 1;
            }
            if !first || !table.take(user, bytes) {
                table.usage.refused += 1;
                return Err(errno(libc::EAGAIN));
            }
        }
        drop(table);
        Ok(Charge { of: self.clone(), user, bytes })
    }

    /// How much is used.
    pub fn usage(&self) -> Usage {
        self.0.table().usage
    }
}

/// What a user has. Dropped, it is free again.
pub struct Charge {
    of: Allowance,
    user: u32,
    bytes: u64,
}

impl Charge {
    /// Takes so much more, if it is left; waits for nothing.
    #[must_use]
    pub fn grow(&mut self, more: u64) -> bool {
        let mut table = self.of.0.table();
        let taken = table.take(self.user, more);
        if taken {
            self.bytes += more;
        } else {
            table.usage.refused += 1;
        }
        taken
    }

    /// Gives back what is above `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let Some(less) = self.bytes.checked_sub(bytes).filter(|less| *less > 0) else { return };
        self.of.0.table().give_back(self.user, less);
        self.bytes = bytes;
        self.of.0.freed.notify_all();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
#[path = "allowance_tests.rs"]
mod tests;
