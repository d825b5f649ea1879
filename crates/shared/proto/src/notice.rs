//! What a session is told that caches: another one changed what it may have been told.
//!
//! A change is applied, then told to every other session that caches, and answered when all of them
//! have acknowledged. Nobody waits under a lock.

use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use siftfs_base::InodeNr;
use std::fmt;
use std::time::{Duration, Instant};

/// A session's cache.
pub trait Cache: Send + Sync {
    /// Takes back what `notice` names, and drops the notice when nothing of that is shown any more.
    /// Returns at once: it is called by the thread that made the change, which has no lock. What is
    /// not taken back within the session's term must have run out by then, or is never shown again
    /// because the session ends.
    fn take_back(&self, notice: Notice);

    /// Another session that may change files is open (`others`), or no such session any more.
    /// Without one, what is told need not run out. Returns at once; what is told from here on
    /// counts for no longer than a term.
    fn shares(&self, others: bool) {
        let _ = others;
    }

    /// As [`Cache::take_back`], of all that the session may have been told while it was alone and
    /// that has not run out. It is not enough that it will.
    fn forget_all(&self, notice: Notice) {
        self.take_back(notice);
    }

    /// The session is lost, and nothing more will be told: what was told of the inodes that it has
    /// looked up, `known`, counts no more. May wait for the kernel.
    fn lost(&self, known: Vec<InodeNr>) {
        let _ = known;
    }

    /// What is told from here on counts for this time at most, from now on: nobody knows whether
    /// the session is there any longer. Returns at once. Called from the first answer of a session
    /// over a wire on.
    fn trusts(&self, time: Duration) {
        let _ = time;
    }

    /// Nobody knows whether the session is still there, and no answer may come: what was told of
    /// these inodes, which it has looked up, with their generations, counts no more. Waits neither
    /// for the session nor for anything that does.
    fn doubts(&self, known: Vec<(InodeNr, u32)>) {
        let _ = known;
    }
}

/// What other sessions changed of inodes that this one has looked up. Dropped, it is acknowledged.
#[derive(Debug)]
pub struct Notice {
    /// Inodes whose attributes changed.
    pub attributes: Vec<InodeNr>,
    /// Inodes whose size changed.
    pub sizes: Vec<InodeNr>,
    /// Files and the range of bytes that changed, `[start, end)`.
    pub data: Vec<(InodeNr, u64, u64)>,
    /// Directories and names in them that appeared, vanished or name something else.
    pub names: Vec<(InodeNr, Vec<u8>)>,
    /// Counts the notice as acknowledged.
    _owed: Debt,
}

impl Notice {
    /// An empty notice, for which `owed` waits.
    pub fn new(owed: &mut Owed) -> Self {
        let (attributes, sizes, data, names) = Default::default();
        Self { attributes, sizes, data, names, _owed: owed.debt() }
    }
}

/// What follows when nothing is owed any more.
type Then = Box<dyn FnOnce() + Send>;

/// Notices that are not acknowledged, and what follows them.
#[derive(Default)]
struct Account {
    open: Mutex<Open>,
    settled: Condvar,
}

#[derive(Default)]
struct Open {
    notices: usize,
    then: Vec<Then>,
}

impl Account {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} open", self.lock().notices)
    }
}

/// One notice that is not acknowledged.
#[derive(Debug)]
struct Debt(Arc<Account>);

impl Drop for Debt {
    fn drop(&mut self) {
        let then = {
            let mut open = self.0.lock();
            open.notices -= 1;
            match open.notices {
                0 => std::mem::take(&mut open.then),
                _ => return,
            }
        };
        self.0.settled.notify_all();
        then.into_iter().for_each(|then| then());
    }
}

/// What a change owes to other sessions before it may be answered: the acknowledgement of each
/// notice that it caused.
#[derive(Clone, Debug, Default)]
pub struct Owed(Vec<Arc<Account>>);

impl Owed {
    fn debt(&mut self) -> Debt {
        if self.0.is_empty() {
            self.0.push(Arc::default());
        }
        let account = self.0.first().expect("just added").clone();
        account.lock().notices += 1;
        Debt(account)
    }

    /// Owes what `other` owes, too.
    pub fn add(&mut self, other: Self) {
        self.0.extend(other.0.into_iter().filter(|account| account.lock().notices > 0));
    }

    /// What is still owed.
    #[must_use]
    pub fn unsettled(self) -> Self {
        let mut left = Self::default();
        left.add(self);
        left
    }

    /// Is nothing owed at present? What is settled stays so.
    pub fn is_settled(&self) -> bool {
        self.0.iter().all(|account| account.lock().notices == 0)
    }

    /// Waits until nothing is owed.
    pub fn wait(&self) {
        for account in &self.0 {
            let mut open = account.lock();
            while open.notices > 0 {
                open = account.settled.wait(open).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Waits until nothing is owed, for `limit` at most; false if something is owed then.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        self.0.iter().all(|account| {
            let mut open = account.lock();
            while open.notices > 0 {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                let waited = account.settled.wait_timeout(open, left);
                open = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            true
        })
    }

    /// Calls `then` when nothing is owed: at once, or from the thread that acknowledges last.
    pub fn then(mut self, then: Then) {
        let Some(account) = self.0.pop() else { return then() };
        let mut open = account.lock();
        if open.notices == 0 {
            drop(open);
            return self.then(then);
        }
        open.then.push(Box::new(move || self.then(then)));
    }
}

#[cfg(test)]
#[path = "notice_tests.rs"]
mod tests;
