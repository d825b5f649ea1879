//! Forward reading of a ring, each byte once.

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Result, corrupt};
use siftfs_device::{AlignedBuf, Origin, RegionReader};

/// Bytes read beyond what is asked for, when there are any.
const READ_AHEAD: u64 = 256 << 10;

/// Reads issued and what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Reads issued.
    pub reads: u64,
    /// Bytes read, including those that were checked behind the log's end.
    pub bytes: u64,
    /// Bytes of valid records among them.
    pub record_bytes: u64,
}

/// A window that moves forward through positions `tail .. tail + ring_len`.
pub(crate) struct RingReader {
    region: RegionReader,
    origin: Origin,
    ring_len: u64,
    limit: u64,
    buf: AlignedBuf,
    start: u64,
    len: usize,
    pub counts: ReadCounts,
}

impl RingReader {
    pub fn new(region: RegionReader, origin: Origin, tail: u64) -> Self {
        let ring_len = region.len();
        let limit = tail + ring_len;
        let buf = AlignedBuf::zeroed(0);
        Self { region, origin, ring_len, limit, buf, start: tail, len: 0, counts: <_>::default() }
    }

    pub fn ring_len(&self) -> u64 {
        self.ring_len
    }

    /// One past the last position that can hold live bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// May a record lie at `pos` with this length: inside the live window, not wrapping?
    pub fn fits(&self, pos: u64, len: u64) -> bool {
        pos.checked_add(len).is_some_and(|end| end <= self.limit)
            && pos % self.ring_len + len <= self.ring_len
    }

    /// `len` bytes at `pos`. Bytes that the window already holds are not read again as long as
    /// positions only grow.
    pub fn get(&mut self, pos: u64, len: usize) -> Result<&[u8]> {
        if !self.fits(pos, len as u64) {
            return Err(corrupt("log ring", format!("no {len} bytes at position {pos}")));
        }
        let held_end = self.start + self.len as u64;
        if pos < self.start || pos > held_end {
            self.start = pos;
            self.len = 0;
        }
        if pos + len as u64 > self.start + self.len as u64 {
            self.fill(pos, len as u64)?;
        }
        let at = (pos - self.start) as usize;
        Ok(self.buf.get(at..at + len).expect("the window was filled to here"))
    }

    /// The block at `pos`, without moving the window there: a position that may hold the next
    /// record, but need not.
    pub fn probe(&mut self, pos: u64) -> Result<Box<[u8; BLOCK_SIZE]>> {
        let mut block = Box::new([0; BLOCK_SIZE]);
        self.counts.reads += 1;
        self.counts.bytes += BLOCK_BYTES;
        self.region.read(self.origin, pos % self.ring_len, &mut block[..])?;
        Ok(block)
    }

    /// Drops what lies before `pos`, keeps the rest, reads on.
    fn fill(&mut self, pos: u64, len: u64) -> Result<()> {
        let drop = (pos - self.start) as usize;
        let keep = self.len - drop;
        let lap_end = pos - pos % self.ring_len + self.ring_len;
        let end = (pos + len + READ_AHEAD).min(lap_end).min(self.limit);
        let total = (end - pos) as usize;
        if self.buf.len() < total {
            let mut grown = AlignedBuf::zeroed(total);
            let kept = self.buf.get(drop..drop + keep).expect("the window holds what is kept");
            grown.split_at_mut(keep).0.copy_from_slice(kept);
            self.buf = grown;
        } else {
            self.buf.copy_within(drop..drop + keep, 0);
        }
        (self.start, self.len) = (pos, keep);
        let from = (pos + keep as u64) % self.ring_len;
        self.counts.reads += 1;
        self.counts.bytes += (total - keep) as u64;
        let room = self.buf.get_mut(keep..total).expect("the buffer was made long enough");
        self.region.read(self.origin, from, room)?;
        self.len = total;
        Ok(())
    }
}
