//! Which lane takes an fsync's record: the record area, on byte-addressable memory, or one on block
//! storage (`docs/design/record-area.md`, "The dispatcher").

use crate::staging::capture::Capture;
use crate::staging::sequencer::Sequencer;
use crate::staging::stage::Draft;
use crate::state::State;
use crate::state::names;
use crate::state::staging::Elsewhere;
use siftfs_base::{BLOCK_BYTES, InodeNr, Lsn};
use siftfs_log::{LaneMedium, RecordLayout};
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
    pub fn dispatch(&mut self, seq: &Sequencer, draft: Draft) -> Draft {
        let Some(area) = self.staging.record_area() else { return draft };
        let pages = page_bytes(&draft.capture);
        let tracked = self.track(&draft.capture);
        let capture = tracked.as_ref().unwrap_or(&draft.capture);
        let bytes = capture.data_len;
        self.stats.considered(bytes, pages);
        match self.compact_layout(seq, area, capture, pages) {
            Ok(layout) => {
                self.stats.compact(bytes, pages, layout.len);
                let capture = tracked.unwrap_or(draft.capture);
                Draft { capture, layout, lane: area, bulk: false }
            }
            Err(reason) => {
                self.stats.elsewhere(reason);
                draft
            }
        }
    }

    fn compact_layout(
        &self,
        seq: &Sequencer,
        area: usize,
        capture: &Capture,
        pages: u64,
    ) -> Result<RecordLayout, Elsewhere> {
        let limits = self.config.record_area;
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
        let lane = &self.staging.lanes()[area];
        let layout = RecordLayout::on(LaneMedium::Bytes, &capture.items, bytes)
            .filter(|_| capture.data.len() <= self.most_ranges())
            .filter(|layout| u64::from(layout.len) <= lane.max_record())
            .ok_or(Elsewhere::Size)?;
        if lane.place(u64::from(layout.len)).is_none() {
            return Err(Elsewhere::Full);
        }
        if !seq.stands_alone(self.staging.last_ordered(), self.needed(capture)) {
            return Err(Elsewhere::Order);
        }
        Ok(layout)
    }

    /// The newest records of all inodes that the record is about: they must be there if it is.
    fn needed(&self, capture: &Capture) -> BTreeSet<Lsn> {
        let mut inodes: BTreeSet<InodeNr> = capture.whole.iter().copied().collect();
        inodes.extend(&capture.perms);
        for op in capture.ops.iter().filter_map(|lsn| self.names.get(*lsn)) {
            inodes.extend(names::inodes(op));
            inodes.extend(names::keys(op).iter().map(|(dir, _)| *dir));
        }
        let newest = |ino: &InodeNr| self.inodes.get(ino).map(|node| node.staged);
        let gone = [self.inodes.evicted_staged(), self.running.permissions.last_staged()];
        inodes.iter().filter_map(newest).chain(gone).collect()
    }
}
