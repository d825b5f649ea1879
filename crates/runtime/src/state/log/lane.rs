//! A staging lane as the Runtime fills it: a ring with head and tail that only grow, one sentinel
//! block that is never used (SIFT §4.2.1), and no record across the ring's end.

use siftfs_base::{BLOCK_BYTES, LaneId, Lsn};
use siftfs_log::{LaneMedium, RecordHead, StagedRef};
use std::collections::VecDeque;

/// Room that a lane has for one record. Nothing is taken: only [`Lane::fix`] does that, once.
#[derive(Debug)]
pub struct Place {
    pos: u64,
    len: u64,
}

impl Place {
    /// Position of the record's first byte.
    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// One past the record's last byte.
    pub fn end(&self) -> u64 {
        self.pos + self.len
    }
}

/// A staged record whose place in its lane is fixed: what can be published, read from, and named by
/// a background journal transaction (*publish-after-fix*, SIFT §3.2.2). A lane makes it, or
/// recovery from a record that validated; nothing else can:
///
/// ```compile_fail,E0451
/// use siftfs_base::{LaneId, Lsn};
/// use siftfs_runtime::RecordRef;
/// let (lane, lsn) = (LaneId(0), Lsn(1));
/// let _ = RecordRef { lane, pos: 0, len: 4096, lsn, crc: 0, data_start: 64, fixed: () };
/// ```
///
/// A place is fixed once:
///
/// ```compile_fail,E0382
/// use siftfs_base::{LaneId, Lsn};
/// use siftfs_runtime::Lane;
/// let mut lane = Lane::new(1 << 20, 0);
/// let place = lane.place(4096).unwrap();
/// lane.fix(place, LaneId(0), Lsn(1), 0, 64);
/// lane.fix(place, LaneId(0), Lsn(2), 0, 64);
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct RecordRef {
    /// The record's lane.
    pub lane: LaneId,
    /// Position of the record's first byte.
    pub pos: u64,
    /// The record's whole length in bytes.
    pub len: u32,
    /// The record's LSN.
    pub lsn: Lsn,
    /// The record's header checksum.
    pub crc: u32,
    /// Offset of the record's data section from its first byte.
    pub data_start: u32,
    fixed: Fixed,
}

/// Keeps others from making a [`RecordRef`].
#[derive(Debug, PartialEq, Eq)]
struct Fixed;

impl RecordRef {
    /// A reference to a record that recovery found: its head was verified when it was decoded.
    pub fn found(head: &RecordHead) -> Self {
        let header = &head.header;
        Self {
            lane: header.lane,
            pos: header.params.pos,
            len: header.layout.len,
            lsn: header.params.lsn,
            crc: header.crc,
            data_start: header.layout.data_offset,
            fixed: Fixed,
        }
    }

    /// The record as a background journal transaction names it.
    pub fn named(&self) -> StagedRef {
        let Self { lane, pos, len, lsn, crc, .. } = *self;
        StagedRef { lane, pos, len, lsn, crc }
    }
}

/// Space of one lane.
#[derive(Clone, Debug)]
pub struct Lane {
    /// What the lane lies on.
    pub medium: LaneMedium,
    /// Bytes in the ring.
    pub len: u64,
    /// Where the next record may start.
    pub head: u64,
    /// Oldest byte still needed.
    pub tail: u64,
    /// Header checksum of the record that ends at `head`; 0 at the start of an epoch.
    pub prev_crc: u32,
    /// Records not yet known durable: LSN and end.
    pub recent: VecDeque<(Lsn, u64)>,
    /// Position up to which records are known durable (rule R14).
    pub durable_pos: u64,
    /// Head at the last cut: nothing staged since means nothing to journal for this lane.
    pub cut_head: u64,
    /// `prev_crc` at the last cut.
    pub cut_crc: u32,
    /// Bytes that are kept free for the record of a cut's replies (rule R53).
    pub kept: u64,
}

impl Lane {
    /// An empty lane whose next record goes to `head`.
    pub fn new(len: u64, head: u64) -> Self {
        Self::on(LaneMedium::Block, len, head)
    }

    /// As [`Lane::new`], on `medium`.
    pub fn on(medium: LaneMedium, len: u64, head: u64) -> Self {
        Self {
            medium,
            len,
            head,
            tail: head,
            prev_crc: 0,
            recent: VecDeque::new(),
            durable_pos: head,
            cut_head: head,
            cut_crc: 0,
            kept: 0,
        }
    }

    /// Where a record of `len` bytes would lie, if there is room: the gap at the ring's end counts.
    pub fn place(&self, len: u64) -> Option<Place> {
        self.find(len, self.kept)
    }

    /// As [`Lane::place`], of the record that room is kept for.
    pub fn place_kept(&self, len: u64) -> Option<Place> {
        self.find(len, 0)
    }

    fn find(&self, len: u64, kept: u64) -> Option<Place> {
        assert!(len > 0 && len.is_multiple_of(self.medium.unit()), "records are whole units");
        let pos = siftfs_log::place_record(self.head, len, self.len)?;
        (pos + len + kept - self.tail <= self.len - BLOCK_BYTES).then_some(Place { pos, len })
    }

    /// Keeps that many bytes free from now on, at least. False if there is no room for more than
    /// are kept.
    pub fn keep(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.kept || self.used() + bytes <= self.len - BLOCK_BYTES;
        if fits {
            self.kept = self.kept.max(bytes);
        }
        fits
    }

    /// Would a record that ends at `end` take of the last quarter? That is kept for small fsyncs:
    /// bulk waits for credits before it is used.
    pub fn would_crowd(&self, end: u64) -> bool {
        end - self.tail > self.len / 4 * 3
    }

    /// Would a pushed record of the largest size take of the last quarter?
    pub fn is_crowded(&self) -> bool {
        self.would_crowd(self.head + self.max_record())
    }

    /// Fixes a record's place: from here on it is this record's, whose header has the checksum
    /// `crc` and whose data begins `data_start` bytes behind `place`. `lane` is this lane.
    ///
    /// # Panics
    /// If the lane has moved on since the place was found, or a record longer than 32 bits can say.
    pub fn fix(
        &mut self,
        place: Place,
        lane: LaneId,
        lsn: Lsn,
        crc: u32,
        data_start: u32,
    ) -> RecordRef {
        let Place { pos, len } = place;
        assert!(pos >= self.head && pos + len - self.tail <= self.len - BLOCK_BYTES);
        self.head = pos + len;
        self.prev_crc = crc;
        self.recent.push_back((lsn, self.head));
        let len = u32::try_from(len).expect("lengths of records have 32 bits");
        RecordRef { lane, pos, len, lsn, crc, data_start, fixed: Fixed }
    }

    /// Everything up to `durable` is durable.
    pub fn note_durable(&mut self, durable: Lsn) {
        while self.recent.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            self.durable_pos = self.recent.pop_front().expect("just seen").1;
        }
    }

    /// Takes credits back. The tail is clamped, so that it never passes the head.
    pub fn reclaim(&mut self, tail: u64) {
        self.tail = self.tail.max(tail.min(self.head));
    }

    /// Share of the lane's bytes that is in use.
    pub fn fill(&self) -> f64 {
        self.used() as f64 / self.len as f64
    }

    /// Bytes between tail and head.
    pub fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// The largest record that the lane takes (rule R10).
    pub fn max_record(&self) -> u64 {
        self.medium.max_record_len(self.len)
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
