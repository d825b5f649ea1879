//! The slots of a client's session: which thread, or what else, waits for which call.

use siftfs_base::{Error, Result, errno};
use siftfs_calls::{Done, Proof};
use siftfs_proto::{Completion, Reply};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a server says of a call to a client that comes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// Of a change.
    pub done: Option<Done>,
    /// Codes for what it granted.
    pub proofs: Vec<Proof>,
}

/// What a server says to a call: its answer, and what it tells a client that comes back.
pub(super) type Said = (Result<Reply>, Noted);

/// What follows an answer.
pub(super) enum Then {
    /// A thread waits for it.
    Wake,
    /// This is called with it.
    Call(Completion),
}

#[derive(Default)]
struct Slot {
    next: u64,
    /// What follows the answer of the call that is under way.
    then: Option<Then>,
    /// The answer that a thread is about to take.
    answer: Option<Said>,
    /// Bytes of the call that is under way.
    bytes: u64,
    /// It waits for another program.
    long: bool,
    /// Its caller waits for the answer, or looks whether it can receive.
    waits: bool,
    /// Its caller is to receive.
    receives: bool,
    /// Its caller sleeps.
    sleeps: bool,
}

/// How long a call may keep its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// As long as the server needs.
    Short,
    /// Until another program does something. One more is this errno.
    Long(i32),
}

/// Of a session's slots, those of eight that calls may have together which wait for other programs.
/// The rest stay free for what such programs wait for.
const LONG_EIGHTHS: usize = 5;

struct State {
    slots: Vec<Slot>,
    /// Calls under way that wait for other programs.
    long: usize,
    /// Callers that wait for their answers.
    waiting: usize,
    /// Callers that wait for a slot.
    entering: usize,
    free: Vec<u32>,
    bytes: u64,
    /// Why nothing can be called any more.
    broken: Option<Error>,
}

/// The slots of a session.
pub(super) struct Slots {
    state: Mutex<State>,
    /// A slot or bytes are free, or nothing can be called any more.
    room: Condvar,
    /// Per slot: its answer is there.
    answered: Vec<Condvar>,
    most: u64,
}

/// A caller who is about to have a slot.
pub(super) struct Entry<'a> {
    slots: &'a Slots,
    bytes: u64,
    length: Length,
}

impl Slots {
    pub fn new(slots: u32, most: u64) -> Self {
        let count = slots as usize;
        let state = State {
            slots: std::iter::repeat_with(Slot::default).take(count).collect(),
            long: 0,
            waiting: 0,
            entering: 0,
            free: (0..slots).rev().collect(),
            bytes: 0,
            broken: None,
        };
        let answered = std::iter::repeat_with(Condvar::new).take(count).collect();
        Self { state: Mutex::new(state), room: Condvar::new(), answered, most }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call with this much data wants a slot.
    pub fn enter(&self, bytes: u64) -> Entry<'_> {
        // What is more than all goes alone.
        Entry { slots: self, bytes: bytes.min(self.most), length: Length::Short }
    }

    /// A call that waits for another program wants a slot. Where too many do, it is this errno.
    pub fn enter_long(&self, beyond: i32) -> Entry<'_> {
        Entry { slots: self, bytes: 0, length: Length::Long(beyond) }
    }

    /// The answer of a call. False if no such call is under way.
    pub fn answer(&self, slot: u32, number: u64, said: Said) -> bool {
        let mut state = self.lock();
        let found = state.slots.get_mut(slot as usize);
        // A slot's number counts on when its call begins.
        let found = found.filter(|found| found.next == number.wrapping_add(1));
        let Some(then) = found.and_then(|found| found.then.take()) else { return false };
        self.finish(state, slot, then, said);
        true
    }

    /// The call of a slot was not sent: the next one has its number.
    pub fn unsent(&self, slot: u32, error: Error) {
        let mut state = self.lock();
        let found = state.slots.get_mut(slot as usize).expect("a call began there");
        found.next = found.next.wrapping_sub(1);
        if let Some(then) = found.then.take() {
            self.finish(state, slot, then, (Err(error), Noted::default()));
        }
    }

    fn finish(&self, mut state: MutexGuard<'_, State>, slot: u32, then: Then, said: Said) {
        match then {
            Then::Wake => {
                let found = state.slots.get_mut(slot as usize).expect("a call began there");
                found.answer = Some(said);
                let sleeps = found.sleeps;
                drop(state);
                // One that has received it itself needs no waking.
                if sleeps {
                    self.answered.get(slot as usize).expect("one per slot").notify_one();
                }
            }
            Then::Call(done) => {
                self.release(&mut state, slot);
                drop(state);
                done(said.0);
            }
        }
    }

    fn release(&self, state: &mut State, slot: u32) {
        let found = state.slots.get_mut(slot as usize).expect("a call began there");
        state.bytes -= std::mem::take(&mut found.bytes);
        state.long -= usize::from(std::mem::take(&mut found.long));
        state.free.push(slot);
        if state.entering > 0 {
            self.room.notify_all();
        }
    }

    /// Has one of the callers that wait receive; false if none does.
    pub fn call_one(&self) -> bool {
        let mut state = self.lock();
        if state.waiting == 0 {
            return false;
        }
        let waits = |slot: &Slot| slot.waits && slot.answer.is_none();
        let Some(at) = state.slots.iter().position(waits) else { return false };
        let found = state.slots.get_mut(at).expect("it was found");
        found.receives = true;
        let sleeps = found.sleeps;
        drop(state);
        if sleeps {
            self.answered.get(at).expect("one per slot").notify_one();
        }
        true
    }

    /// Is the answer of the call in `slot` there, which its caller has not taken?
    pub fn has_answer(&self, slot: u32) -> bool {
        let state = self.lock();
        state.slots.get(slot as usize).is_some_and(|found| found.answer.is_some())
    }

    /// Do callers wait for answers, and do not receive?
    pub fn are_awaited(&self) -> bool {
        let state = self.lock();
        state.slots.iter().any(|slot| slot.waits && slot.answer.is_none())
    }

    /// Is a call under way that waits for another program, maybe without a thread?
    pub fn have_long_ones(&self) -> bool {
        self.lock().long > 0
    }

    /// Why nothing can be called any more, if it is so.
    pub fn broken(&self) -> Option<Error> {
        self.lock().broken.clone()
    }

    /// Nothing comes any more: every call that is under way, and each later one, is answered so.
    pub fn broke(&self, error: &Error) {
        let mut state = self.lock();
        state.broken.get_or_insert_with(|| error.clone());
        let mut calls = Vec::new();
        for (slot, found) in (0..).zip(&mut state.slots) {
            if let Some(then) = found.then.take() {
                calls.push((slot, then));
            }
        }
        self.room.notify_all();
        drop(state);
        for (slot, then) in calls {
            self.finish(self.lock(), slot, then, (Err(error.clone()), Noted::default()));
        }
    }
}

