//! Which lane takes an fsync's record: the record area, on byte-addressable memory, or one on block
//! storage (`docs/design/record-area.md`, "The dispatcher").

use crate::staging::capture::Capture;
use crate::staging::encode::Range;
use crate::staging::sequencer::Sequencer;
use crate::staging::stage::Draft;
use crate::state::Metadata;
use crate::state::State;
use crate::state::log::names;
use crate::state::log::staging::Elsewhere;
use siftfs_base::{BLOCK_BYTES, InodeNr, Lsn};
use siftfs_ext4::Mapping;
use siftfs_log::{Item, JournalData, LaneMedium, RecordLayout};
use std::collections::BTreeSet;

/// Bytes of the pages that the captured bytes lie in.
pub fn page_bytes(capture: &Capture) -> u64 {
    let (mut pages, mut last) = (0, None);
    for range in &capture.data {
        let (first, end) = (range.start / BLOCK_BYTES, range.end.div_ceil(BLOCK_BYTES));
        let again = last == Some((range.ino, first));
        pages += end - first - u64::from(again);
        last = Some((range.ino, end - 1));
    }
    pages * BLOCK_BYTES
}

impl State {
    /// Moves a caller's record to the record area, if it belongs there and has room at once.
    pub fn dispatch(&mut self, seq: &Sequencer, mut draft: Draft) -> Draft {
        let Some(area) = self.metadata.log.staging.record_area() else { return draft };
        let pages = page_bytes(&draft.capture);
        let mut tracked = self.track(&draft.capture);
        let capture = tracked.as_mut().unwrap_or(&mut draft.capture);
        let bytes = capture.data_len;
        self.stats.considered(bytes, pages);
        match self.metadata.compact_layout(seq, area, capture, pages) {
            Ok(layout) => {
                let physical = capture.data.iter().filter(|range| range.home.is_some()).count();
                self.stats.compact(bytes, pages, layout.len, physical);
                let capture = tracked.unwrap_or(draft.capture);
                Draft { capture, layout, lane: area, bulk: false }
            }
            Err(reason) => {
                capture.set_homes(|_| None);
                self.stats.elsewhere(reason);
                draft
            }
        }
    }
}

impl Metadata {
    fn compact_layout(
        &mut self,
        seq: &Sequencer,
        area: usize,
        capture: &mut Capture,
        pages: u64,
    ) -> Result<RecordLayout, Elsewhere> {
        let limits = self.log.config.record_area;
        let bytes = capture.data_len;
        if limits.most == 0 {
            return Err(Elsewhere::Off);
        }
        if bytes > limits.most {
            return Err(Elsewhere::Size);
        }
        if bytes * 100 > pages * u64::from(limits.percent) {
            return Err(Elsewhere::Share);
        }
        if limits.physical && self.log.ledger.journal_data() == JournalData::Ref {
            capture.set_homes(|range| self.home_of(range));
        }
        let lane = &self.log.staging.lanes()[area];
        let layout = RecordLayout::on(LaneMedium::Bytes, &capture.items, bytes)
            .filter(|_| capture.data.len() <= self.log.most_ranges())
            .filter(|layout| u64::from(layout.len) <= lane.max_record())
            .ok_or(Elsewhere::Size)?;
        if lane.place(u64::from(layout.len)).is_none() {
            return Err(Elsewhere::Full);
        }
        if !seq.stands_alone(self.log.staging.last_ordered(), self.needed(capture)) {
            return Err(Elsewhere::Order);
        }
        Ok(layout)
    }

    /// Where the range lies in the area, if it can be physical (rule R42): the transaction under
    /// way does not change the file's mapping, in which its blocks are written ones, one behind the
    /// other.
    fn home_of(&mut self, range: &Range) -> Option<u64> {
        let node = self.tree.inodes.get(&range.ino)?;
        if node.mapped_in >= self.log.next_txn() {
            return None;
        }
        let first = range.start / BLOCK_BYTES;
        let blocks = range.end.div_ceil(BLOCK_BYTES) - first;
        match self.tree.fs.layout.map(&mut self.tree.meta, &node.inode, first, blocks) {
            Ok(Mapping::Mapped { pblk, len, unwritten: false }) if len >= blocks => {
                Some(pblk * BLOCK_BYTES + range.start % BLOCK_BYTES)
            }
            // Where the mapping cannot be read, the assembly, which needs it, finds the error.
            _ => None,
        }
    }

    /// The newest records of all inodes that the record is about: they must be there if it is.
    fn needed(&self, capture: &Capture) -> BTreeSet<Lsn> {
        let mut inodes: BTreeSet<InodeNr> = capture.whole.iter().copied().collect();
        inodes.extend(&capture.perms);
        for op in capture.ops.iter().filter_map(|lsn| self.log.names.get(*lsn)) {
            inodes.extend(names::inodes(op));
            inodes.extend(names::keys(op).iter().map(|(dir, _)| *dir));
        }
        let newest = |ino: &InodeNr| self.tree.inodes.get(ino).map(|node| node.staged);
        let gone = [self.tree.inodes.evicted_staged(), self.log.running.permissions.last_staged()];
        inodes.iter().filter_map(newest).chain(gone).collect()
    }
}

impl Capture {
    /// Says of each range where it lies in the area, as `home` finds it.
    fn set_homes(&mut self, mut home: impl FnMut(&Range) -> Option<u64>) {
        let mut ranges = self.data.iter_mut();
        for item in &mut self.items {
            if let Item::Data { home: of_item, .. } = item {
                let range = ranges.next().expect("a range for each item of data");
                range.home = home(range);
                *of_item = range.home;
            }
        }
        assert!(ranges.next().is_none(), "an item for each range of data");
    }
}
