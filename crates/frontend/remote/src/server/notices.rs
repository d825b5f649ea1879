//! Notices to a client that caches, until it says that it has taken them back (rule R32).

use super::outbox::Outbox;
use siftfs_calls::{FromServer, Told};
use siftfs_proto::{Cache, Notice};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A client that does not take a notice back within this time is ended. A kernel that it speaks for
/// may have to wait for a disk before it gives a page back.
pub(super) const TERM: Duration = Duration::from_secs(30);

/// What a client was told and has not taken back.
pub(super) struct Notices {
    outbox: Arc<Outbox>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// In the order of their numbers, which is that of their times.
    notices: BTreeMap<u64, (Instant, Notice)>,
    over: bool,
}

impl Notices {
    pub fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox, open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, notice: Notice, all: bool) {
        let told = Told {
            attributes: notice.attributes.clone(),
            sizes: notice.sizes.clone(),
            data: notice.data.iter().map(|(ino, start, end)| (*ino, (*start, *end))).collect(),
            names: notice.names.clone(),
        };
        let mut open = self.lock();
        if open.over {
            return;
        }
        let number = open.next;
        open.next += 1;
        open.notices.insert(number, (Instant::now(), notice));
        drop(open);
        self.outbox.queue(FromServer::Notice { notice: number, all, told });
    }

    /// The client has taken it back. False if there is no such notice.
    pub fn taken(&self, number: u64) -> bool {
        let found = self.lock().notices.remove(&number);
        // Dropped without the lock: the change that waits for it goes on.
        found.is_some()
    }

    /// Is one older than the term?
    pub fn is_late(&self) -> bool {
        let open = self.lock();
        open.notices.first_key_value().is_some_and(|(_, (since, _))| since.elapsed() > TERM)
    }

    /// The session is over: it shows nothing any more.
    pub fn end(&self) {
        let mut open = self.lock();
        open.over = true;
        let all = std::mem::take(&mut open.notices);
        drop(open);
        drop(all);
    }
}

impl Cache for Notices {
    fn take_back(&self, notice: Notice) {
        self.tell(notice, false);
    }

    fn shares(&self, others: bool) {
        self.outbox.queue(FromServer::Shares { others });
    }

    fn forget_all(&self, notice: Notice) {
        self.tell(notice, true);
    }
}
