//! Reading the journal back, from its tail to its end.

use crate::ring::{ReadCounts, RingReader};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Result, TxnSeq, corrupt};
use siftfs_device::{Origin, RegionReader};
use siftfs_log::{
    Descriptor, JournalHeader, JournalRecord, LogKey, decode_journal_record, if_valid,
    max_journal_record, next_lap,
};

/// Where the journal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEnd {
    /// End of the last committed record, or the tail if there is none.
    pub pos: u64,
    /// Checksum of its commit block, 0 if there is none.
    pub last_crc: u32,
    /// Sequence number of the next transaction.
    pub next_seq: TxnSeq,
    /// Committed transactions found.
    pub transactions: u64,
}

/// Yields the committed transactions of the journal in order, each byte read once. Memory is
/// bounded by the longest record.
pub struct JournalScanner {
    ring: RingReader,
    key: LogKey,
    max_len: u64,
    end: JournalEnd,
    done: bool,
}

const WHAT: &str = "journal";

impl JournalScanner {
    /// Scans from `tail`, where transaction `next_seq` is due.
    pub fn new(
        region: &RegionReader,
        key: LogKey,
        tail: u64,
        next_seq: TxnSeq,
        origin: Origin,
    ) -> Result<Self> {
        let tail_ok = tail.checked_add(region.len()).is_some_and(|l| l < 1 << 62);
        let aligned = region.len().is_multiple_of(BLOCK_BYTES) && tail.is_multiple_of(BLOCK_BYTES);
        if region.is_empty() || !tail_ok || !aligned {
            return Err(corrupt(WHAT, format!("tail {tail} does not fit the ring")));
        }
        Ok(Self {
            max_len: max_journal_record(region.len()),
            ring: RingReader::new(region.clone(), origin, tail),
            key,
            end: JournalEnd { pos: tail, last_crc: 0, next_seq, transactions: 0 },
            done: false,
        })
    }

    /// The next committed transaction with its images; `None` at the end.
    ///
    /// # Errors
    /// Corrupt if a transaction lies behind an invalid one: the next one is written only once
    /// its predecessor is durable, so the predecessor rotted (rule R14).
    pub fn next_record(&mut self) -> Result<Option<JournalRecord<'_>>> {
        if self.done {
            return Ok(None);
        }
        let at = self.end.pos;
        let lap = next_lap(at, self.ring.ring_len());
        let pos = if self.valid_at(at)? {
            at
        } else if self.promising(at, lap)? && self.valid_at(lap)? {
            lap
        } else {
            self.done = true;
            self.judge_end()?;
            return Ok(None);
        };
        let (key, max) = (self.key, self.max_len);
        let block = self.ring.get(pos, BLOCK_SIZE)?;
        let header = JournalHeader::peek(block, &key, pos, max).map_err(|i| i.into_error(WHAT))?;
        let bytes = self.ring.get(pos, header.layout.len as usize)?;
        let record = decode_journal_record(bytes, &key, pos, max);
        let record = record.map_err(|e| e.into_error(WHAT))?;
        self.end.pos = header.end();
        self.end.last_crc = record.commit_crc;
        self.end.next_seq = TxnSeq(header.seq.0 + 1);
        self.end.transactions += 1;
        Ok(Some(record))
    }

    /// Where the journal ends, as far as it was read.
    pub fn end(&self) -> JournalEnd {
        self.end
    }

    /// Reads done so far.
    pub fn counts(&self) -> ReadCounts {
        self.ring.counts
    }

    /// May the record after `at` lie at the start of the next lap? Probes without moving the
    /// window, which may have to go on from `at`.
    fn promising(&mut self, at: u64, lap: u64) -> Result<bool> {
        let gap = !at.is_multiple_of(self.ring.ring_len()) && lap - at < self.max_len;
        if !gap || lap >= self.ring.limit() {
            return Ok(false);
        }
        let block = self.ring.probe(lap)?;
        Ok(JournalHeader::peek(&block[..], &self.key, lap, self.max_len).is_ok())
    }

    /// Is the next transaction at `pos`, whole and chained to the one before?
    fn valid_at(&mut self, pos: u64) -> Result<bool> {
        let Some(descriptor) = self.descriptor_at(pos)? else { return Ok(false) };
        let (h, e) = (descriptor.header, self.end);
        let chained = h.seq == e.next_seq
            && h.params.prev_end == e.pos
            && (e.transactions == 0 || h.params.prev_crc == e.last_crc);
        if !chained {
            return Ok(false);
        }
        let bytes = self.ring.get(pos, h.layout.len as usize)?;
        // `peek` has checked that these lengths add up.
        let (_, rest) = bytes.split_at(h.layout.descriptor_len as usize);
        let (rest, commit) = rest.split_at(rest.len() - BLOCK_SIZE);
        let (images, data) = rest.split_at(descriptor.txn.images.len() * BLOCK_SIZE);
        let mut blocks = images.chunks_exact(BLOCK_SIZE).enumerate();
        let valid = blocks.all(|(i, b)| descriptor.verify_image(i, b))
            && data
                .get(..h.layout.data_len as usize)
                .is_some_and(|d| descriptor.data.verify_data(d))
            && if_valid(descriptor.verify_commit(commit))?.is_some();
        if valid {
            self.ring.counts.record_bytes += h.layout.len;
        }
        Ok(valid)
    }

    /// A descriptor that validates at `pos`, whatever its links say.
    fn descriptor_at(&mut self, pos: u64) -> Result<Option<Descriptor>> {
        if !self.ring.fits(pos, BLOCK_BYTES) {
            return Ok(None);
        }
        let (key, max) = (self.key, self.max_len);
        let block = self.ring.get(pos, BLOCK_SIZE)?;
        let Ok(header) = JournalHeader::peek(block, &key, pos, max) else { return Ok(None) };
        if !self.ring.fits(pos, header.layout.len) {
            return Ok(None);
        }
        let bytes = self.ring.get(pos, header.layout.descriptor_len as usize)?;
        if_valid(Descriptor::decode(header, &key, bytes))
    }

    fn judge_end(&mut self) -> Result<()> {
        let end = self.end.pos;
        let ring = self.ring.ring_len();
        let mut horizon = end.saturating_add(self.max_len);
        if !end.is_multiple_of(ring) && next_lap(end, ring) - end < self.max_len {
            horizon = next_lap(end, ring) + self.max_len;
        }
        let mut at = end + BLOCK_BYTES;
        while at <= horizon && at < self.ring.limit() {
            let found = self.descriptor_at(at)?;
            if let Some(d) = found.filter(|d| d.header.seq > self.end.next_seq) {
                return Err(corrupt(
                    WHAT,
                    format!(
                        "transaction {} at position {end} is damaged, but transaction {} follows: \
                         the medium lost committed metadata",
                        self.end.next_seq.0, d.header.seq.0
                    ),
                ));
            }
            at += BLOCK_BYTES;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
