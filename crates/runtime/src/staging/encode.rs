//! A record's data section: planned under the state lock, encoded with or without it.
//!
//! A bulk fsync copies and sums megabytes; other writers and fsyncs would wait for the lock
//! meanwhile. So its pages are taken by reference and encoded without the lock, and the record is
//! published with the result if its pages are still the same memory. A writer that changes a page
//! with another reference to it makes a copy of its own, so the same memory is the same bytes (rule
//! R19).

use crate::state::Log;
use crate::state::State;
use crate::state::buffers::RecordBuffers;
use siftfs_base::{BLOCK_BYTES, InodeNr, LaneId, SharedBlock};
use siftfs_device::AlignedBuf;
use siftfs_log::{RecordBuilder, RecordLayout};

/// Bytes of a file that a record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The file.
    pub ino: InodeNr,
    /// First byte in the file.
    pub start: u64,
    /// One past the last byte in the file.
    pub end: u64,
    /// Offset of the first byte in the record's data section, in bytes.
    pub data_offset: u32,
    /// The first byte in the area, of a physical range (rule R42).
    pub home: Option<u64>,
}

impl Range {
    /// A range of a file that lies nowhere yet.
    pub fn of(ino: InodeNr, start: u64, end: u64) -> Self {
        Self { ino, start, end, data_offset: 0, home: None }
    }
}

/// A part of a page: the page, and its first byte and end in it.
type Piece = (SharedBlock, usize, usize);

/// What a data section is to hold.
pub struct Plan {
    ranges: Vec<Range>,
    pieces: Vec<Piece>,
    layout: RecordLayout,
    builder: RecordBuilder,
}

/// A record that lacks its items and its header.
pub struct Encoded {
    plan: Plan,
    buf: AlignedBuf,
}

impl Plan {
    /// Copies and sums the data, into memory that other records were in before.
    pub fn encode(self, buffers: &RecordBuffers) -> Encoded {
        let mut buf = buffers.take(self.layout.len);
        let chunks: Vec<&[u8]> = self.pieces.iter().map(|(page, s, e)| &page[*s..*e]).collect();
        self.builder.encode_data(&self.layout, &chunks, &mut buf);
        Encoded { plan: self, buf }
    }
}

impl Encoded {
    /// Are its pages still these?
    fn is_of<'a>(&self, pages: impl Iterator<Item = &'a SharedBlock>) -> bool {
        pages.zip(&self.plan.pieces).all(|(now, (then, ..))| now.is_same(then))
    }

    /// The record's bytes.
    pub fn into_buf(self) -> AlignedBuf {
        self.buf
    }
}

impl Log {
    /// Encodes records of a lane.
    pub fn builder(&self, lane: usize) -> RecordBuilder {
        let lane = LaneId(u16::try_from(lane).expect("at most 16 lanes"));
        RecordBuilder { key: self.config.key.lane(lane), lane }
    }
}

impl State {
    /// References to the pages of `ranges`.
    pub fn plan(&self, ranges: Vec<Range>, layout: RecordLayout, lane: usize) -> Plan {
        let pieces = self.pieces(&ranges).map(|(page, s, e)| (page.clone(), s, e)).collect();
        Plan { pieces, ranges, layout, builder: self.metadata.log.builder(lane) }
    }

    /// Is a record of these ranges what was encoded?
    pub fn still_holds(&self, e: &Encoded, ranges: &[Range], layout: &RecordLayout) -> bool {
        let pages = self.pieces(ranges).map(|(page, ..)| page);
        e.plan.layout == *layout && e.plan.ranges == ranges && e.is_of(pages)
    }

    /// The captured bytes, page by page.
    fn pieces<'a>(
        &'a self,
        ranges: &'a [Range],
    ) -> impl Iterator<Item = (&'a SharedBlock, usize, usize)> {
        ranges.iter().flat_map(move |&Range { ino, start, end, .. }| {
            (start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).map(move |index| {
                let page = self.pages.peek(ino, index).expect("dirty pages stay cached");
                let base = index * BLOCK_BYTES;
                let (from, to) = (start.max(base) - base, end.min(base + BLOCK_BYTES) - base);
                (&page.data, from as usize, to as usize)
            })
        })
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
