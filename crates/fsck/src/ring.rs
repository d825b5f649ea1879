//! Access to a ring by position.

use crate::Check;
use siftfs_base::LaneId;
use siftfs_log::{LaneEntry, LaneMedium, LogKey, RECORD_HEADER_LEN, RecordHeader};

/// A ring on the device and the window of live positions.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    pub offset: u64,
    pub len: u64,
    pub tail: u64,
    /// What it lies on: the log's device, or the record area's.
    pub medium: LaneMedium,
}

impl Ring {
    /// A lane's.
    pub fn of(lane: &LaneEntry, tail: u64) -> Self {
        Self { offset: lane.offset, len: lane.len, tail, medium: lane.medium }
    }

    /// The longest record in bytes.
    pub fn max_record(&self) -> u64 {
        self.medium.max_record_len(self.len)
    }

    /// Can `len` bytes at `pos` be one record of the live window?
    pub fn fits(&self, pos: u64, len: u64) -> bool {
        pos >= self.tail
            && pos.checked_add(len).is_some_and(|e| e <= self.tail + self.len)
            && pos % self.len + len <= self.len
    }

    pub fn read(&self, c: &mut Check<'_>, pos: u64, len: u64, what: &str) -> Option<Vec<u8>> {
        if !self.fits(pos, len) {
            return None;
        }
        let at = self.offset + pos % self.len;
        match self.medium {
            LaneMedium::Block => c.read(at, len as usize, what),
            LaneMedium::Bytes => c.read_bytes(at, len as usize, what),
        }
    }

    /// What of a record is read to see its header.
    pub fn start(&self, c: &mut Check<'_>, pos: u64, what: &str) -> Option<Vec<u8>> {
        self.read(c, pos, self.medium.unit().max(RECORD_HEADER_LEN as u64), what)
    }

    /// What may be the header of a record of the lane `id` at `pos`; no checksum is verified.
    pub fn header(
        &self,
        c: &mut Check<'_>,
        pos: u64,
        id: LaneId,
        key: &LogKey,
        what: &str,
    ) -> Option<RecordHeader> {
        let start = self.start(c, pos, what)?;
        let header = RecordHeader::peek(&start, key, id, pos, self.max_record()).ok();
        header.filter(|header| header.layout.medium == self.medium)
    }

    /// Where a record may follow one that ended at `end`: there, or where the next lap starts.
    pub fn candidates(&self, end: u64) -> Vec<u64> {
        let lap = (end / self.len + 1) * self.len;
        if end.is_multiple_of(self.len) { vec![end] } else { vec![end, lap] }
    }

    /// Last position at which a record may begin that was written while the one at `end` was
    /// missing: behind it, or behind its place in the next lap.
    pub fn horizon(&self, end: u64, max: u64) -> u64 {
        self.candidates(end).last().copied().unwrap_or(end).min(end + max) + max
    }

    /// Positions behind `end` at which a record may begin, as far as the window goes.
    pub fn behind(&self, end: u64) -> impl Iterator<Item = u64> {
        let unit = self.medium.unit();
        (end + unit..self.tail + self.len).step_by(unit as usize)
    }
}
