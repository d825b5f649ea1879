//! Reading a staging lane back, from its tail to its end.

use crate::ring::{ReadCounts, RingReader};
use siftfs_base::{BLOCK_BYTES, LaneId, Lsn, Result, corrupt};
use siftfs_device::{Origin, RegionReader};
use siftfs_log::{
    LaneMedium, LogKey, OPEN_END, RECORD_HEADER_LEN, RecordHead, RecordHeader, if_valid, next_lap,
};

/// A valid record: its items, and its data where asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRecord {
    /// Header and items. Position, length, LSN and checksum make a `StagedRef` of it.
    pub head: RecordHead,
    /// The data section, or empty if the scanner does not keep it.
    pub data: Vec<u8>,
}

/// What a scanner does with the records' data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanData {
    /// Nothing: heads are what is asked for, and data is verified by what reads it later.
    Skip,
    /// Verifies the record: it is invalid if the checksum of its data is wrong.
    Verify,
    /// ... and keeps it.
    Keep,
}

/// Where a lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneEnd {
    /// The lane.
    pub lane: LaneId,
    /// End of the last valid record, or the tail if there is none.
    pub pos: u64,
    /// Checksum of the last valid record, 0 if there is none.
    pub last_crc: u32,
    /// LSN of the last valid record, 0 if there is none.
    pub last_lsn: Lsn,
    /// Highest LSN that any valid record calls durable.
    pub durable_lsn: Lsn,
    /// LSN of an invalid record at the end whose header survived.
    pub torn: Option<Lsn>,
}

/// Yields the valid records of one lane in order. Memory is bounded by the longest record.
pub struct LaneScanner {
    ring: RingReader,
    key: LogKey,
    medium: LaneMedium,
    max_len: u64,
    end: Option<u64>,
    data: ScanData,
    state: LaneEnd,
    first: bool,
    done: bool,
}

/// What lies where the next record should.
enum Found {
    Record(Box<RecordHead>),
    /// Nothing valid; the LSN if the head survived.
    Nothing(Option<Lsn>),
}

