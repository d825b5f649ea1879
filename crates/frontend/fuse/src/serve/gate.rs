//! A door in front of a [`FileService`] that can be closed for good.

use siftfs_base::{Error, InodeNr, errno};
use siftfs_proto::{Completion, Credentials, FileService, Owed, Reply, Request};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

const CLOSED: u64 = 1 << 63;

/// Lets requests through until [`Gate::close`]; afterwards every request fails with `ENODEV`.
///
/// A volume may be closed only when no request is under way. A mount that was detached while
/// programs still hold files open can send requests at any time, so the gate, not the mount,
/// says when the last one has ended. One gate stands before all sessions of a volume.
#[derive(Default)]
pub struct Gate {
    state: Arc<State>,
}

/// A session behind a gate.
struct Door {
    inner: Arc<dyn FileService>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Requests under way; the top bit says closed.
    count: AtomicU64,
    lock: Mutex<()>,
    drained: Condvar,
}

/// One request under way.
struct Pass(Arc<State>);

impl Drop for Pass {
    fn drop(&mut self) {
        let before = self.0.count.fetch_sub(1, Ordering::SeqCst);
        assert!(before & !CLOSED > 0, "a request left the gate that never entered");
        if before == CLOSED + 1 {
            let _held = self.0.lock.lock();
            self.0.drained.notify_all();
        }
    }
}

impl Gate {
    /// The session behind this gate.
    pub fn before(&self, inner: Arc<dyn FileService>) -> Arc<dyn FileService> {
        Arc::new(Door { inner, state: self.state.clone() })
    }

    /// Refuses every later request and returns when the last one under way has ended.
    pub fn close(&self) {
        self.state.count.fetch_or(CLOSED, Ordering::SeqCst);
        let mut held = match self.state.lock.lock() {
            Ok(h) => h,
            Err(poisoned) => poisoned.into_inner(),
        };
        while self.state.count.load(Ordering::SeqCst) != CLOSED {
            held = match self.state.drained.wait(held) {
                Ok(h) => h,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
    }
}

impl Door {
    fn enter(&self) -> Result<Pass, Error> {
        let before = self.state.count.fetch_add(1, Ordering::SeqCst);
        let pass = Pass(self.state.clone());
        if before & CLOSED != 0 {
            return Err(errno(libc::ENODEV));
        }
        Ok(pass)
    }
}

impl FileService for Door {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply, Error> {
        let _pass = self.enter()?;
        self.inner.call(cred, req)
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply, Error>, Owed) {
        match self.enter() {
            Ok(_pass) => self.inner.call_owing(cred, req),
            Err(e) => (Err(e), Owed::default()),
        }
    }

    fn has_looked_up(&self, ino: InodeNr) -> bool {
        self.enter().is_ok_and(|_pass| self.inner.has_looked_up(ino))
    }

    fn give_up(&self) {
        self.inner.give_up();
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        match self.enter() {
            Err(e) => done(Err(e)),
            // A wait for a lock touches nothing of the volume, and may last for ever.
            Ok(_pass) if matches!(&req, Request::SetLock { ask, .. } if ask.wait.is_some()) => {
                self.inner.submit(cred, req, done);
            }
            Ok(pass) => {
                // Under way until it is answered and its thread comes back, whichever is later.
                let pass = Arc::new(pass);
                let answered = pass.clone();
                self.inner.submit(
                    cred,
                    req,
                    Box::new(move |result| {
                        done(result);
                        drop(answered);
                    }),
                );
                drop(pass);
            }
        }
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
