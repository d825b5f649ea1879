//! Places for changes that must not be made twice: one is under way in each, with the place's next
//! number.

use siftfs_calls::SLOTS;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The place of what is repeated after a server's death, one change after the other.
pub(super) const REPEATS: u32 = SLOTS - 1;

struct State {
    free: Vec<u32>,
    numbers: Vec<u64>,
}

/// All places of a client.
pub(super) struct Places {
    state: Mutex<State>,
    freed: Condvar,
}

/// A place with a number. Dropped, it is free: the call was answered, or nobody wants its answer.
pub(super) struct Place<'a> {
    places: &'a Places,
    pub place: u32,
    pub number: u64,
}

impl Default for Places {
    fn default() -> Self {
        let numbers = vec![0; SLOTS as usize];
        let state = Mutex::new(State { free: (0..REPEATS).rev().collect(), numbers });
        Self { state, freed: Condvar::new() }
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place.
    pub fn take(&self) -> Place<'_> {
        let mut state = self.lock();
        loop {
            if let Some(place) = state.free.pop() {
                let number = state.next(place);
                return Place { places: self, place, number };
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next number of what is repeated.
    pub fn repeat(&self) -> u64 {
        self.lock().next(REPEATS)
    }
}

impl State {
    fn next(&mut self, place: u32) -> u64 {
        let number = self.numbers.get_mut(place as usize).expect("one per place");
        *number += 1;
        *number
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.places.lock().free.push(self.place);
        self.places.freed.notify_one();
    }
}
