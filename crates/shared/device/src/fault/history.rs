//! What was done to a device, for tests that assert on order or cut at every boundary of one
//! run.

use super::cache::{Event, VolatileCache};

/// Kind of a recorded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// A read.
    Read,
    /// A volatile write.
    Write,
    /// A write that was durable when it returned.
    WriteFua,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

/// One call, recorded when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRecord {
    /// Number of the operation; a read has that of the next write or flush, which it does not
    /// take.
    pub op: u64,
    /// What it was.
    pub kind: OpKind,
    /// First byte; 0 for a flush of the whole device, else that of the part.
    pub offset: u64,
    /// Length in bytes; 0 for a flush of the whole device.
    pub len: usize,
}

/// Everything that happened to a device since recording began, with its data: one run of a
/// test gives the states at all its cuts.
#[derive(Clone)]
pub struct History {
    base: VolatileCache,
    events: Vec<Event>,
}

impl History {
    pub(super) fn new(base: VolatileCache) -> Self {
        Self { base, events: Vec::new() }
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Calls `at` for the power cut at every operation, with the operation in flight at the cut
    /// (it and what follows did not return) and the state of the device; at last with the
    /// number of the operation that would come next, and nothing in flight.
    ///
    /// States are those of [`super::FaultDevice::cut_at`] with the same number in a run with
    /// one thread.
    pub fn each_cut(&self, mut at: impl FnMut(u64, &VolatileCache)) {
        let mut cache = self.base.clone();
        let mut next = None;
        for event in &self.events {
            cache.apply(event);
            if let Event::StartWrite { op, .. } | Event::StartFlush { op, .. } = event
                && next.is_none_or(|n| *op >= n)
            {
                at(*op, &cache);
                next = Some(op + 1);
            }
        }
        at(next.unwrap_or(0), &cache);
    }
}
