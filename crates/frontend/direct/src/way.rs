//! The way to what is granted of one file: where its blocks are, and the connection.

use siftfs_base::{BLOCK_BYTES, Result};
use siftfs_device_target::{Attached, TargetPlace};
use siftfs_proto::{Direct, DirectRun};
use std::ops::Range;

/// A grant that lasts, as far as is known.
pub(crate) struct Way {
    place: TargetPlace,
    granted: Direct,
    attached: Attached,
}

/// A piece of a file: where it is in the file, and in the area if it is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub file: Range<u64>,
    pub area: Option<u64>,
}

/// What became of what was written to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is durable.
    Durable,
    /// Nobody can tell.
    Unknown,
}

impl Way {
    /// Connects to where these blocks are granted.
    pub fn open(place: TargetPlace, granted: Direct) -> Result<Self> {
        let attached = Attached::open(&place, granted.token)?;
        Ok(Self { place, granted, attached })
    }

    /// Connects again after the connection was lost.
    ///
    /// # Errors
    /// The grant is not there any more: what that means for what was not flushed.
    pub fn again(self) -> std::result::Result<Self, Fate> {
        match Attached::open(&self.place, self.granted.token) {
            Ok(attached) => Ok(Self { attached, ..self }),
            Err(siftfs_base::Error::Posix(libc::ESTALE)) => Err(Fate::Durable),
            Err(_) => Err(Fate::Unknown),
        }
    }

    /// Makes durable what was written. The way is given up.
    pub fn settle(self) -> Fate {
        if self.attached.flush().is_ok() {
            return Fate::Durable;
        }
        match self.again() {
            Ok(way) if way.attached.flush().is_ok() => Fate::Durable,
            Ok(_) => Fate::Unknown,
            Err(fate) => fate,
        }
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