impl Entry<'_> {
    /// Waits for a slot, and begins a call in it.
    ///
    /// # Errors
    /// Nothing can be called any more, or too many calls wait for other programs.
    pub fn begin(&self, then: Then) -> Result<(u32, u64)> {
        self.begin_or(then).map_err(|(error, _)| error)
    }

    /// As [`Entry::begin`], of a call whose answer goes to `done`, which is given back with an
    /// error.
    pub fn begin_then(
        &self,
        done: Completion,
    ) -> std::result::Result<(u32, u64), (Error, Completion)> {
        self.begin_or(Then::Call(done)).map_err(|(error, then)| match then {
            Then::Call(done) => (error, done),
            Then::Wake => unreachable!("what was given comes back"),
        })
    }

    fn begin_or(&self, then: Then) -> std::result::Result<(u32, u64), (Error, Then)> {
        let slots = self.slots;
        let mut state = slots.lock();
        loop {
            if let Some(error) = &state.broken {
                return Err((error.clone(), then));
            }
            let mut long = false;
            if let Length::Long(beyond) = self.length {
                if state.long >= state.slots.len() * LONG_EIGHTHS / 8 {
                    return Err((errno(beyond), then));
                }
                long = true;
            }
            let fits = state.bytes + self.bytes <= slots.most || state.bytes == 0;
            match state.free.pop() {
                Some(slot) if fits => {
                    state.bytes += self.bytes;
                    let found = state.slots.get_mut(slot as usize).expect("it was free");
                    (found.then, found.bytes, found.long) = (Some(then), self.bytes, long);
                    let number = found.next;
                    found.next = number.wrapping_add(1);
                    state.long += usize::from(long);
                    return Ok((slot, number));
                }
                Some(slot) => state.free.push(slot),
                None => {}
            }
            state.entering += 1;
            state = slots.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.entering -= 1;
        }
    }

    /// Waits for the answer of the call in `slot`. What `receive` does is done first, and again
    /// whenever this caller is to receive: it returns when it has received the answer, or cannot
    /// receive.
    pub fn wait(&self, slot: u32, receive: impl Fn()) -> Said {
        let (slots, at) = (self.slots, slot as usize);
        let answered = slots.answered.get(at).expect("one per slot");
        let mut state = slots.lock();
        loop {
            let found = state.slots.get_mut(at).expect("a call began there");
            if let Some(said) = found.answer.take() {
                slots.release(&mut state, slot);
                return said;
            }
            // It counts as one that waits from here on: one that lays the receiver down after this
            // one has looked for it finds a caller that it can wake.
            (found.waits, found.receives) = (true, false);
            state.waiting += 1;
            drop(state);
            receive();
            state = slots.lock();
            let goes_on = |state: &mut State| {
                let found = state.slots.get_mut(at).expect("a call began there");
                found.sleeps = found.answer.is_none() && !found.receives;
                found.sleeps
            };
            state = answered.wait_while(state, goes_on).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
            state.slots.get_mut(at).expect("a call began there").waits = false;
        }
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
