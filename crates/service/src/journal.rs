//! Background journaling: direct runs, then one journal write.

use crate::batch::{Batch, Committed, Part};
use crate::blocks::Io;
use crate::checkpoint::ORDERED_WINDOW;
use crate::digested::NOTHING;
use crate::images::InodeTables;
use crate::mode::ReplayMode;
use crate::reuse;
use crate::service::{Journaled, Newest, Service};
use crate::window::Window;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun, Result, TxnSeq, corrupt};
use siftfs_device::{AlignedBuf, WriteOp};
use siftfs_log::{CopyTag, Transaction};
use siftfs_log::{
    JournalLayout, JournalParams, encode_transaction, max_journal_record, place_record,
};
use siftfs_wire::{CheckpointReport, DirectRun};

/// A buffer longer than this is given back after use.
const KEEP_BUF: usize = 1 << 20;

impl Service {
    /// Journals `txn`: its direct runs, written ahead by [`Service::write_direct`], are flushed
    /// before its record is written in one piece and flushed; then `Journaled` is queued. A refused
    /// transaction writes nothing; what went ahead of it lies in blocks that nothing refers to.
    pub(crate) fn submit(&mut self, txn: &Transaction) -> Result<()> {
        let keys = self.greeted_keys()?;
        self.validate(txn, &self.newest)?;
        self.validate_payload(txn)?;
        let (layout, pos) = self.place(txn)?;
        if !std::mem::take(&mut self.direct).is_empty() {
            self.parts.area.flush(self.origin)?;
        }
        let params = JournalParams { pos, prev_end: self.head, prev_crc: self.head_crc };
        let len = layout.len as usize;
        let mut buf = std::mem::take(&mut self.buf);
        if buf.len() < len {
            buf = AlignedBuf::zeroed(len);
        }
        let record = &mut buf[..len];
        if layout.data_len > 0 {
            self.repeat_staged(txn, &mut record[layout.data()])?;
        }
        let crc = encode_transaction(&keys.journal, &params, &layout, txn, record);
        let journal = &self.parts.journal;
        // Without a pause: nothing gives credits back before it is journaled.
        journal.write(self.origin, pos % journal.len(), record)?;
        journal.flush(self.origin)?;
        if buf.len() <= KEEP_BUF {
            self.buf = buf;
        }
        let end = pos + layout.len;
        let bytes = end - self.head;
        (self.head, self.head_crc) = (end, crc);
        let notes = self.notes_of(txn);
        let image_pos = pos + u64::from(layout.descriptor_len);
        let data = layout.data_offset..layout.len - BLOCK_BYTES;
        let digested = txn.digest.as_ref().map_or(0, |d| d.ranges);
        let (seq, len) = (txn.seq, layout.len);
        let entry = Journaled { seq, pos, len, data, bytes, image_pos, digested, notes };
        self.out.push_back(entry.message());
        self.pending.push_back(entry);
        self.newest = Newest::of_txn(txn);
        self.count(txn, bytes);
        Ok(())
    }

    /// Reads the bytes that the copy tags name, verified as a replay does (rule R13), into `data`,
    /// one tag's behind the other's. Everything that the transaction names is flushed (rule R4).
    fn repeat_staged(&mut self, txn: &Transaction, data: &mut [u8]) -> Result<()> {
        let mut at = 0;
        let into_data = |tag: &CopyTag| {
            let dst = at;
            at += u64::from(tag.len);
            CopyTag { dst, ..tag.clone() }
        };
        let copies = txn.copies.iter().map(into_data).collect();
        let staged = txn.staged.clone();
        let targets = Transaction { staged, copies, ..Transaction::default() };
        let mut report = CheckpointReport::default();
        let mut batch = Batch::coalescing();
        let all = Committed { txn: &targets, digested: &NOTHING, images: &[], end: 0, data: None };
        batch.add(&InodeTables::default(), &all, Part::Both, &mut report);
        batch.seal();
        let mut io = Io {
            area: &self.parts.area,
            journal: &self.parts.journal,
            lanes: &self.parts.lanes,
            lane_key: self.greeted_keys()?.lanes,
            origin: self.origin,
            report: &mut report,
        };
        // Not the checkpoint's, which may be in the middle of one.
        let mut window = Window::default();
        while batch.cursor < batch.pieces.len() {
            window.plan(&mut batch, ORDERED_WINDOW, ORDERED_WINDOW);
            while !window.is_loaded() {
                window.load(&mut io, &batch, ORDERED_WINDOW)?;
            }
            for work in &window.work {
                // Destinations are places in `data`, each named once.
                let place = &mut data[work.piece.start as usize..work.piece.end() as usize];
                place.copy_from_slice(window.bytes_of(&batch, work).expect("staged bytes"));
            }
            batch.cursor += window.pieces();
            window.close();
        }
        Ok(())
    }

