//! What is staged, and where.

use crate::state::buffers::RecordBuffers;
use crate::state::log::lane::{Lane, Place, RecordRef};
use crate::state::log::ledger::refused;
use siftfs_base::{InodeNr, LaneId, Lsn, Result};
use siftfs_log::{Digest, LaneMedium, RecordParams};
use std::sync::Arc;

/// Why a record went to block storage, although the volume has a record area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// The area is switched off for new records.
    Off,
    /// It carries more bytes than the threshold.
    Size,
    /// It carries too large a share of its pages.
    Share,
    /// The area has no room for it now.
    Full,
    /// Something that it needs, or that it must not survive without, is not durable yet.
    Order,
}

impl Elsewhere {
    /// The reason, in the status report.
    pub fn text(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Size => "size",
            Self::Share => "share",
            Self::Full => "full",
            Self::Order => "order",
        }
    }
}

/// The lanes, and the order of what is staged in them.
pub struct Staging {
    /// Staging lanes.
    lanes: Vec<Lane>,
    /// Last LSN drawn.
    lsn: Lsn,
    /// The newest staged transaction of this epoch on block storage, 0 if there is none (rule R24).
    last_staged: Lsn,
    /// The newest one in the record area (rule R44).
    last_compact: Lsn,
    /// The newest one on block storage whose place in the order counts for others than its inode:
    /// it carries names or permissions, or is one of many operations.
    last_ordered: Lsn,
    /// Memory that records are encoded into.
    record_buffers: Arc<RecordBuffers>,
}

/// The order, and the records.
impl Staging {
    /// Nothing is staged in this epoch, and LSNs drawn are larger than `lsn`.
    pub fn new(lanes: Vec<Lane>, lsn: Lsn, record_buffers: Arc<RecordBuffers>) -> Self {
        Self {
            lanes,
            lsn,
            last_staged: Lsn(0),
            last_compact: Lsn(0),
            last_ordered: Lsn(0),
            record_buffers,
        }
    }

    /// Draws the next LSN.
    pub fn draw(&mut self) -> Lsn {
        self.lsn.0 += 1;
        self.lsn
    }

    /// Last LSN drawn.
    pub fn last_drawn(&self) -> Lsn {
        self.lsn
    }

    /// LSNs drawn from now on are larger than `lsn`, and than all before. Returns the last one.
    pub fn draw_above(&mut self, lsn: Lsn) -> Lsn {
        self.lsn = self.lsn.max(lsn);
        self.lsn
    }

    /// What the record `lsn` at `place` says of itself and of the record before it. It is the
    /// newest staged transaction from here on, and [`Staging::fix`] follows. Everything up to
    /// `durable_lsn` is durable.
    pub fn next_record(
        &mut self,
        lane_index: usize,
        place: &Place,
        lsn: Lsn,
        durable_lsn: Lsn,
    ) -> RecordParams {
        let lane = &mut self.lanes[lane_index];
        lane.note_durable(durable_lsn);
        let (last, prev_compact) = match lane.medium {
            LaneMedium::Block => (&mut self.last_staged, self.last_compact),
            LaneMedium::Bytes => (&mut self.last_compact, Lsn(0)),
        };
        RecordParams {
            lsn,
            prev_lsn: std::mem::replace(last, lsn),
            prev_compact,
            durable_lsn,
            durable_pos: lane.durable_pos,
            pos: place.pos(),
            prev_end: lane.head,
            prev_crc: lane.prev_crc,
        }
    }

    /// Fixes a record's place in its lane; see [`Lane::fix`]. Returns the record's byte offset in
    /// the lane's region as well.
    pub fn fix(
        &mut self,
        place: Place,
        lane_id: LaneId,
        lsn: Lsn,
        crc: u32,
        data_start: u32,
    ) -> (u64, RecordRef) {
        let lane = &mut self.lanes[usize::from(lane_id.0)];
        let offset = place.pos() % lane.len;
        (offset, lane.fix(place, lane_id, lsn, crc, data_start))
    }

    /// The record `lsn`, the newest, counts in the order of others than its inode.
    pub fn note_ordered(&mut self, lsn: Lsn) {
        self.last_ordered = lsn;
    }

    /// The newest record on block storage whose place in the order counts for all.
    pub fn last_ordered(&self) -> Lsn {
        self.last_ordered
    }

    /// Memory that records are encoded into.
    pub fn record_buffers(&self) -> &RecordBuffers {
        &self.record_buffers
    }
}