impl LaneScanner {
    /// Scans `lane` from `tail`. `end` is the lane's `HostRecord::lane_ends` entry: records
    /// up to a recorded end must all be there.
    pub fn new(
        region: &RegionReader,
        (lane, medium): (LaneId, LaneMedium),
        key: LogKey,
        tail: u64,
        end: u64,
        data: ScanData,
        origin: Origin,
    ) -> Result<Self> {
        let what = format!("staging lane {}", lane.0);
        if region.is_empty()
            || !region.len().is_multiple_of(BLOCK_BYTES)
            || !tail.is_multiple_of(medium.unit())
        {
            return Err(corrupt(what, "ring or tail not aligned"));
        }
        let end = (end != OPEN_END).then_some(end);
        let tail_ok = tail.checked_add(region.len()).is_some_and(|l| l < 1 << 62);
        if !tail_ok || end.is_some_and(|e| e < tail || e - tail > region.len()) {
            return Err(corrupt(what, format!("tail {tail} and end {end:?} do not fit the ring")));
        }
        let state = LaneEnd {
            lane,
            pos: tail,
            last_crc: 0,
            last_lsn: Lsn(0),
            durable_lsn: Lsn(0),
            torn: None,
        };
        Ok(Self {
            medium,
            max_len: medium.max_record_len(region.len()),
            ring: RingReader::new(region.clone(), origin, tail),
            key,
            end,
            data,
            state,
            first: true,
            done: false,
        })
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// Corrupt if a record below the recorded end is not valid, or if a later record proves
    /// that an invalid one was durable (rule R14); incompatible for records of a newer format.
    pub fn next_record(&mut self) -> Result<Option<LaneRecord>> {
        while !self.done {
            if self.end == Some(self.state.pos) {
                self.done = true;
                break;
            }
            match self.find()? {
                Found::Record(head) => return self.accept(*head).map(Some),
                Found::Nothing(torn) => {
                    self.done = true;
                    self.state.torn = torn;
                    self.judge_end()?;
                }
            }
        }
        Ok(None)
    }

    /// Where the lane ends; meaningful once [`LaneScanner::next_record`] returned `None`.
    pub fn end(&self) -> LaneEnd {
        assert!(self.done, "the end of a lane that was not read to its end");
        self.state
    }

    /// Reads done so far.
    pub fn counts(&self) -> ReadCounts {
        self.ring.counts
    }

    fn what(&self) -> String {
        format!("staging lane {}", self.state.lane.0)
    }

    /// The record that follows the present end, there or at the start of the next lap.
    fn find(&mut self) -> Result<Found> {
        let at = self.state.pos;
        let torn = match self.check_at(at)? {
            Found::Nothing(torn) => torn,
            found => return Ok(found),
        };
        let lap = next_lap(at, self.ring.ring_len());
        if !at.is_multiple_of(self.ring.ring_len())
            && lap - at < self.max_len
            && lap < self.ring.limit()
        {
            // Probed first without moving the window, which may have to go on from `at`.
            let block = self.ring.probe(lap)?;
            let (key, lane, max) = (self.key, self.state.lane, self.max_len);
            if RecordHeader::peek(&block[..], &key, lane, lap, max).is_ok() {
                return match self.check_at(lap)? {
                    Found::Nothing(t) => Ok(Found::Nothing(torn.or(t))),
                    found => Ok(found),
                };
            }
        }
        Ok(Found::Nothing(torn))
    }

    /// Is there a whole valid record at `pos` that continues the chain?
    fn check_at(&mut self, pos: u64) -> Result<Found> {
        let Some(head) = self.head_at(pos)? else { return Ok(Found::Nothing(None)) };
        let (h, s) = (&head.header, &self.state);
        let chained = h.params.prev_end == s.pos
            && h.params.lsn > s.last_lsn
            && (self.first || h.params.prev_crc == s.last_crc)
            && self.end.is_none_or(|end| h.end() <= end);
        if !chained {
            return Ok(Found::Nothing(None));
        }
        let torn = h.params.lsn;
        if self.data == ScanData::Skip || self.data_holds(&head)? {
            Ok(Found::Record(Box::new(head)))
        } else {
            Ok(Found::Nothing(Some(torn)))
        }
    }

    /// A record head that validates at `pos`, whatever its links say.
    fn head_at(&mut self, pos: u64) -> Result<Option<RecordHead>> {
        let first = self.medium.unit().max(RECORD_HEADER_LEN as u64);
        if !self.ring.fits(pos, first) {
            return Ok(None);
        }
        let (key, lane, max) = (self.key, self.state.lane, self.max_len);
        let bytes = self.ring.get(pos, first as usize)?;
        let Ok(header) = RecordHeader::peek(bytes, &key, lane, pos, max) else { return Ok(None) };
        if header.layout.medium != self.medium {
            return Ok(None);
        }
        if !self.ring.fits(pos, u64::from(header.layout.len)) {
            return Ok(None);
        }
        let bytes = self.ring.get(pos, header.head_len())?;
        if_valid(RecordHead::decode(header, &key, bytes))
    }

    fn data_holds(&mut self, head: &RecordHead) -> Result<bool> {
        let l = head.header.layout;
        let bytes = self.ring.get(head.header.params.pos, l.len as usize)?;
        let data = bytes.get(l.data_offset as usize..(l.data_offset + l.data_len) as usize);
        Ok(data.is_some_and(|d| head.verify_data(d)))
    }

    fn accept(&mut self, head: RecordHead) -> Result<LaneRecord> {
        let h = head.header;
        self.state.pos = h.end();
        self.state.last_crc = h.crc;
        self.state.last_lsn = h.params.lsn;
        self.state.durable_lsn = self.state.durable_lsn.max(h.params.durable_lsn);
        self.first = false;
        self.ring.counts.record_bytes += u64::from(h.layout.len);
        let mut data = Vec::new();
        if self.data == ScanData::Keep {
            let bytes = self.ring.get(h.params.pos, h.layout.len as usize)?;
            let (from, len) = (h.layout.data_offset as usize, h.layout.data_len as usize);
            data = bytes.get(from..from + len).unwrap_or_default().to_vec();
        }
        Ok(LaneRecord { head, data })
    }

    /// Is an end here the end of what was written, or did acknowledged records rot?
    fn judge_end(&mut self) -> Result<()> {
        let end = self.state.pos;
        if let Some(recorded) = self.end {
            return Err(corrupt(
                self.what(),
                format!("record at position {end} is not valid; valid to {recorded} before"),
            ));
        }
        let ring = self.ring.ring_len();
        let (mut at, mut horizon) = (end + self.medium.unit(), end.saturating_add(self.max_len));
        // A record that did not fit before the lap's end may be the missing one.
        if !end.is_multiple_of(ring) && next_lap(end, ring) - end < self.max_len {
            horizon = next_lap(end, ring) + self.max_len;
        }
        while at <= horizon && at < self.ring.limit() {
            match self.witness_at(at)? {
                Some(next) => {
                    at = next;
                    horizon = next + self.max_len;
                }
                None => at += self.medium.unit(),
            }
        }
        Ok(())
    }

    /// Reads `pos` behind the end. A valid record there that calls the missing one durable is an
    /// error; another one tells where to read next.
    fn witness_at(&mut self, pos: u64) -> Result<Option<u64>> {
        let Some(head) = self.head_at(pos)? else { return Ok(None) };
        let (p, s) = (head.header.params, &self.state);
        if p.lsn <= s.last_lsn {
            return Ok(None);
        }
        let durable = p.durable_pos > s.pos || s.torn.is_some_and(|t| p.durable_lsn >= t);
        if durable {
            return Err(corrupt(
                self.what(),
                format!(
                    "the record at position {} is damaged, but record {} at position {pos} says \
                     that it was durable: the medium lost acknowledged data",
                    s.pos, p.lsn.0
                ),
            ));
        }
        self.state.durable_lsn = s.durable_lsn.max(p.durable_lsn);
        Ok(Some(head.header.end()))
    }
}

/// What one lane's records say of another's end (rule R14): a damaged record whose LSN is known
/// was not durable if no record of any lane says so.
pub fn check_lane_ends(ends: &[LaneEnd]) -> Result<()> {
    let durable = ends.iter().map(|e| e.durable_lsn).max().unwrap_or_default();
    match ends.iter().find(|e| e.torn.is_some_and(|t| t <= durable)) {
        None => Ok(()),
        Some(e) => Err(corrupt(
            format!("staging lane {}", e.lane.0),
            format!(
                "the record at position {} is damaged, but another lane says that everything up \
                 to number {} was durable: the medium lost acknowledged data",
                e.pos, durable.0
            ),
        )),
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
