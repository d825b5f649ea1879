//! Those who may be somewhere together, and one who has to be there alone.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What several enter at once, or one alone.
///
/// It differs from a lock in that being inside is bound to no thread: what begins in one may end in
/// another. One who waits to be alone keeps others from entering; so nobody enters a second time
/// while being inside.
#[derive(Default)]
pub struct Turnstile {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    inside: usize,
    alone: bool,
    /// Those that wait to be alone.
    wishes: usize,
}

/// Is inside, until it is dropped.
pub struct Inside(Arc<Turnstile>);

/// Is inside alone, until it is dropped.
pub struct Alone<'a>(&'a Turnstile);

impl Turnstile {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters if that can be done at once. `None`: another one is alone, or waits for that.
    pub fn try_enter(self: &Arc<Self>) -> Option<Inside> {
        let mut state = self.lock();
        if state.alone || state.wishes > 0 {
            return None;
        }
        state.inside += 1;
        Some(Inside(self.clone()))
    }

    /// Enters, and waits for one who is alone or waits for that.
    pub fn enter(self: &Arc<Self>) -> Inside {
        let mut state = self.lock();
        while state.alone || state.wishes > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.inside += 1;
        Inside(self.clone())
    }

    /// Waits until nobody else is inside, and keeps it so.
    pub fn alone(&self) -> Alone<'_> {
        let mut state = self.lock();
        state.wishes += 1;
        while state.alone || state.inside > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.wishes -= 1;
        state.alone = true;
        Alone(self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.inside = state.inside.checked_sub(1).expect("what leaves has entered");
        if state.inside == 0 && state.wishes > 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.lock().alone = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
#[path = "turnstile_tests.rs"]
mod tests;
