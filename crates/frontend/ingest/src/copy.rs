//! The fourth step, the copy engine: the one that has access to data.

use crate::counters::{Counters, Step};
use crate::merge::{Merged, Part, Piece, Place};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, SharedBlock};
use siftfs_intervals::Source;
use siftfs_lease::{Data, Held, Record, Words};
use siftfs_proto::WriteData;

/// Copies data out of the ring.
pub(crate) struct Copier<'a, H> {
    pub data: Data<'a, H>,
    pub counters: &'a Counters,
}

/// A piece with its bytes.
pub(crate) struct Carried {
    pub offset: u64,
    pub data: WriteData,
}

/// What is to be written to a file.
pub(crate) struct Filled {
    pub held: Held,
    pub time: i64,
    pub pieces: Vec<Carried>,
    /// What the pieces were made of. Its bytes are in the ring still.
    pub records: Vec<Record>,
}

/// What a batch changes, copied.
pub(crate) struct Copied {
    pub files: Vec<Filled>,
    pub until: u64,
}

impl<H: Words> Copier<'_, H> {
    pub fn step(&self, merged: Merged) -> Copied {
        let _timed = self.counters.time(Step::Copy);
        let files = merged.updates.into_iter().map(|update| Filled {
            held: update.held,
            time: update.time,
            pieces: update.pieces.iter().map(|piece| self.carry(piece)).collect(),
            records: update.records,
        });
        Copied { files: files.collect(), until: merged.until }
    }

    fn carry(&self, Piece { offset, len, parts }: &Piece) -> Carried {
        Carried { offset: *offset, data: self.copy(*offset, *len, parts) }
    }

    /// The bytes of parts that are `len` together, to be written at `offset`: as blocks where they
    /// are whole blocks, which become pages of the Runtime's cache without another copy.
    pub fn copy(&self, offset: u64, len: u64, parts: &[Part]) -> WriteData {
        let mut rest = Rest { engine: self, parts: parts.iter(), next: None };
        if offset.is_multiple_of(BLOCK_BYTES) && len.is_multiple_of(BLOCK_BYTES) {
            let blocks = (0..len / BLOCK_BYTES).map(|_| {
                let mut block = [0; BLOCK_SIZE];
                rest.fill(&mut block);
                SharedBlock::from(block)
            });
            return WriteData::Blocks(blocks.collect());
        }
        let mut bytes = vec![0; usize::try_from(len).expect("a mebibyte at most")];
        rest.fill(&mut bytes);
        WriteData::Bytes(bytes)
    }
}

/// Parts that are not copied yet.
struct Rest<'a, H> {
    engine: &'a Copier<'a, H>,
    parts: std::slice::Iter<'a, Part>,
    /// What is left of one of them.
    next: Option<(Place, usize)>,
}

impl<H: Words> Rest<'_, H> {
    fn fill(&mut self, into: &mut [u8]) {
        let mut into = into;
        while !into.is_empty() {
            let next = self.next.take();
            let next = next.or_else(|| self.parts.next().map(|p| (p.place, p.len as usize)));
            let (place, len) = next.expect("the parts are as long as their piece");
            let (now, later) = into.split_at_mut(len.min(into.len()));
            self.engine.data.copy(place.0, now);
            if now.len() < len {
                self.next = Some((place.skip(now.len() as u64), len - now.len()));
            }
            into = later;
        }
    }
}
