//! The duty to flush for callers that have left, and their answers: which thread has it, and how it
//! gets away. "Who flushes, and who answers" in `docs/design/persistence-path.md`.

use super::{Answer, Duty, FOR_OTHERS, Flushed, Sequencer, State, forget};
use crate::locks::sync::{MutexGuard, ThreadId, current};
use crate::staging::records::LaneSet;
use siftfs_base::{Lsn, Result};

impl Sequencer {
    /// The duty's loop, and the wait for it.
    pub(super) fn serve<'a>(
        &'a self,
        mut st: MutexGuard<'a, State>,
        lsn: Lsn,
        flush: &mut impl FnMut(LaneSet) -> Result<()>,
        answer: impl FnOnce(Result<Flushed>) + Send + 'static,
    ) {
        let (mut answer, mut holding) = (Some(answer), false);
        loop {
            let waits = answer.is_some() && st.outcome(lsn).is_none();
            let wanted = waits && st.duty == Duty::None && st.records.unflushed_upto(lsn);
            if !holding && (wanted || st.duty == Duty::Open) {
                st.duty = Duty::Held;
                holding = true;
            }
            let due = if holding { st.take_due() } else { Vec::new() };
            if !due.is_empty() || !waits && answer.is_some() {
                // Another may see to the rest while the answers run; an answer may need that.
                if holding {
                    st.duty = Duty::Open;
                    holding = false;
                }
                if let Some((answer, outcome)) = answer.take_if(|_| !waits).zip(st.outcome(lsn)) {
                    forget(&mut st.free, lsn);
                    forget(&mut st.waiting, lsn);
                    st = self.answer_one(st, answer, outcome);
                }
                st = self.answer(st, due);
                continue;
            }
            if holding && !waits {
                match self.hand_over(&mut st) {
                    true => return,
                    false => st.duty = Duty::Tired,
                }
            } else if !waits {
                return;
            }
            if holding && st.flush_serves(waits.then_some(lsn)) {
                st = self.flush_for_all(st, flush);
            } else {
                st = self.wait_for_others(st, holding && !waits);
            }
        }
    }

    /// The thread with the duty is answered itself: does it get away?
    fn hand_over(&self, st: &mut State) -> bool {
        let durable = st.durable();
        if st.free.iter().any(|waits| *waits > durable) {
            st.duty = Duty::Open;
        } else if !st.keeps_somebody() {
            st.duty = Duty::None;
        } else {
            return false;
        }
        if !st.waiting.is_empty() {
            self.changed.notify_all();
        }
        true
    }

    /// Waits for a change. A thread that waits only `for_others` has the entry [`FOR_OTHERS`] in
    /// `waiting` meanwhile.
    fn wait_for_others<'a>(
        &'a self,
        mut st: MutexGuard<'a, State>,
        for_others: bool,
    ) -> MutexGuard<'a, State> {
        if !for_others {
            return self.wait_changed(st);
        }
        st.waiting.push(FOR_OTHERS);
        st = self.wait_changed(st);
        forget(&mut st.waiting, FOR_OTHERS);
        st
    }

    /// Runs one answer, without the lock.
    pub(super) fn answer_one<'a>(
        &'a self,
        mut st: MutexGuard<'a, State>,
        answer: impl FnOnce(Result<Flushed>) + Send + 'static,
        outcome: Result<Flushed>,
    ) -> MutexGuard<'a, State> {
        let me = current().id();
        if st.answering.contains(&me) {
            st.nested.push((Box::new(answer), outcome));
            return st;
        }
        st.answering.push(me);
        drop(st);
        answer(outcome);
        let st = self.lock();
        self.end_answers(st, me)
    }

    /// Runs answers, without the lock.
    pub(super) fn answer<'a>(
        &'a self,
        mut st: MutexGuard<'a, State>,
        due: Vec<(Answer, Result<Flushed>)>,
    ) -> MutexGuard<'a, State> {
        if due.is_empty() {
            return st;
        }
        let me = current().id();
        if st.answering.contains(&me) {
            st.nested.extend(due);
            return st;
        }
        st.answering.push(me);
        drop(st);
        due.into_iter().for_each(|(answer, outcome)| answer(outcome));
        let st = self.lock();
        self.end_answers(st, me)
    }

    /// Runs what became due inside an answer, one after the other and not one inside the other.
    fn end_answers<'a>(
        &'a self,
        mut st: MutexGuard<'a, State>,
        me: ThreadId,
    ) -> MutexGuard<'a, State> {
        while !st.nested.is_empty() {
            let due = std::mem::take(&mut st.nested);
            drop(st);
            due.into_iter().for_each(|(answer, outcome)| answer(outcome));
            st = self.lock();
        }
        st.answering.retain(|thread| *thread != me);
        st
    }
}
