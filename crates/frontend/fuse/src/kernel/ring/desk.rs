//! Where the answer of a ring's request goes: to the thread that has the ring.
//!
//! Only that thread may submit to its ring. An answer that comes on it is committed at once, even
//! while the handler goes on (it may read ahead once it has answered). An answer that comes from
//! another thread, or while the handler still reads the request in the ring's memory, waits on the
//! desk until the owner takes it.

use super::entry::Entry;
use crate::kernel::reply::{Answer, Outcome, Valid, encode};
use std::cell::RefCell;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

thread_local! {
    /// The ring of this thread, if it is a ring's thread.
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// What a ring's thread has.
struct Own {
    entry: Entry,
    /// The request that is not answered yet.
    open: Option<u64>,
    /// Why an answer could not be given to the kernel.
    failed: Option<io::Error>,
}

impl Own {
    fn answer(&mut self, unique: u64, outcome: &Outcome) {
        assert_eq!(self.open.take(), Some(unique), "each request is answered once");
        let mut send = |error: i32, body: &[&[u8]]| {
            if let Err(e) = self.entry.answer(unique, error, body) {
                self.failed = Some(e);
            }
        };
        match outcome {
            Ok((answer, valid)) => encode(answer, *valid, |body| send(0, body)),
            Err(errno) => send(-errno, &[]),
        }
    }
}

/// Where other threads leave answers for a ring's thread; each ring's thread has one.
pub(crate) struct Desk {
    owner: ThreadId,
    answer: Mutex<Option<(u64, Outcome)>>,
    there: Condvar,
}

impl Desk {
    /// The desk of the calling thread, whose ring `entry` is.
    pub(super) fn new(entry: Entry) -> Self {
        OWN.set(Some(Own { entry, open: None, failed: None }));
        let (answer, there) = (Mutex::default(), Condvar::new());
        Self { owner: thread::current().id(), answer, there }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(u64, Outcome)>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers request `unique`, from any thread.
    pub(crate) fn answer(&self, unique: u64, outcome: Outcome) {
        let own_thread = thread::current().id() == self.owner;
        if own_thread
            && OWN.with(|own| match own.try_borrow_mut() {
                Ok(mut own) => {
                    own.as_mut().expect("the owner has a ring").answer(unique, &outcome);
                    true
                }
                // The request is being read in the ring's memory.
                Err(_) => false,
            })
        {
            return;
        }
        let before = self.lock().replace((unique, outcome));
        assert!(before.is_none(), "a ring has one request at a time");
        if !own_thread {
            self.there.notify_one();
        }
    }

    /// Lets the owner do something with its ring.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Entry) -> T) -> T {
        assert_eq!(thread::current().id(), self.owner, "a ring has one thread");
        OWN.with_borrow_mut(|own| act(&mut own.as_mut().expect("the owner has a ring").entry))
    }

    /// The ring has request `unique`, which is to be answered.
    pub(super) fn open(&self, unique: u64) {
        OWN.with_borrow_mut(|own| own.as_mut().expect("the owner has a ring").open = Some(unique));
    }

    /// Lets the owner read the request where it lies. An answer that comes meanwhile waits.
    pub(super) fn read<T>(&self, act: impl FnOnce(&[u8]) -> T) -> T {
        OWN.with_borrow(|own| act(own.as_ref().expect("the owner has a ring").entry.message()))
    }

    /// Is the answer to the request still to come?
    pub(super) fn is_open(&self) -> bool {
        OWN.with_borrow(|own| own.as_ref().is_some_and(|own| own.open.is_some()))
            && self.lock().is_none()
    }

    /// Waits for an answer, `limit` long at most; false if there is none by then.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let none = |answer: &mut Option<(u64, Outcome)>| answer.is_none();
        let waited = self.there.wait_timeout_while(self.lock(), limit, none);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Returns when the request is answered, and the answer is on its way.
    ///
    /// # Errors
    /// When the answer could not be given to the kernel.
    pub(super) fn settle(&self) -> io::Result<()> {
        let open = OWN.with_borrow(|own| own.as_ref().is_some_and(|own| own.open.is_some()));
        if open {
            let none = |answer: &mut Option<(u64, Outcome)>| answer.is_none();
            let held = self.there.wait_while(self.lock(), none);
            let taken = held.unwrap_or_else(PoisonError::into_inner).take();
            let (unique, outcome) = taken.expect("it was waited for");
            OWN.with_borrow_mut(|own| {
                own.as_mut().expect("the owner has a ring").answer(unique, &outcome);
            });
        }
        OWN.with_borrow_mut(|own| match own.as_mut().and_then(|own| own.failed.take()) {
            Some(e) => Err(e),
            None => Ok(()),
        })
    }

    /// Takes the ring away from its thread.
    pub(super) fn close(&self) {
        drop(OWN.take());
    }
}

/// What a request of a kind without answers is committed with: a ring knows no other way to fetch.
pub(crate) fn nothing() -> Outcome {
    Ok((Answer::Done, Valid::ALONE))
}
