//! Atomic writes of a program, by the redo lane (`docs/design/target.md`, "The redo lane").

use crate::device::calls::Carried;
use siftfs_base::{Error, Result, SharedBlock};
use siftfs_service::{Held, RedoLane};
use siftfs_wire::{ATOMIC_MAX_RUNS, AtomicRun};
use std::ops::Range;
use std::sync::Arc;

/// The redo lane, as one grant has it.
#[derive(Clone)]
pub(crate) struct Redo {
    lane: Arc<RedoLane>,
    /// What the lane calls the grant.
    owner: u64,
}

impl Redo {
    /// No other grant of this lane has this number.
    pub fn new(lane: Arc<RedoLane>, owner: u64) -> Self {
        Self { lane, owner }
    }

    /// What is committed, as it is while this is held.
    pub fn hold(&self) -> Held<'_> {
        self.lane.hold()
    }

    /// Does a plain write of these bytes of the area, behind what is committed of their blocks
    /// (rule R33).
    pub fn write_beside(
        &self,
        bytes: &Range<u64>,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.lane.write_beside(bytes, write)
    }

    /// Nothing more comes of the grant's transactions (rules R29, R45). No call of it is under way.
    pub fn drain(&self) -> Result<()> {
        self.lane.drain(self.owner)
    }

    /// Transactions that run are dropped.
    pub fn abort_all(&self) {
        self.lane.abort_all(self.owner);
    }

    /// Drops a transaction.
    pub fn abort(&self, transaction: u64) {
        self.lane.abort(self.owner, transaction);
    }

    /// Adds ranges that `check` takes to a transaction, and perhaps commits it. If that fails the
    /// transaction runs no more.
    pub fn write(
        &self,
        (transaction, commit): (u64, bool),
        (runs, blocks): (&[AtomicRun], &[SharedBlock]),
        check: impl Fn(&AtomicRun) -> Result<()>,
    ) -> Result<()> {
        let added = self.add(transaction, (runs, blocks), check);
        added.inspect_err(|_| self.abort(transaction))?;
        if commit { self.lane.commit(self.owner, transaction) } else { Ok(()) }
    }

    fn add(
        &self,
        transaction: u64,
        (runs, blocks): (&[AtomicRun], &[SharedBlock]),
        check: impl Fn(&AtomicRun) -> Result<()>,
    ) -> Result<()> {
        if runs.len() > ATOMIC_MAX_RUNS {
            return Err(Error::Refused(format!("an atomic write of {} ranges", runs.len())));
        }
        let len: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        let carried = Carried::of(u32::try_from(len).unwrap_or(u32::MAX), blocks)?;
        let (mut data, mut parts) = (carried.data()?, Vec::with_capacity(runs.len()));
        for run in runs {
            check(run)?;
            let (own, rest) = data.split_at_checked(run.len as usize).unwrap_or((data, &[]));
            data = rest;
            parts.push((run.offset, own));
        }
        self.lane.append_all(self.owner, transaction, &parts)
    }
}

#[cfg(test)]
#[path = "atomic_tests.rs"]
mod tests;
