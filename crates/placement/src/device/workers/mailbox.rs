//! What others have for a worker.

use crate::device::calls::lock;
use crate::device::programs::Request;
use crate::device::workers::member::Newcomer;
use rustix::event::{EventfdFlags, eventfd};
use siftfs_base::{Error, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is said to a worker of one of its connections.
pub(crate) enum Told {
    /// Bytes of answers that are kept.
    Kept(usize),
    /// It is broken.
    Broke(Error),
    /// A helper has ended what it did for it.
    Helped,
}

/// Everything that has come.
#[derive(Default)]
pub(super) struct Mail {
    pub newcomers: Vec<Newcomer>,
    /// Requests whose turn it is, or that are over.
    pub requests: Vec<Request>,
    pub told: Vec<(u64, Told)>,
}

impl Mail {
    pub fn is_empty(&self) -> bool {
        self.newcomers.is_empty() && self.requests.is_empty() && self.told.is_empty()
    }
}

#[derive(Default)]
struct State {
    mail: Mail,
    /// The worker sleeps, or is about to.
    asleep: bool,
    /// The worker has ended.
    closed: bool,
}

/// Where it is put, by any thread.
pub(crate) struct Mailbox {
    state: Mutex<State>,
    bell: OwnedFd,
    /// Connections that the worker has, or is about to have.
    pub members: AtomicUsize,
}

impl Mailbox {
    pub fn new() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::Refused(format!("no descriptor for a worker: {e}")))?;
        Ok(Self { state: Mutex::default(), bell, members: AtomicUsize::new(0) })
    }

    /// Puts something in, unless the worker has ended: then it comes back.
    fn put<T>(&self, what: T, put: impl FnOnce(&mut Mail, T)) -> Option<T> {
        let mut state = lock(&self.state);
        if state.closed {
            return Some(what);
        }
        put(&mut state.mail, what);
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.ring();
        }
        None
    }

    fn ring(&self) {
        // Fails only where it has rung 2^64 times, and nobody has looked.
        let _ = rustix::io::write(&self.bell, &1u64.to_le_bytes());
    }

    /// A request whose turn it is, or that is over; it comes back if the worker has ended.
    pub fn bring(&self, request: Request) -> Option<Request> {
        self.put(request, |mail, request| mail.requests.push(request))
    }

    /// Says something of a connection. A worker that has ended does not need to know.
    pub fn tell(&self, number: u64, told: Told) {
        drop(self.put((number, told), |mail, told| mail.told.push(told)));
    }

    /// A connection that is the worker's from now on; it comes back if the worker has ended.
    pub fn admit(&self, newcomer: Newcomer) -> Option<Newcomer> {
        self.members.fetch_add(1, Ordering::AcqRel);
        self.put(newcomer, |mail, newcomer| mail.newcomers.push(newcomer)).inspect(|_| {
            self.members.fetch_sub(1, Ordering::AcqRel);
        })
    }

    /// Takes everything.
    pub(super) fn take(&self) -> Mail {
        let mut state = lock(&self.state);
        state.asleep = false;
        std::mem::take(&mut state.mail)
    }

    /// The worker is about to sleep: from now on its bell is rung. False: something is there.
    pub(super) fn sleeps(&self) -> bool {
        let mut state = lock(&self.state);
        state.asleep = state.mail.is_empty();
        state.asleep
    }

    /// Can be read when somebody has rung for a worker that sleeps.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The bell is quiet until it is rung anew.
    pub(super) fn quiet(&self) {
        // Nothing is there where it has not rung.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// The worker takes nothing more; what is there.
    pub(super) fn close(&self) -> Mail {
        let mut state = lock(&self.state);
        state.closed = true;
        std::mem::take(&mut state.mail)
    }
}
