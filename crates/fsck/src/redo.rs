//! The redo lane: its slots, and the chain of records from tail to end.

use crate::inspect::RedoLaneView;
use crate::superblock::Super;
use crate::{Check, Volume};
use siftfs_log::{
    DecodeError, HostState, LogKey, REDO_MAX_DATA, REDO_PEEK, REDO_RING, REDO_SLOT_LEN, REDO_SLOTS,
    RedoRecord, RedoSlot, peek_redo,
};

/// The lane's ring, and how far it was read.
struct Ring {
    /// First byte on the device, and bytes.
    offset: u64,
    len: u64,
    key: LogKey,
    tail: u64,
    /// Where the last record ends, its checksum, and what the next one is to be.
    end: u64,
    crc: u32,
    number: u64,
    index: u32,
}

/// Checks the lane that the header names. Is there a committed transaction in it?
pub(crate) fn check(c: &mut Check<'_>, v: &Volume, primary: Option<&Super>) -> bool {
    let Some(region) = v.header.redo else { return false };
    let Some(slot) = newest(c, v, region.offset) else { return false };
    let mut ring = Ring {
        offset: region.offset + REDO_RING,
        len: region.len - REDO_RING,
        key: slot.key(),
        tail: slot.tail,
        end: slot.tail,
        crc: slot.prev_crc,
        number: slot.number,
        index: 0,
    };
    let room = if v.header.external_log() { c.area.size() } else { v.header.area_len };
    let (mut committed, mut bytes, mut running) = (slot.tail, 0, 0);
    while let Some(record) = ring.next(c) {
        let all: u64 = record.runs.iter().map(|run| u64::from(run.len)).sum();
        running += all;
        let outside = |run: &&siftfs_log::RedoRun| run.offset + u64::from(run.len) > room;
        if let Some(run) = record.runs.iter().find(outside) {
            let text = format!("transaction {} of the redo lane", record.place.number);
            c.error("redo.range", format!("{text}: bytes at {} are outside the area", run.offset));
        }
        if record.place.commit {
            (committed, bytes, running) = (ring.end, bytes + running, 0);
        }
    }
    ring.check_rot(c);
    let transactions = ring.number - slot.number;
    let unmarked = primary.is_some_and(|p| p.checksum_ok() && !p.marker());
    if transactions > 0 && (v.host.state == HostState::Clean || unmarked) {
        let text =
            format!("{transactions} transactions in the redo lane of a volume that is clean");
        c.error("redo.clean", text);
    }
    c.see(|seen| {
        let RedoSlot { seq, tail, number: next_transaction, .. } = slot;
        let (len, end) = (ring.len, committed);
        let view = RedoLaneView { len, seq, tail, end, next_transaction, transactions, bytes };
        seen.redo_lane = Some(view);
    });
    transactions > 0
}

/// The slot that counts. Both are whole, and one was written behind the other.
fn newest(c: &mut Check<'_>, v: &Volume, offset: u64) -> Option<RedoSlot> {
    let mut slots = Vec::new();
    for (i, at) in REDO_SLOTS.into_iter().enumerate() {
        let what = format!("slot {i} of the redo lane");
        let bytes = c.read(offset + at, REDO_SLOT_LEN, &what)?;
        match RedoSlot::decode(bytes.as_slice().try_into().ok()?) {
            Ok(slot) if slot.volume != v.header.volume => {
                c.error("redo.slot", format!("{what} is another volume's"));
            }
            Ok(slot) if RedoSlot::place(slot.seq) != at => {
                c.error("redo.slot", format!("{what} has number {}", slot.seq));
            }
            Ok(slot) => slots.push(slot),
            Err(DecodeError::Invalid(_)) => c.error("redo.slot", format!("{what} is not valid")),
            Err(DecodeError::Stop(e)) => c.failed("redo.slot", &what, &e),
        }
    }
    let [one, other] = slots.as_slice() else { return None };
    if one.seq.abs_diff(other.seq) != 1 {
        let text = format!("the redo lane's slots have numbers {} and {}", one.seq, other.seq);
        c.error("redo.slot", text);
        return None;
    }
    Some(if one.seq > other.seq { *one } else { *other })
}

impl Ring {
    fn read(&self, c: &mut Check<'_>, pos: u64, len: u64) -> Option<Vec<u8>> {
        let inside = pos.checked_add(len).is_some_and(|end| end <= self.tail + self.len);
        let wraps = pos % self.len + len > self.len;
        let at = self.offset + pos % self.len;
        let len = usize::try_from(len).ok().filter(|_| inside && !wraps)?;
        c.read(at, len, "redo lane")
    }

    /// A record with a valid head at `pos`.
    fn head(&self, c: &mut Check<'_>, pos: u64) -> Option<RedoRecord> {
        let first = self.read(c, pos, REDO_PEEK as u64)?;
        let (_, head) = peek_redo(&first, pos).ok()?;
        match RedoRecord::decode(&self.read(c, pos, head as u64)?, &self.key, pos) {
            Ok(record) => Some(record),
            Err(DecodeError::Invalid(_)) => None,
            Err(DecodeError::Stop(e)) => {
                c.failed("redo.content", &format!("redo lane, position {pos}"), &e);
                None
            }
        }
    }

    /// The record that continues the chain, which ends with it from then on.
    fn next(&mut self, c: &mut Check<'_>) -> Option<RedoRecord> {
        for pos in [self.end, (self.end / self.len + 1) * self.len] {
            let Some(record) = self.head(c, pos) else { continue };
            let p = record.place;
            let chained = (p.prev_end, p.prev_crc) == (self.end, self.crc);
            if !chained || (p.number, p.index) != (self.number, self.index) {
                continue;
            }
            let Some(bytes) = self.read(c, pos, record.len) else { continue };
            if record.data(&bytes).is_none() {
                continue;
            }
            (self.end, self.crc) = (record.end(), record.crc);
            (self.number, self.index) =
                if p.commit { (p.number + 1, 0) } else { (p.number, p.index + 1) };
            return Some(record);
        }
        None
    }

    /// A record that was written when what is missing at the end was durable.
    fn check_rot(&self, c: &mut Check<'_>) {
        let until = (self.end + self.len / 4 + 3 * REDO_MAX_DATA).min(self.tail + self.len);
        for pos in (self.end..until).step_by(siftfs_base::BLOCK_SIZE) {
            let behind = self.head(c, pos).filter(|record| record.place.durable > self.end);
            if let Some(record) = behind {
                let (lost, found) = (self.number, record.place.number);
                let text =
                    format!("transaction {lost} of the redo lane is damaged: {found} follows");
                return c.error("redo.rot", text);
            }
        }
    }
}
