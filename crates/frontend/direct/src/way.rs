//! The way to what is granted of one file: where its blocks are, and the connection.

use crate::room::Fresh;
use siftfs_base::{BLOCK_BYTES, Result};
use siftfs_device_target::{Kept, Lines, Next, Queue, RequestOrder};
use siftfs_proto::{Direct, DirectRun};
use std::ops::Range;
use std::sync::Arc;

/// A grant that lasts, as far as is known.
pub(crate) struct Way {
    granted: Direct,
    queue: Queue,
    fresh: Fresh,
}

/// A piece of a file: where it is in the file, and in the area if it is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub file: Range<u64>,
    pub area: Option<u64>,
}

impl Piece {
    /// Bytes.
    pub fn len(&self) -> usize {
        usize::try_from(self.file.end - self.file.start).unwrap_or(usize::MAX)
    }
}

/// A way that is over, with what was written by it and may be lost as well: bytes, and where they
/// belong in the file, in the order of the writes.
#[derive(Debug)]
pub(crate) struct Lost {
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Something else may be lost, too, which is not there any more.
    pub in_doubt: bool,
    /// Something else was written for the first time, and is durable at the target. It is lost if
    /// the host dies before it has made what the target tells it durable.
    pub untold: bool,
    /// What came of other writes that were not answered.
    pub done: Result<()>,
    /// Nothing of these was carried out, or answered: their callers may do them again.
    pub undone: bool,
}

/// What follows on a way whose queue's life had ended.
pub(crate) enum After {
    /// It goes on. What came of the writes that were not answered.
    Way(Box<Way>, Result<()>),
    /// It is over.
    Lost(Lost),
}

impl Way {
    /// A queue for these blocks, by the connections to where they are granted.
    pub fn open(lines: Arc<Lines>, granted: Direct, order: RequestOrder) -> Result<Self> {
        let queue = Queue::open(lines, granted.token, order)?;
        let fresh = Fresh::of(&granted.runs);
        Ok(Self { granted, queue, fresh })
    }

    /// Begins a new life of the queue after the last one has ended. No call is under way.
    pub fn again(self) -> After {
        let Self { granted, queue, fresh } = self;
        match queue.again() {
            Next::Life(queue, done) => {
                After::Way(Box::new(Self { granted, queue: *queue, fresh }), done)
            }
            // Its end has made everything durable that was answered, and tells the host, if that
            // lives.
            Next::Ended(kept, done) => {
                let writes = placed(&granted.runs, kept);
                let untold = fresh.lacks(&writes);
                After::Lost(Lost { writes, in_doubt: false, untold, done, undone: true })
            }
            Next::Lost(kept, done) => After::Lost(lost(&granted.runs, kept, &fresh, done)),
        }
    }

    /// Makes durable what was written, and gives the way up. No call is under way.
    pub fn settle(self) -> Lost {
        let (in_doubt, undone, untold) = (false, false, self.fresh.owes());
        let none = Lost { writes: Vec::new(), in_doubt, untold, done: Ok(()), undone };
        if !self.queue.has_unanswered() && (self.queue.is_flushed() || self.queue.flush().is_ok()) {
            return none;
        }
        match self.again() {
            After::Way(way, done) if way.queue.flush().is_ok() => Lost { done, ..none },
            After::Way(way, done) => Lost { done, ..way.abandon() },
            After::Lost(lost) => lost,
        }
    }

    /// Gives the way up, and everything that is not known to be durable and told.
    pub fn abandon(self) -> Lost {
        lost(&self.granted.runs, self.queue.kept(), &self.fresh, Ok(()))
    }

    /// What of the granted blocks the file had not written before.
    pub fn fresh(&self) -> &Fresh {
        &self.fresh
    }

    /// What reads and writes the blocks.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The pieces of a range of the file, in order, none empty.
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        pieces(&self.granted.runs, range)
    }

    /// These blocks are granted besides, by the same grant.
    pub fn extend(&mut self, runs: Vec<DirectRun>) {
        self.fresh.add(&runs);
        add(&mut self.granted.runs, runs);
    }

    /// How many blocks are granted.
    pub fn blocks(&self) -> u64 {
        self.granted.runs.iter().map(|run| run.count).sum()
    }
}

/// Adds runs to those in the order of the file, and makes one of those that go on in the area. The
/// blocks of one run are all fresh, or none is.
fn add(runs: &mut Vec<DirectRun>, more: Vec<DirectRun>) {
    runs.extend(more);
    runs.sort_unstable_by_key(|run| run.first);
    runs.dedup_by(|next, last| {
        let goes_on = last.first.checked_add(last.count) == Some(next.first)
            && last.block.checked_add(last.count) == Some(next.block)
            && last.fresh == next.fresh;
        last.count = last.count.saturating_add(if goes_on { next.count } else { 0 });
        goes_on
    });
}

/// Where in the file kept writes belong.
fn placed(runs: &[DirectRun], kept: Vec<Kept>) -> Vec<(u64, Vec<u8>)> {
    let place = |offset: u64| {
        let block = offset / BLOCK_BYTES;
        let run = runs
            .iter()
            .find(|run| block.checked_sub(run.block).is_some_and(|behind| behind < run.count))?;
        Some((run.first + (block - run.block)) * BLOCK_BYTES + offset % BLOCK_BYTES)
    };
    // A write lies in one run, and so it does when that has become longer.
    kept.into_iter().filter_map(|kept| Some((place(kept.offset)?, kept.data))).collect()
}

/// What may be lost with a grant that cannot be reached.
fn lost(runs: &[DirectRun], kept: Vec<Kept>, fresh: &Fresh, done: Result<()>) -> Lost {
    let writes = placed(runs, kept);
    let in_doubt = fresh.lacks(&writes);
    Lost { writes, in_doubt, untold: false, done, undone: false }
}

fn pieces(runs: &[DirectRun], range: Range<u64>) -> Vec<Piece> {
    let (mut pieces, mut at) = (Vec::new(), range.start);
    let end_of = |run: &DirectRun| run.first.saturating_add(run.count).saturating_mul(BLOCK_BYTES);
    let from = runs.partition_point(|run| end_of(run) <= range.start);
    for run in runs.iter().skip(from) {
        let (start, end) = (run.first.saturating_mul(BLOCK_BYTES), end_of(run).min(range.end));
        if start >= range.end {
            break;
        }
        if at < start {
            pieces.push(Piece { file: at..start, area: None });
            at = start;
        }
        if at < end {
            let area = run.block.saturating_mul(BLOCK_BYTES).saturating_add(at - start);
            pieces.push(Piece { file: at..end, area: Some(area) });
            at = end;
        }
    }
    if at < range.end {
        pieces.push(Piece { file: at..range.end, area: None });
    }
    pieces
}

#[cfg(test)]
#[path = "way_tests.rs"]
mod tests;
