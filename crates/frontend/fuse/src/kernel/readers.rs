//! How many threads read requests: enough for one to be free.
//!
//! Each request is carried out on the thread that read it, which costs no hand-over. Some take
//! long: an fsync, a write that waits for the background. So a thread that takes a request while no
//! other thread is free to read the next one first wakes or starts another thread. A thread that
//! has answered and finds enough others free goes to sleep. With one client it is always the same
//! few threads, whose caches are warm.

use super::abi;
use super::request::header;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads at most; beyond that requests wait in the kernel.
pub(crate) const MOST: usize = 128;

/// Which threads read, and which sleep. All threads of a session share one.
pub(crate) struct Readers {
    /// Threads that are reading, or on their way to it.
    free: AtomicUsize,
    /// This many threads stay free when nothing is to be done.
    keep: usize,
    sleepers: Mutex<Sleepers>,
    wake: Condvar,
}

#[derive(Default)]
struct Sleepers {
    /// Threads asleep that have not been called yet.
    asleep: usize,
    /// Calls not yet answered.
    calls: usize,
    /// Threads there are.
    threads: usize,
    /// The session is over.
    ended: bool,
}

/// What a thread that took the last place does before it carries its request out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A thread is free to read the next request, or no more can be started.
    Covered,
    /// A new thread is to be started; it counts already.
    Start,
}

impl Readers {
    /// `keep` threads, at least 1, are free when nothing is to be done; they exist already.
    pub(crate) fn new(keep: usize) -> Self {
        assert!((1..=MOST).contains(&keep), "somebody must read");
        let sleepers = Sleepers { threads: keep, ..Sleepers::default() };
        Self {
            free: AtomicUsize::new(keep),
            keep,
            sleepers: Mutex::new(sleepers),
            wake: Condvar::new(),
        }
    }

    /// This many threads stay free when nothing is to be done.
    pub(crate) fn keep(&self) -> usize {
        self.keep
    }

    /// Threads there are, and those of them that have a request.
    pub(crate) fn count(&self) -> (usize, usize) {
        let sleepers = self.lock();
        let waiting = sleepers.asleep + self.free.load(Ordering::SeqCst);
        (sleepers.threads, sleepers.threads.saturating_sub(waiting))
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread has a request.
    pub(crate) fn taken(&self) -> Taken {
        let before = self.free.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a thread that reads is free");
        if before > 1 {
            return Taken::Covered;
        }
        let mut sleepers = self.lock();
        if sleepers.asleep > 0 {
            sleepers.asleep -= 1;
            sleepers.calls += 1;
            self.free.fetch_add(1, Ordering::SeqCst);
            drop(sleepers);
            self.wake.notify_one();
            return Taken::Covered;
        }
        if sleepers.threads >= MOST || sleepers.ended {
            return Taken::Covered;
        }
        sleepers.threads += 1;
        self.free.fetch_add(1, Ordering::SeqCst);
        Taken::Start
    }

    /// The thread announced by [`Taken::Start`] could not be started.
    pub(crate) fn not_started(&self) {
        self.lock().threads -= 1;
        self.free.fetch_sub(1, Ordering::SeqCst);
    }

    /// The calling thread is about to answer its request, and will read again at once. It does not
    /// call [`Readers::done`] for it.
    pub(crate) fn answered(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
    }

    /// The calling thread has carried its request out. Returns when it is to read again; false when
    /// the session is over.
    pub(crate) fn done(&self) -> bool {
        let enough = |free: usize| free >= self.keep;
        let join = |free| (!enough(free)).then_some(free + 1);
        if self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join).is_ok() {
            return true;
        }
        let mut sleepers = self.lock();
        // A thread that takes the last place checks for sleepers under this lock: this thread
        // either sees that the place was taken, or is seen asleep.
        if self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, join).is_ok() {
            return true;
        }
        sleepers.asleep += 1;
        while sleepers.calls == 0 && !sleepers.ended {
            sleepers = self.wake.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
        }
        if sleepers.ended {
            return false;
        }
        // The caller has counted this thread as free.
        sleepers.calls -= 1;
        true
    }

    /// The session is over: all sleeping threads wake.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.wake.notify_all();
    }
}

thread_local! {
    /// The request that this reader carries out, if the reader is free for the next one as soon as
    /// this one is answered, and the reader that has to know.
    static OPEN: RefCell<Option<(u64, Arc<Readers>)>> = const { RefCell::new(None) };
}

/// Carries a request out. Where nothing is left to be done after its answer, the thread counts as
/// free from the answer on: the client's next request may come before the thread is back, and is no
/// reason to wake a third one. True if it has been counted.
pub(super) fn free_when_answered(
    message: &[u8],
    readers: Arc<Readers>,
    act: impl FnOnce(),
) -> bool {
    let head = header(message).ok();
    // After the answer of a read the thread may read ahead.
    let open = head.filter(|h| h.opcode != abi::READ).map(|h| (h.unique, readers));
    let may = open.is_some();
    OPEN.set(open);
    act();
    may && OPEN.take().is_none()
}

/// The answer of request `unique` is about to be sent by this thread.
pub(super) fn answering(unique: u64) {
    let own = OPEN.with_borrow_mut(|open| open.take_if(|(u, _)| *u == unique));
    if let Some((_, readers)) = own {
        readers.answered();
    }
}

#[cfg(test)]
#[path = "readers_tests.rs"]
mod tests;