/// The lanes.
impl Staging {
    /// The lanes, by number.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Index of the lane on block storage that takes the inode's records.
    pub fn lane_of(&self, ino: InodeNr) -> usize {
        ino as usize % self.block_lanes().len()
    }

    /// The lanes on block storage: all but a record area, which is the last one.
    fn block_lanes(&self) -> &[Lane] {
        &self.lanes[..self.record_area().unwrap_or(self.lanes.len())]
    }

    /// Index of the record area, if there is one.
    pub fn record_area(&self) -> Option<usize> {
        let last = self.lanes.len() - 1;
        (self.lanes[last].medium == LaneMedium::Bytes).then_some(last)
    }

    /// The largest record that the first lane takes, in bytes (rule R10).
    pub fn max_record(&self) -> u64 {
        self.lanes[0].max_record()
    }

    /// Where the next record of each lane may start.
    pub fn heads(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.head).collect()
    }

    /// Bytes in use, of all lanes.
    pub fn used(&self) -> u64 {
        self.lanes.iter().map(Lane::used).sum()
    }

    /// Share of its lane in use, of the fullest lane, in percent.
    pub fn fill_percent(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.used() * 100 / lane.len).max().unwrap_or(0)
    }

    /// Would a pushed record of the largest size take of a lane's last quarter?
    pub fn is_crowded(&self) -> bool {
        self.block_lanes().iter().any(Lane::is_crowded)
    }

    /// Was something staged since the last cut?
    pub fn is_uncut(&self) -> bool {
        self.lanes.iter().any(|lane| lane.head != lane.cut_head)
    }

    /// Was more than a quarter of a lane staged since the last cut?
    pub fn is_cut_due(&self) -> bool {
        self.lanes.iter().any(|lane| (lane.head - lane.cut_head) * 4 > lane.len)
    }

    /// A transaction is cut: it contains what is staged now, `ranges` physical ranges among it.
    /// Returns where those are, if there are any.
    pub fn cut(&mut self, ranges: u32) -> Option<Digest> {
        let digest = self.record_area().filter(|_| ranges > 0).map(|area| {
            let lane = &self.lanes[area];
            let id = LaneId(u16::try_from(area).expect("at most 16 lanes"));
            let (from, prev_crc) = (lane.cut_head, lane.cut_crc);
            Digest { lane: id, from, prev_crc, crc: lane.prev_crc, ranges }
        });
        assert_eq!(ranges > 0, digest.is_some(), "physical ranges lie in the record area");
        for lane in &mut self.lanes {
            (lane.cut_head, lane.cut_crc) = (lane.head, lane.prev_crc);
        }
        digest
    }

    /// The newest record of the lane says no more than the cut before it: nothing of it is to be
    /// journaled.
    pub fn is_of_cut(&mut self, lane_index: usize) {
        let lane = &mut self.lanes[lane_index];
        (lane.cut_head, lane.cut_crc) = (lane.head, lane.prev_crc);
    }

    /// See [`Lane::keep`].
    pub fn keep_room(&mut self, lane_index: usize, bytes: u64) -> bool {
        self.lanes[lane_index].keep(bytes)
    }

    /// No room is kept any more.
    pub fn keep_no_room(&mut self, lane_index: usize) {
        self.lanes[lane_index].kept = 0;
    }

    /// May credits give the lanes back up to `tails`? The transaction that they are for contains
    /// the records up to `taken`, if it is not reclaimed.
    ///
    /// # Errors
    /// Refused if these are not the lanes, or more is given back than was taken.
    pub fn check_credits(&self, tails: &[u64], taken: Option<&[u64]>) -> Result<()> {
        if tails.len() != self.lanes.len() {
            return Err(refused(format!("credits for {} lanes", tails.len())));
        }
        for (i, (lane, tail)) in self.lanes.iter().zip(tails).enumerate() {
            let most = taken.and_then(|upto| upto.get(i)).map_or(lane.tail, |u| lane.tail.max(*u));
            if *tail > most {
                let what = format!("lane {i} up to position {tail}, of which it has {most}");
                return Err(refused(format!("too many credits: {what}")));
            }
        }
        Ok(())
    }

    /// Takes credits back: the lanes are free up to `tails`.
    pub fn reclaimed(&mut self, tails: &[u64]) {
        for (lane, tail) in self.lanes.iter_mut().zip(tails) {
            lane.reclaim(*tail);
        }
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
