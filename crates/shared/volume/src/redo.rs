//! The redo lane on its device: its slots, and reading its records back.

use crate::header::HeaderView;
use crate::media::Media;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Result, corrupt};
use siftfs_device::{AlignedBuf, Device};
use siftfs_log::{
    LogKey, REDO_MAX_DATA, REDO_RING, REDO_SLOT_LEN, RedoRecord, RedoRegion, RedoSlot,
    StaticHeader, if_valid, next_lap, peek_redo,
};
use std::sync::Arc;

/// A redo lane, in errors.
const LANE: &str = "redo lane";
/// Bytes that are searched at once behind the end.
const SEARCH: usize = 256 << 10;

/// The region of a redo lane.
#[derive(Clone)]
pub struct RedoMedium {
    device: Arc<dyn Device>,
    region: RedoRegion,
    volume: [u8; 16],
}

impl RedoMedium {
    /// The redo lane of a volume; `None` if it has none.
    pub fn of(media: &Media, header: &StaticHeader) -> Option<Self> {
        let device = media.log.as_ref().unwrap_or(&media.area).clone();
        header.redo.map(|region| Self { device, region, volume: header.volume })
    }

    /// The device that it lies on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes of the ring.
    pub fn ring_len(&self) -> u64 {
        self.region.len - REDO_RING
    }

    /// Where the byte at this position lies on the device.
    pub fn place(&self, pos: u64) -> u64 {
        self.region.offset + REDO_RING + pos % self.ring_len()
    }

    /// The newest slot.
    ///
    /// # Errors
    /// Corrupt if one of the two is damaged, another volume's, or not of the other one's time: then
    /// nobody knows where the tail is. Incompatible if it is of another version.
    pub fn read_slot(&self) -> Result<RedoSlot> {
        let mut newest: Option<RedoSlot> = None;
        for seq in [0, 1] {
            let mut bytes = [0; REDO_SLOT_LEN];
            self.device.read(self.region.offset + RedoSlot::place(seq), &mut bytes)?;
            let what = format!("{LANE}, slot {seq}");
            let slot = RedoSlot::decode(&bytes).map_err(|e| e.into_error(&what))?;
            let other = newest.is_some_and(|other| other.seq.abs_diff(slot.seq) != 1);
            if slot.volume != self.volume || slot.seq % 2 != seq || other {
                return Err(corrupt(what, "it is of another volume, place or time"));
            }
            newest = newest.filter(|other| other.seq > slot.seq).or(Some(slot));
        }
        newest.ok_or_else(|| corrupt(LANE, "no slot"))
    }

    /// Writes a slot over the older one; durable when it returns.
    pub fn write_slot(&self, slot: &RedoSlot) -> Result<()> {
        let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
        block.iter_mut().zip(slot.encode()).for_each(|(to, byte)| *to = byte);
        self.device.write(self.region.offset + RedoSlot::place(slot.seq), &block, true)
    }

    /// Makes an empty lane under this key, whatever was there; durable when it returns.
    pub fn format(&self, nonce: u64) -> Result<()> {
        let volume = self.volume;
        [1, 2].into_iter().try_for_each(|seq| {
            self.write_slot(&RedoSlot { seq, volume, tail: 0, number: 1, prev_crc: 0, nonce })
        })
    }

    /// Reads the records from this slot's tail on.
    pub fn scan(&self, slot: &RedoSlot) -> RedoScanner<'_> {
        let RedoSlot { tail, number, prev_crc, .. } = *slot;
        let end = RedoEnd { pos: tail, number, prev_crc, transactions: 0 };
        let limit = tail + self.ring_len();
        RedoScanner { medium: self, key: slot.key(), limit, at: end, index: 0, committed: end }
    }

    /// Where the committed transactions end from this slot's tail on. Everything in front of that
    /// is valid, and nothing behind it proves that something was lost.
    ///
    /// # Errors
    /// Corrupt if a record rotted behind which others are (rule R14).
    pub fn end(&self, slot: &RedoSlot) -> Result<RedoEnd> {
        let mut scanner = self.scan(slot);
        while scanner.next_record()?.is_some() {}
        scanner.check_rot()?;
        Ok(scanner.committed)
    }

    /// `len` bytes at a position, which do not wrap.
    fn read(&self, pos: u64, len: usize) -> Result<AlignedBuf> {
        let mut bytes = AlignedBuf::zeroed(len);
        self.device.read(self.place(pos), &mut bytes)?;
        Ok(bytes)
    }
}

