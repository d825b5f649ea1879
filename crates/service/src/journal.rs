//! Background journaling: direct runs, then one journal write.

use crate::service::{Journaled, Newest, Service};
use siftfs_base::{BLOCK_BYTES, Result, corrupt};
use siftfs_device::{AlignedBuf, WriteOp};
use siftfs_log::{
    JournalLayout, JournalParams, encode_transaction, max_journal_record, place_record,
};
use siftfs_wire::{FromService, Transaction};

/// Longest single write of direct data.
const DIRECT_PIECE: usize = 1 << 20;
/// An encoding buffer longer than this is given back after use.
const KEEP_BUF: usize = 1 << 20;

impl Service {
    /// Journals `txn`: its direct runs are in the area and flushed before its record is written
    /// in one piece and flushed; then `Journaled` is queued. Refused transactions leave
    /// nothing behind.
    pub(crate) fn submit(&mut self, txn: &Transaction) -> Result<()> {
        let keys = self.greeted_keys()?;
        self.validate(txn, &self.newest)?;
        self.validate_payload(txn)?;
        let (layout, pos) = self.place(txn)?;
        self.write_direct(txn)?;
        let params = JournalParams { pos, prev_end: self.head, prev_crc: self.head_crc };
        let len = layout.len as usize;
        if self.buf.len() < len {
            self.buf = AlignedBuf::zeroed(len);
        }
        let record = &mut self.buf[..len];
        let crc = encode_transaction(&keys.journal, &params, &layout, txn, record);
        let journal = &self.parts.journal;
        journal.write(self.origin, pos % journal.len(), record)?;
        journal.flush(self.origin)?;
        if self.buf.len() > KEEP_BUF {
            self.buf = AlignedBuf::default();
        }
        let end = pos + layout.len;
        let bytes = end - self.head;
        (self.head, self.head_crc) = (end, crc);
        self.pending.push_back(Journaled { seq: txn.seq, pos, len: layout.len });
        self.newest = Newest::of_txn(txn);
        self.count(txn, bytes);
        self.out.push_back(FromService::Journaled {
            seq: txn.seq,
            bytes,
            image_pos: pos + u64::from(layout.descriptor_len),
        });
        Ok(())
    }

    /// Where the record goes; the Runtime has reserved the room with its credits.
    fn place(&self, txn: &Transaction) -> Result<(JournalLayout, u64)> {
        let ring = self.parts.journal.len();
        let refused = |why: &str| corrupt(format!("transaction {}", txn.seq.0), why);
        let layout = JournalLayout::new(txn)
            .filter(|l| l.len <= max_journal_record(ring))
            .ok_or_else(|| refused("is longer than a journal record may be"))?;
        let pos = place_record(self.head, layout.len, ring)
            .filter(|p| p + layout.len - self.durable.journal_tail <= ring)
            .ok_or_else(|| refused("exceeds the journal's credits"))?;
        Ok((layout, pos))
    }

    /// Writes newly allocated runs straight to the area and flushes them (rule R20).
    fn write_direct(&self, txn: &Transaction) -> Result<()> {
        if txn.direct.is_empty() {
            return Ok(());
        }
        let mut ops: Vec<WriteOp<'_>> = Vec::new();
        let (mut at, mut i) = (0, 0);
        while let Some(first) = txn.direct.get(i) {
            // Neighbouring runs become one write.
            let mut end = first.end();
            i += 1;
            while let Some(next) = txn.direct.get(i).filter(|n| n.start == end) {
                end = next.end();
                i += 1;
            }
            let len = ((end - first.start) * BLOCK_BYTES) as usize;
            let data = &txn.direct_data[at..at + len];
            let mut offset = first.start * BLOCK_BYTES;
            for piece in data.chunks(DIRECT_PIECE) {
                ops.push(WriteOp { offset, data: piece });
                offset += piece.len() as u64;
            }
            at += len;
        }
        self.parts.area.write_batch(self.origin, &ops)?;
        self.parts.area.flush(self.origin)
    }

    fn count(&mut self, txn: &Transaction, bytes: u64) {
        let s = &mut self.stats;
        s.journaled_transactions += 1;
        s.journaled_bytes += bytes;
        s.journaled_tags += (txn.zeros.len() + txn.copies.len()) as u64;
        s.journaled_images += txn.images.len() as u64;
        s.direct_bytes += txn.direct_data.len() as u64;
        s.drops += txn.drops.len() as u64;
    }
}
