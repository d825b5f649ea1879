//! Atomic writes of a queue: there as a whole or not at all, by the target's redo lane.

use crate::device::PIECE;
use crate::queues::lines::lock;
use crate::queues::queue::{Queue, is_done, odd};
use crate::queues::sequence::{Kind, Taken};
use siftfs_base::{BLOCK_SIZE, Result, SharedBlock};
use siftfs_wire::{ATOMIC_MAX_RUNS, AtomicRun, StorageCall};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The transaction of a queue, which has one at a time.
const TRANSACTION: u64 = 0;

/// What became of an atomic write whose life has ended before it was answered, when the next life
/// has begun, or the grant is over.
#[derive(Debug, Default)]
pub struct Fate(AtomicU8);

/// One of the values of a [`Fate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing of it is there, unless the target has died since: then that is not known.
    Undone,
    /// It is there, and durable.
    Done,
    /// It may be there, and others may have written since.
    InDoubt,
}

impl Fate {
    /// What is known.
    pub fn outcome(&self) -> Outcome {
        match self.0.load(Ordering::Acquire) {
            0 => Outcome::Undone,
            1 => Outcome::Done,
            _ => Outcome::InDoubt,
        }
    }

    pub(super) fn set(&self, outcome: Outcome) {
        self.0.store(outcome as u8, Ordering::Release);
    }
}

/// What one message carries.
type Message<'a> = Vec<(u64, &'a [u8])>;

impl Queue {
    /// Writes each part at its byte of the area, all of one transaction, the later ones over the
    /// earlier ones: a read or a power cut finds all of it or nothing, and when this returns it is
    /// there, and durable. Alone on the queue: what was written before is flushed first, because
    /// what is kept of it could come over the transaction when the target dies. What has room in
    /// one message is one round trip besides.
    ///
    /// # Errors
    /// Those of a queue, after which all of it may be there, or nothing, as `fate` says when
    /// [`Queue::again`] has returned. `EOPNOTSUPP`: the volume has no redo lane, or a block was
    /// granted as a fresh one. `EFBIG`: it has no room. Then, and if it was refused, nothing of it
    /// is there.
    pub fn write_atomic(&self, parts: &[(u64, &[u8])], fate: &Arc<Fate>) -> Result<()> {
        let turn = self.turn(Kind::Write, [], true);
        if !self.is_flushed() {
            self.flush()?;
        }
        let messages = messages(parts);
        let last = messages.len().saturating_sub(1);
        for (at, message) in messages.iter().enumerate() {
            self.send_atomic((at == last).then_some(fate), message)?;
        }
        drop(turn);
        Ok(())
    }

    fn send_atomic(&self, commit: Option<&Arc<Fate>>, message: &Message<'_>) -> Result<()> {
        let ranges: Vec<Range<u64>> =
            message.iter().map(|(at, data)| *at..*at + data.len() as u64).collect();
        let noted = |taken: &Taken| {
            let commits = taken.number(0).zip(commit.cloned());
            *lock(&self.committing) = commits;
        };
        let calls = vec![call(commit.is_some(), message)];
        let answer = self.ordered(Kind::Write, &ranges, calls, noted)?.pop();
        *lock(&self.committing) = None;
        answer.map_or_else(|| Err(odd("no answer")), is_done)
    }
}

/// The parts, cut into what each message has room for.
fn messages<'a>(parts: &[(u64, &'a [u8])]) -> Vec<Message<'a>> {
    let (mut all, mut bytes) = (vec![Message::new()], 0);
    for (offset, data) in parts {
        let (mut at, mut rest) = (*offset, *data);
        while !rest.is_empty() {
            if bytes == PIECE || all.last().is_some_and(|one| one.len() == ATOMIC_MAX_RUNS) {
                all.push(Message::new());
                bytes = 0;
            }
            let (own, behind) = rest.split_at(rest.len().min(PIECE - bytes));
            if let Some(message) = all.last_mut() {
                message.push((at, own));
            }
            (bytes, at, rest) = (bytes + own.len(), at + own.len() as u64, behind);
        }
    }
    all
}

fn call(commit: bool, message: &Message<'_>) -> StorageCall {
    let run = |(offset, data): &(u64, &[u8])| AtomicRun { offset: *offset, len: data.len() as u32 };
    let runs = message.iter().map(run).collect();
    let parts: Vec<&[u8]> = message.iter().map(|(_, data)| *data).collect();
    let data = parts.concat();
    let blocks = data.chunks(BLOCK_SIZE).map(|part| {
        let mut block = [0; BLOCK_SIZE];
        block.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        SharedBlock::from(block)
    });
    StorageCall::AtomicWrite { transaction: TRANSACTION, commit, runs, blocks: blocks.collect() }
}

#[cfg(test)]
#[path = "atomic_tests.rs"]
mod tests;
