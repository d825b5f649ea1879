//! Requests for checkpoints, in the order in which they are worked for.

use siftfs_base::TxnSeq;
use siftfs_wire::{CheckpointReport, Urgency};
use std::collections::VecDeque;

/// One `Checkpoint` message and what was done for it.
pub(crate) struct Request {
    pub id: u64,
    pub upto: TxnSeq,
    pub urgency: Urgency,
    pub report: CheckpointReport,
}

/// Waiting requests; emergency ones have their own gate, so that no background request stands
/// before them (SIFT §4.2.5).
#[derive(Default)]
pub(crate) struct Requests {
    pub emergency: VecDeque<Request>,
    pub background: VecDeque<Request>,
}

impl Requests {
    /// One more request.
    pub fn add(&mut self, id: u64, upto: TxnSeq, urgency: Urgency) {
        let report = CheckpointReport { trigger: Some(urgency), ..CheckpointReport::default() };
        let request = Request { id, upto, urgency, report };
        match urgency {
            Urgency::Emergency => self.emergency.push_back(request),
            Urgency::Background => self.background.push_back(request),
        }
    }
    /// Is there no request?
    pub fn is_empty(&self) -> bool {
        self.emergency.is_empty() && self.background.is_empty()
    }
    /// Is the request to work for next an emergency, if there is one?
    pub fn urgency(&self) -> Option<bool> {
        if !self.emergency.is_empty() {
            return Some(true);
        }
        (!self.background.is_empty()).then_some(false)
    }
    /// The request to work for next.
    pub fn next(&mut self) -> Option<&mut Request> {
        self.emergency.front_mut().or(self.background.front_mut())
    }
}
