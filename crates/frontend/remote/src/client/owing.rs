//! Changes of a session that caches which are made, and which other sessions have not taken note
//! of yet.

use crate::term::TERM;
use siftfs_proto::{Notice, Owed};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is owed for each of them, by slot and number.
#[derive(Default)]
pub(super) struct Owing(Mutex<State>);

#[derive(Default)]
struct State {
    open: HashMap<(u32, u64), Notice>,
    /// What the caller of a call is to be given.
    owed: HashMap<(u32, u64), Owed>,
    over: bool,
}

impl Owing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call was answered, and owes. Its caller is about to be woken.
    pub fn owes(&self, call: (u32, u64)) {
        let mut owed = Owed::default();
        let notice = Notice::new(&mut owed);
        let mut state = self.lock();
        if !state.over {
            state.open.insert(call, notice);
            state.owed.insert(call, owed);
        }
    }

    /// What an answered call owes.
    pub fn take(&self, call: (u32, u64)) -> Owed {
        self.lock().owed.remove(&call).unwrap_or_default()
    }

    /// Does any owe?
    pub fn any(&self) -> bool {
        !self.lock().open.is_empty()
    }

    /// It owes nothing any more. False if it owed nothing before.
    pub fn settled(&self, call: (u32, u64)) -> bool {
        // Dropped without the lock: what waits for it goes on.
        let found = self.lock().open.remove(&call);
        found.is_some()
    }

    /// The session ends because its client wants it to: nobody waits any more.
    pub fn end(&self) {
        drop(self.take_all());
    }

    /// The connection is lost, and nothing comes any more. Other kernels may show what was before
    /// until their term is over, for which the server may not wait any more: it may have died.
    pub fn lost(&self) {
        let open = self.take_all();
        if open.is_empty() {
            return;
        }
        let thread = std::thread::Builder::new().name("siftfs-owes".into());
        let waits = move || {
            std::thread::sleep(TERM);
            drop(open);
        };
        if let Err(error) = thread.spawn(waits) {
            tracing::error!(%error, "no thread: changes are answered that other mounts may not show");
        }
    }

    fn take_all(&self) -> HashMap<(u32, u64), Notice> {
        let mut state = self.lock();
        state.over = true;
        std::mem::take(&mut state.open)
    }
}

#[cfg(test)]
#[path = "owing_tests.rs"]
mod tests;