    /// What `auto` will judge reuse by.
    pub(crate) fn notes_of(&self, txn: &Transaction) -> Box<[u64]> {
        match self.options.mode {
            ReplayMode::Auto => reuse::sample(txn),
            ReplayMode::Ordered | ReplayMode::Coalesce => Box::default(),
        }
    }

    /// Where the record goes; the Runtime has reserved the room with its credits.
    fn place(&self, txn: &Transaction) -> Result<(JournalLayout, u64)> {
        let ring = self.parts.journal.len();
        let refused = |why: &str| corrupt(format!("transaction {}", txn.seq.0), why);
        let layout = JournalLayout::new(txn, self.options.journal_data)
            .filter(|l| l.len <= max_journal_record(ring))
            .ok_or_else(|| refused("is longer than a journal record may be"))?;
        let pos = place_record(self.head, layout.len, ring)
            .filter(|p| p + layout.len - self.durable.journal_tail <= ring)
            .ok_or_else(|| refused("exceeds the journal's credits"))?;
        Ok((layout, pos))
    }

    /// Writes data of the coming transaction straight to its new blocks (rule R20); the flush
    /// comes with that transaction.
    pub(crate) fn write_direct(&mut self, seq: TxnSeq, runs: &[DirectRun]) -> Result<()> {
        self.greeted_keys()?;
        self.validate_direct(seq, runs)?;
        let blocks: usize = runs.iter().map(|r| r.data.len()).sum();
        if self.buf.len() < blocks * BLOCK_SIZE {
            self.buf = AlignedBuf::zeroed(blocks * BLOCK_SIZE);
        }
        let data = runs.iter().flat_map(|r| &r.data);
        for (to, block) in self.buf.as_chunks_mut().0.iter_mut().zip(data) {
            block.copy_to(to);
        }
        let (mut ops, mut rest) = (Vec::new(), &self.buf[..]);
        for run in neighbours_joined(runs) {
            let (data, more) = rest.split_at((run.len * BLOCK_BYTES) as usize);
            ops.push(WriteOp { offset: run.start * BLOCK_BYTES, data });
            rest = more;
        }
        self.parts.area.write_batch(self.origin, &ops)?;
        self.direct.extend(runs.iter().map(|r| r.run));
        self.stats.direct_bytes += blocks as u64 * BLOCK_BYTES;
        Ok(())
    }

    fn count(&mut self, txn: &Transaction, bytes: u64) {
        let s = &mut self.stats;
        s.journaled_transactions += 1;
        s.journaled_bytes += bytes;
        s.journaled_tags += (txn.zeros.len() + txn.copies.len()) as u64;
        s.digested_ranges += u64::from(txn.digest.as_ref().map_or(0, |d| d.ranges));
        s.journaled_images += txn.images.len() as u64;
        s.drops += txn.drops.len() as u64;
    }
}

/// Runs in the order of their data, those that touch made one.
fn neighbours_joined(runs: &[DirectRun]) -> Vec<BlockRun> {
    let mut out: Vec<BlockRun> = Vec::new();
    for DirectRun { run, .. } in runs {
        match out.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => out.push(*run),
        }
    }
    out
}
