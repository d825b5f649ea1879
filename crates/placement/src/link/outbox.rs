//! Messages to the Service that have not been answered, in the order in which they were handed
//! over.

use siftfs_base::{Error, Result, TxnSeq};
use siftfs_wire::{FromService, ToService};
use std::collections::VecDeque;

/// Unanswered messages and how far they were sent. Bounded by the Runtime: one transaction in
/// flight with its direct data, one background checkpoint, one question, one discard, and
/// a checkpoint or a discard per caller that waits.
pub(crate) struct Outbox {
    entries: VecDeque<ToService>,
    /// Index of the first message that has not been sent on this connection.
    next: usize,
    /// Newest transaction that any connection has carried.
    sent: TxnSeq,
    /// Highest checkpoint request handed over.
    asked: u64,
    /// Highest discard handed over.
    discarded: u64,
}

/// Is this the discard with that number?
fn is_discard(message: &ToService, id: u64) -> bool {
    matches!(message, ToService::Discard { id: own, .. } if *own == id)
}

fn refused(what: &str) -> Error {
    Error::Refused(format!("the Service's answer was refused: {what}"))
}

impl Outbox {
    /// An empty outbox; `newest` is the newest transaction that the Service knows.
    pub fn new(newest: TxnSeq) -> Self {
        Self { entries: VecDeque::new(), next: 0, sent: newest, asked: 0, discarded: 0 }
    }

    /// Adds a message behind all others.
    pub fn push(&mut self, message: ToService) {
        if let ToService::Checkpoint { id, .. } = &message {
            self.asked = self.asked.max(*id);
        }
        if let ToService::Discard { id, .. } = &message {
            self.discarded = self.discarded.max(*id);
        }
        self.entries.push_back(message);
    }

    /// The next message to be sent. Blocks are shared, not copied.
    pub fn next(&mut self) -> Option<ToService> {
        let message = self.entries.get(self.next)?.clone();
        self.next += 1;
        if let ToService::Submit { txn, .. } = &message {
            self.sent = self.sent.max(txn.seq);
        }
        Some(message)
    }

    /// Begins another connection: everything is to be sent again, except questions, which are
    /// dropped. Returns whether there was a question.
    pub fn rewind(&mut self) -> bool {
        let before = self.entries.len();
        self.entries.retain(|m| !matches!(m, ToService::Statistics));
        self.next = 0;
        self.entries.len() < before
    }

    /// Newest transaction that was sent.
    pub fn sent_upto(&self) -> TxnSeq {
        self.sent
    }

    /// Messages kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The answer as the Runtime shall have it; `None` for one that it has had.
    ///
    /// # Errors
    /// Refused for an answer to what was never sent.
    pub fn check(&self, message: FromService) -> Result<Option<FromService>> {
        match message {
            FromService::Journaled { seq, .. } | FromService::Reclaimed { seq, .. }
                if seq > self.sent =>
            {
                Err(refused(&format!("transaction {} was never sent", seq.0)))
            }
            FromService::CheckpointDone { id, report, .. } => {
                let asked = self.entries.iter().find_map(|m| match m {
                    ToService::Checkpoint { id: own, urgency, .. } if *own == id => Some(*urgency),
                    _ => None,
                });
                match asked {
                    Some(urgency) => Ok(Some(FromService::CheckpointDone { id, urgency, report })),
                    None if id <= self.asked => Ok(None),
                    None => Err(refused(&format!("checkpoint {id} was never asked for"))),
                }
            }
            FromService::Discarded { id, .. } => {
                let asked = self.entries.iter().any(|m| is_discard(m, id));
                match asked {
                    true => Ok(Some(message)),
                    false if id <= self.discarded => Ok(None),
                    false => Err(refused(&format!("discard {id} was never asked for"))),
                }
            }
            FromService::Statistics(_) => {
                let asked = self.entries.iter().any(|m| matches!(m, ToService::Statistics));
                Ok(Some(message).filter(|_| asked))
            }
            FromService::Welcome { .. } => Err(refused("a second Welcome")),
            message => Ok(Some(message)),
        }
    }

    /// Forgets what this answers.
    pub fn answered(&mut self, message: &FromService) {
        match message {
            FromService::Journaled { seq, .. } | FromService::Reclaimed { seq, .. } => {
                self.forget(|m| match m {
                    ToService::Direct { seq: own, .. } => own <= seq,
                    ToService::Submit { txn, .. } => txn.seq <= *seq,
                    _ => false,
                });
            }
            FromService::CheckpointDone { id, .. } => {
                self.forget(|m| matches!(m, ToService::Checkpoint { id: own, .. } if own == id));
            }
            FromService::Discarded { id, .. } => self.forget(|m| is_discard(m, *id)),
            FromService::Statistics(_) => self.forget(|m| matches!(m, ToService::Statistics)),
            _ => {}
        }
    }

    fn forget(&mut self, done: impl Fn(&ToService) -> bool) {
        let sent = self.entries.iter().take(self.next).filter(|m| done(m)).count();
        self.entries.retain(|m| !done(m));
        self.next -= sent;
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
