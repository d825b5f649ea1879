//! The slots of a session: one call at a time in each, with the slot's next number (rule R32).

use siftfs_calls::SLOTS;
use std::sync::{Mutex, PoisonError};

#[derive(Clone, Copy, Default)]
struct Slot {
    next: u64,
    busy: bool,
}

/// The slots of a session.
pub(super) struct Slots(Mutex<Vec<Slot>>);

impl Default for Slots {
    fn default() -> Self {
        Self(Mutex::new(vec![Slot::default(); SLOTS as usize]))
    }
}

impl Slots {
    /// A call came in a slot.
    ///
    /// # Errors
    /// The call may not come in that slot; the text says what is wrong with the call.
    pub fn begin(&self, slot: u32, number: u64) -> Result<(), String> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = slots.get_mut(slot as usize) else {
            return Err(format!("a call in slot {slot}, which does not exist"));
        };
        if found.busy {
            return Err(format!("a second call in slot {slot}"));
        }
        if found.next != number {
            return Err(format!("call {number} in slot {slot} instead of {}", found.next));
        }
        *found = Slot { next: number.wrapping_add(1), busy: true };
        Ok(())
    }

    /// The call of a slot is about to be answered: the next one may come.
    pub fn end(&self, slot: u32) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get_mut(slot as usize).expect("a call began there");
        assert!(std::mem::take(&mut slot.busy), "a call is answered once");
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
