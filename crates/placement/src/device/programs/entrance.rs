//! Who is inside a grant: the step from a request's check to its being counted is one as far as the
//! grant's end is concerned (rule R29), and bound to no thread.

use crate::device::calls::lock;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What has a way in.
pub(crate) trait Gate {
    /// What is granted.
    type Granted: Clone;
    /// What comes while it ends.
    type Late;

    /// Its way in.
    fn entrance(&self) -> &Entrance<Self::Granted, Self::Late>;
}

/// The way into what is granted, until that has ended. A grant that nobody uses has it, too, so it
/// is small.
pub(crate) struct Entrance<T, L> {
    state: Mutex<State<T, L>>,
    changed: Condvar,
}

struct State<T, L> {
    /// Nothing, when its end has it.
    granted: Option<T>,
    /// Nobody enters any more.
    ends: bool,
    /// All that its end does is done.
    ended: bool,
    inside: u32,
    late: Option<Box<Late<L>>>,
}

/// Those who came while it ends.
struct Late<L>(Vec<L>);

/// Is inside, until it is dropped.
pub(crate) struct Entered<G: Gate> {
    gate: Arc<G>,
    granted: G::Granted,
}

/// What becomes of one who wants to enter.
pub(crate) enum Entering<G: Gate> {
    /// It is inside.
    Inside(Entered<G>, G::Late),
    /// The end has it, and gives it back when it has been.
    Late,
    /// There is nothing to enter any more.
    Over(G::Late),
}

/// Enters, and never waits.
pub(crate) fn enter<G: Gate>(gate: &Arc<G>, one: G::Late) -> Entering<G> {
    let mut state = lock(&gate.entrance().state);
    if state.ended {
        return Entering::Over(one);
    }
    match state.granted.clone().filter(|_| !state.ends) {
        None => {
            state.late.get_or_insert_with(|| Box::new(Late(Vec::new()))).0.push(one);
            Entering::Late
        }
        Some(granted) => {
            state.inside += 1;
            Entering::Inside(Entered { gate: gate.clone(), granted }, one)
        }
    }
}

/// Enters for something that nobody waits for; `None` if it ends or has ended.
pub(crate) fn try_inside<G: Gate>(gate: &Arc<G>) -> Option<Entered<G>> {
    let mut state = lock(&gate.entrance().state);
    let granted = state.granted.clone().filter(|_| !state.ends)?;
    state.inside += 1;
    Some(Entered { gate: gate.clone(), granted })
}

/// Enters; if it ends, that is waited for, and there is nothing then.
pub(crate) fn inside<G: Gate>(gate: &Arc<G>) -> Option<Entered<G>> {
    let entered = try_inside(gate);
    if entered.is_none() {
        gate.entrance().wait_for_end();
    }
    entered
}

impl<T, L> Entrance<T, L> {
    /// Nobody is inside.
    pub fn new(granted: T) -> Self {
        let state =
            State { granted: Some(granted), ends: false, ended: false, inside: 0, late: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until it has ended. Nobody waits for ever: its end has begun.
    pub fn wait_for_end(&self) {
        let mut state = lock(&self.state);
        while !state.ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has it ended, with all that its end does?
    pub fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Lets nobody in from now on, waits until nobody is inside, and has `finish` done, with what
    /// was granted unless that had ended before. Then it has ended; those who came late are given
    /// back with the answer. For one thread at a time.
    pub fn end<R>(&self, finish: impl FnOnce(Option<&T>) -> R) -> (R, Vec<L>) {
        let mut state = lock(&self.state);
        state.ends = true;
        while state.inside > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // Nobody takes it: only an end does, and that is this one.
        let granted = state.granted.take();
        drop(state);
        let finished = finish(granted.as_ref());
        let mut state = lock(&self.state);
        state.ended = true;
        let late = state.late.take().map_or_else(Vec::new, |late| late.0);
        drop(state);
        drop(granted);
        self.changed.notify_all();
        (finished, late)
    }
}

impl<G: Gate> Deref for Entered<G> {
    type Target = G::Granted;

    fn deref(&self) -> &G::Granted {
        &self.granted
    }
}

impl<G: Gate> Drop for Entered<G> {
    fn drop(&mut self) {
        let entrance = self.gate.entrance();
        let mut state = lock(&entrance.state);
        state.inside = state.inside.checked_sub(1).expect("what leaves has entered");
        if state.inside == 0 && state.ends {
            entrance.changed.notify_all();
        }
    }
}

#[cfg(test)]
#[path = "entrance_tests.rs"]
mod tests;
