//! Bringing what the lane has to its blocks: at a checkpoint, and when the lane is opened.

use crate::redo::index::{Index, Live, Piece, overlay};
use siftfs_base::{BLOCK_BYTES, Error, Result, corrupt};
use siftfs_device::{AlignedBuf, Device};
use siftfs_log::{HostState, RedoSlot};
use siftfs_volume::{HeaderView, Media, RedoEnd, RedoMedium};
use std::sync::Arc;

/// Bytes that are written to the area at once.
const MOST_AT_ONCE: u64 = 1 << 20;

/// What the redo lane's writer needs.
pub struct RedoParts {
    /// The lane.
    pub(super) medium: RedoMedium,
    area: Arc<dyn Device>,
    area_offset: u64,
    area_len: u64,
    /// Nobody has the volume in use, so others may have written its file system.
    clean: bool,
}

impl RedoParts {
    /// Of this volume; `None` if it has no redo lane. The caller has the host's role, and keeps it
    /// as long as they are used.
    pub fn of(media: &Media, view: &HeaderView) -> Option<Self> {
        let medium = media.redo(view)?;
        let (area_offset, area_len) = match &media.log {
            Some(_) => (0, media.area.size() / BLOCK_BYTES * BLOCK_BYTES),
            None => (view.header.area_offset, view.header.area_len),
        };
        let unmarked = view.area.is_some_and(|a| a.checksum_ok && !a.marker);
        let clean = view.host.state == HostState::Clean || unmarked;
        Some(Self { medium, area: media.area.clone(), area_offset, area_len, clean })
    }

    /// With an area of `area_len` bytes at the begin of the same device.
    #[cfg(test)]
    pub(super) fn for_test(medium: RedoMedium, area_len: u64, clean: bool) -> Self {
        let area = medium.device().clone();
        Self { medium, area, area_offset: 0, area_len, clean }
    }

    /// Bytes of the area.
    pub(super) fn area_len(&self) -> u64 {
        self.area_len
    }

    /// Do these bytes lie in the area?
    pub(super) fn holds(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.area_len)
    }

    /// Writes pieces to their blocks, in order and none meeting another. Volatile until
    /// [`RedoParts::flush_area`].
    pub(super) fn write_home(&self, pieces: &[(u64, Piece)]) -> Result<()> {
        let end_of = |(start, piece): &(u64, Piece)| start + piece.bytes().len() as u64;
        let mut rest = pieces.iter().flat_map(|(start, piece)| split(*start, piece.bytes()));
        let mut next = rest.next();
        debug_assert!(pieces.iter().all(|piece| end_of(piece) <= self.area_len));
        while let Some((start, bytes)) = next {
            let first = start / BLOCK_BYTES * BLOCK_BYTES;
            let mut end = blocks_end(start, bytes);
            let mut parts = vec![(start, bytes)];
            next = rest.next();
            while let Some((start, bytes)) = next.filter(|(start, _)| *start <= end) {
                if blocks_end(start, bytes) - first > MOST_AT_ONCE {
                    break;
                }
                end = end.max(blocks_end(start, bytes));
                parts.push((start, bytes));
                next = rest.next();
            }
            self.write_blocks(first, end, &parts)?;
        }
        Ok(())
    }

    /// Writes whole blocks that have these parts; what they keep besides is read first.
    fn write_blocks(&self, first: u64, end: u64, parts: &[(u64, &[u8])]) -> Result<()> {
        let mut blocks = AlignedBuf::zeroed((end - first) as usize);
        let covered: u64 = parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        if covered < end - first {
            self.area.read(self.area_offset + first, &mut blocks)?;
        }
        parts.iter().for_each(|(start, bytes)| overlay(first, &mut blocks, *start, bytes));
        self.area.write(self.area_offset + first, &blocks, false)
    }

    /// What was written home is durable when this returns.
    pub(super) fn flush_area(&self) -> Result<()> {
        self.area.flush()
    }

    /// Brings home what is committed in the lane, and makes the tail behind it durable. Says where
    /// the lane goes on, its newest slot, and how many transactions there were. With none of them
    /// nothing is written.
    pub(super) fn replay(&self) -> Result<(RedoSlot, u64)> {
        let slot = self.medium.read_slot()?;
        let end = self.medium.end(&slot)?;
        if end.transactions == 0 {
            return Ok((slot, 0));
        }
        if self.clean {
            let n = end.transactions;
            let what = format!("{n} transactions, and the file system is not marked as in use");
            return Err(corrupt("redo lane", what));
        }
        self.write_committed(&slot, end)?;
        self.flush_area()?;
        let RedoEnd { pos: tail, number, prev_crc, transactions } = end;
        let slot = RedoSlot { seq: slot.seq + 1, tail, number, prev_crc, ..slot };
        self.medium.write_slot(&slot)?;
        Ok((slot, transactions))
    }

    /// Records up to `end` go to their blocks, in order.
    fn write_committed(&self, slot: &RedoSlot, end: RedoEnd) -> Result<()> {
        let mut scanner = self.medium.scan(slot);
        while scanner.committed().pos < end.pos {
            let Some((record, data)) = scanner.next_record()? else {
                return Err(corrupt("redo lane", "it reads otherwise the second time"));
            };
            let runs: Vec<_> =
                record.runs.iter().map(|run| (run.offset, run.len as usize)).collect();
            if let Some((offset, len)) = runs.iter().find(|(at, n)| !self.holds(*at, *n as u64)) {
                let what = format!("{len} bytes at byte {offset}, outside the area");
                return Err(corrupt("redo lane", what));
            }
            let mut index = Index::default();
            let (number, memory) = (record.place.number, data.len());
            let live = Live { number, owner: 0, end: record.end(), crc: record.crc, memory };
            index.commit(live, &runs, &Arc::new(data));
            self.write_home(&index.pieces())?;
        }
        Ok(())
    }
}

/// Brings home what is committed in the redo lane of a volume that is about to be written, before
/// anything else of it is used. Says how many transactions that were; a volume without a lane has
/// none. When this returns they are durable in their blocks and the lane is durably empty; running
/// it again, or after a crash inside it, gives the same area. The caller has the host's role.
///
/// # Errors
/// Corrupt if the lane is damaged, names what is not in the area, or is not empty while the log is
/// clean; and what the devices say. Then nothing else of the volume may be written.
pub fn replay_redo(media: &Media, view: &HeaderView) -> Result<u64> {
    match RedoParts::of(media, view) {
        Some(parts) => parts.replay().map(|(_, transactions)| transactions),
        None => Ok(0),
    }
}

/// Parts that are written at once, of bytes at `start`.
fn split(start: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    // The first part ends at a block's end, so that only it and the last one have a part of one.
    let to_block = (BLOCK_BYTES - start % BLOCK_BYTES) % BLOCK_BYTES;
    let (head, rest) = bytes.split_at(bytes.len().min(to_block as usize));
    let most = MOST_AT_ONCE as usize;
    let parts = rest.chunks(most).enumerate();
    let parts = parts.map(move |(i, part)| (start + to_block + (i * most) as u64, part));
    (!head.is_empty()).then_some((start, head)).into_iter().chain(parts)
}

fn blocks_end(start: u64, bytes: &[u8]) -> u64 {
    (start + bytes.len() as u64).next_multiple_of(BLOCK_BYTES)
}

/// The error of whatever comes behind a failure that was latched.
pub(super) fn latched(error: &Error) -> Error {
    Error::Latched(format!("redo lane: {error}"))
}
