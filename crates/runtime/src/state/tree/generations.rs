//! Two generations of what is not durable (rule R12).

use siftfs_base::{Bytes, RangeSet};

/// What the running transaction will journal, and what the transaction in flight has taken but not
/// made durable. An fsync waits for both; only the first changes.
#[derive(Clone, Debug, Default)]
pub struct Generations<T> {
    running: T,
    in_flight: T,
}

impl<T: Default> Generations<T> {
    /// The running transaction's generation.
    pub fn running(&self) -> &T {
        &self.running
    }

    /// The running transaction's generation, to be changed.
    pub fn running_mut(&mut self) -> &mut T {
        &mut self.running
    }

    /// The generation of the transaction in flight.
    pub fn in_flight(&self) -> &T {
        &self.in_flight
    }

    /// Both generations.
    pub fn each(&self) -> [&T; 2] {
        [&self.running, &self.in_flight]
    }

    /// Both generations, to be changed: what a staged transaction carries is no longer pending in
    /// either.
    pub fn each_mut(&mut self) -> [&mut T; 2] {
        [&mut self.running, &mut self.in_flight]
    }

    /// A transaction is cut: what was the running one's is in flight.
    pub fn cut(&mut self) {
        self.in_flight = std::mem::take(&mut self.running);
    }

    /// The transaction in flight is durable.
    pub fn journaled(&mut self) {
        self.in_flight = T::default();
    }
}

impl Generations<RangeSet<Bytes>> {
    /// What the running transaction has of `[start, end)` is sent to the area, which may be before
    /// that transaction is cut. The caller takes it out of the running generation.
    pub fn send(&mut self, start: u64, end: u64) {
        self.running.overlapping(start, end).for_each(|(s, e)| self.in_flight.insert(s, e));
    }
}
