//! Changes of a session that caches which are made, and which other sessions have not taken note
//! of yet.

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

    /// It owes nothing any more. False if it owed nothing before.
    pub fn settled(&self, call: (u32, u64)) -> bool {
        // Dropped without the lock: what waits for it goes on.
        let found = self.lock().open.remove(&call);
        found.is_some()
    }

    /// Nothing comes any more: no session shows anything that this one would have to wait for.
    pub fn end(&self) {
        let mut state = self.lock();
        state.over = true;
        let open = std::mem::take(&mut state.open);
        drop(state);
        drop(open);
    }
}

#[cfg(test)]
#[path = "owing_tests.rs"]
mod tests;