impl Media {
    /// The redo lane of the volume that `view` describes.
    pub fn redo(&self, view: &HeaderView) -> Option<RedoMedium> {
        RedoMedium::of(self, &view.header)
    }
}

/// A place between two records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedoEnd {
    /// Position.
    pub pos: u64,
    /// Number of the transaction that begins there, or goes on.
    pub number: u64,
    /// Checksum of the record before.
    pub prev_crc: u32,
    /// Committed transactions before, from the tail on.
    pub transactions: u64,
}

/// Reads records in order, as long as they continue each other.
pub struct RedoScanner<'m> {
    medium: &'m RedoMedium,
    key: LogKey,
    /// One past the last position that can hold a record.
    limit: u64,
    at: RedoEnd,
    /// Of the next record in its transaction.
    index: u32,
    committed: RedoEnd,
}

impl RedoScanner<'_> {
    /// The next record and its data; `None` at the end.
    pub fn next_record(&mut self) -> Result<Option<(RedoRecord, Vec<u8>)>> {
        let ring = self.medium.ring_len();
        for pos in [self.at.pos, next_lap(self.at.pos, ring)] {
            let Some((record, bytes)) = self.record_at(pos)? else { continue };
            let place = &record.place;
            let wanted = (self.at.pos, self.at.prev_crc, self.at.number, self.index);
            if (place.prev_end, place.prev_crc, place.number, place.index) != wanted {
                continue;
            }
            let Some(data) = record.data(&bytes).map(<[u8]>::to_vec) else { continue };
            self.at = RedoEnd { pos: record.end(), prev_crc: record.crc, ..self.at };
            self.index += 1;
            if place.commit {
                self.index = 0;
                self.at.number += 1;
                self.at.transactions += 1;
                self.committed = self.at;
            }
            return Ok(Some((record, data)));
        }
        Ok(None)
    }

    /// Behind the last committed transaction that was read.
    pub fn committed(&self) -> RedoEnd {
        self.committed
    }

    /// May `len` bytes lie at `pos`?
    fn fits(&self, pos: u64, len: u64) -> bool {
        let ring = self.medium.ring_len();
        pos.checked_add(len).is_some_and(|end| end <= self.limit) && pos % ring + len <= ring
    }

    /// A record with a valid head, and all of its bytes.
    fn record_at(&self, pos: u64) -> Result<Option<(RedoRecord, AlignedBuf)>> {
        if !self.fits(pos, BLOCK_BYTES) {
            return Ok(None);
        }
        let first = self.medium.read(pos, BLOCK_SIZE)?;
        let Ok((len, _)) = peek_redo(&first, pos) else { return Ok(None) };
        if !self.fits(pos, len) {
            return Ok(None);
        }
        let bytes = self.medium.read(pos, len as usize)?;
        let record = if_valid(RedoRecord::decode(&bytes, &self.key, pos))?;
        Ok(record.map(|record| (record, bytes)))
    }

    /// A valid head of a record that begins with `first`.
    fn head_at(&self, pos: u64, first: &[u8]) -> Result<Option<RedoRecord>> {
        let Ok((len, head)) = peek_redo(first, pos) else { return Ok(None) };
        if !self.fits(pos, len) {
            return Ok(None);
        }
        if_valid(RedoRecord::decode(&self.medium.read(pos, head)?, &self.key, pos))
    }

    /// Is there a record behind the end that was written when something at the end was durable?
    fn check_rot(&self) -> Result<()> {
        let end = self.at.pos;
        let reach = self.medium.ring_len() / 4 + 3 * REDO_MAX_DATA;
        let until = self.limit.min(end.saturating_add(reach));
        let mut from = end;
        while from < until {
            let lap_end = next_lap(from, self.medium.ring_len());
            let len = (until.min(lap_end) - from).min(SEARCH as u64) as usize;
            let bytes = self.medium.read(from, len)?;
            for (pos, block) in (from..).step_by(BLOCK_SIZE).zip(bytes.chunks(BLOCK_SIZE)) {
                let Some(record) = self.head_at(pos, block)? else { continue };
                if record.place.durable > end {
                    let what = format!("transaction {} is damaged", self.at.number);
                    let why = format!("{what}, and one behind it, at {pos}, was written later");
                    return Err(corrupt(LANE, why));
                }
            }
            from += len as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "redo_tests.rs"]
mod tests;
