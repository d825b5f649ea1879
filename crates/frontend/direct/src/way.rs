//! The way to what is granted of one file: where its blocks are, and the connection.

use crate::room::Fresh;
use siftfs_base::{BLOCK_BYTES, Error, Result};
use siftfs_device_target::{Attached, Kept, TargetPlace};
use siftfs_proto::{Direct, DirectRun};
use std::ops::Range;

/// A grant that lasts, as far as is known.
pub(crate) struct Way {
    place: TargetPlace,
    granted: Direct,
    attached: Attached,
    fresh: Fresh,
}

/// A piece of a file: where it is in the file, and in the area if it is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub file: Range<u64>,
    pub area: Option<u64>,
}

/// A way that is lost, with what was written by it and may be lost as well: bytes, and where they
/// belong in the file, in the order of the writes.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    pub writes: Vec<(u64, Vec<u8>)>,
    /// Something else may be lost, too, which is not there any more.
    pub in_doubt: bool,
}

impl Way {
    /// Connects to where these blocks are granted.
    pub fn open(place: TargetPlace, granted: Direct) -> Result<Self> {
        let attached = Attached::open(&place, granted.token)?;
        let fresh = Fresh::of(&granted.runs);
        Ok(Self { place, granted, attached, fresh })
    }

    /// Connects again after the connection was lost.
    ///
    /// # Errors
    /// The grant is not there any more.
    pub fn again(self) -> std::result::Result<Self, Lost> {
        let Self { place, granted, attached, fresh } = self;
        match attached.again(&place, granted.token) {
            Ok(attached) => Ok(Self { place, granted, attached, fresh }),
            // It has ended in order, and its end has made everything durable and told the host.
            Err((Error::Posix(libc::ESTALE), _)) => Err(Lost::default()),
            Err((_, kept)) => Err(lost(&granted.runs, kept, &fresh)),
        }
    }

    /// Makes durable what was written, and gives the way up. What may be lost of it.
    pub fn settle(self) -> Lost {
        if self.attached.is_flushed() || self.attached.flush().is_ok() {
            return Lost::default();
        }
        match self.again() {
            Ok(way) if way.attached.flush().is_ok() => Lost::default(),
            Ok(way) => way.abandon(),
            Err(lost) => lost,
        }
    }

    /// Gives the way up, and everything that is not known to be durable and told.
    pub fn abandon(self) -> Lost {
        lost(&self.granted.runs, self.attached.kept(), &self.fresh)
    }

    /// What of the granted blocks the file had not written before.
    pub fn fresh(&self) -> &Fresh {
        &self.fresh
    }

    /// The connection.
    pub fn attached(&self) -> &Attached {
        &self.attached
    }

    /// The pieces of a range of the file, in order, none empty.
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        pieces(&self.granted.runs, range)
    }

    /// How many blocks are granted.
    pub fn blocks(&self) -> u64 {
        self.granted.runs.iter().map(|run| run.count).sum()
    }
}

/// Where in the file kept writes belong: each lies in one run.
fn lost(runs: &[DirectRun], kept: Vec<Kept>, fresh: &Fresh) -> Lost {
    let place = |offset: u64| {
        let block = offset / BLOCK_BYTES;
        let run = runs
            .iter()
            .find(|run| block.checked_sub(run.block).is_some_and(|behind| behind < run.count))?;
        Some((run.first + (block - run.block)) * BLOCK_BYTES + offset % BLOCK_BYTES)
    };
    let writes = kept.into_iter().filter_map(|kept| Some((place(kept.offset)?, kept.data)));
    let writes: Vec<_> = writes.collect();
    let in_doubt = fresh.lacks(&writes);
    Lost { writes, in_doubt }
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
