//! Pieces to blocks: blocks that several pieces or the area's own bytes make up, and writes to
//! the area, gathered.

use crate::piece::Piece;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Result};
use siftfs_device::{AlignedBuf, AreaWriter, Origin, ReadOp, RegionReader, StagingReader, WriteOp};
use siftfs_log::EpochKey;
use siftfs_wire::CheckpointReport;
use std::collections::BTreeMap;

/// Bytes gathered before they are written to the area.
const GATHER: usize = 4 << 20;
/// Bytes written together, those written from where they lie included.
const TOGETHER: usize = 16 << 20;
/// Longest single write in bytes, so that several are in flight.
pub(crate) const LONGEST_WRITE: u64 = 1 << 20;
const LONGEST: usize = LONGEST_WRITE as usize;
/// Neighbours no longer than this are copied together, to make one write of two.
const SHORT: usize = 32 << 10;
/// Blocks merged from several pieces that may wait for their last byte.
const MAX_SHARED: usize = 1024;

/// Where replay reads and writes.
pub(crate) struct Io<'a> {
    pub area: &'a AreaWriter,
    pub journal: &'a RegionReader,
    pub lanes: &'a [StagingReader],
    pub lane_key: EpochKey,
    pub origin: Origin,
    pub report: &'a mut CheckpointReport,
}

/// [`Io::region`] of the journal.
pub(crate) const JOURNAL: usize = usize::MAX;

impl Io<'_> {
    /// A lane, by its number, or the [`JOURNAL`].
    pub fn region(&self, nr: usize) -> &RegionReader {
        if nr == JOURNAL { self.journal } else { &self.lanes[nr] }
    }
}

/// A block that no single piece covers.
struct Shared {
    /// Bytes that pieces still have to bring.
    missing: u32,
    /// The rest of its bytes must be read from the area before it is written.
    needs_base: bool,
    buf: Option<Box<[u8; BLOCK_SIZE]>>,
}

/// Which blocks of a window are merged from several pieces or with what the area holds.
#[derive(Default)]
pub(crate) struct Plan {
    shared: BTreeMap<u64, Shared>,
    /// Blocks covered by a single piece.
    whole: u64,
    /// Shared blocks in memory.
    buffered: usize,
}

/// A piece cut at block boundaries: up to two parts inside one block each, and whole blocks
/// between them. Ranges are relative to the piece.
fn cut(p: &Piece) -> [Option<(u64, u64)>; 3] {
    let first_end = (p.start.next_multiple_of(BLOCK_BYTES)).min(p.end());
    let last_start = (p.end() / BLOCK_BYTES * BLOCK_BYTES).max(first_end);
    let part = |from: u64, to: u64| (to > from).then(|| (from - p.start, to - p.start));
    [part(p.start, first_end), part(first_end, last_start), part(last_start, p.end())]
}

impl Plan {
    /// A plan for disjoint pieces.
    pub fn new<'p>(pieces: impl Iterator<Item = &'p Piece>) -> Self {
        let mut plan = Self::default();
        for p in pieces {
            let [head, middle, tail] = cut(p);
            for (from, to) in [head, tail].into_iter().flatten() {
                let block = (p.start + from) / BLOCK_BYTES;
                let empty = Shared { missing: 0, needs_base: true, buf: None };
                let shared = plan.shared.entry(block).or_insert(empty);
                shared.missing += (to - from) as u32;
                // Pieces are disjoint, so a full sum is full coverage.
                shared.needs_base = u64::from(shared.missing) < BLOCK_BYTES;
            }
            plan.whole += middle.map_or(0, |(from, to)| (to - from) / BLOCK_BYTES);
        }
        plan
    }

    /// Blocks that the pieces make up.
    pub fn blocks(&self) -> u64 {
        self.whole + self.shared.len() as u64
    }

    /// Has every shared block been written?
    pub fn is_complete(&self) -> bool {
        self.shared.is_empty()
    }

    /// Gives every shared block that `pieces` touch its buffer, read from the area where the
    /// tags do not cover it.
    pub fn read_bases<'p>(
        &mut self,
        io: &mut Io<'_>,
        pieces: impl Iterator<Item = &'p Piece>,
    ) -> Result<()> {
        let mut wanted: Vec<u64> = Vec::new();
        for p in pieces {
            for (from, _) in [cut(p)[0], cut(p)[2]].into_iter().flatten() {
                wanted.push((p.start + from) / BLOCK_BYTES);
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        let mut reads: Vec<(u64, Box<[u8; BLOCK_SIZE]>)> = Vec::new();
        for block in wanted {
            let shared = self.shared.get_mut(&block).expect("every part was planned");
            if shared.buf.is_some() {
                continue;
            }
            self.buffered += 1;
            let buf = Box::new([0; BLOCK_SIZE]);
            if shared.needs_base {
                reads.push((block, buf));
            } else {
                shared.buf = Some(buf);
            }
        }
        let mut ops: Vec<ReadOp<'_>> = reads
            .iter_mut()
            .map(|(b, buf)| ReadOp { offset: *b * BLOCK_BYTES, buf: &mut buf[..] })
            .collect();
        if !ops.is_empty() {
            io.report.reads += ops.len() as u64;
            io.report.read_bytes += (ops.len() * BLOCK_SIZE) as u64;
            io.area.read_batch(io.origin, &mut ops)?;
        }
        for (block, buf) in reads {
            self.shared.get_mut(&block).expect("planned").buf = Some(buf);
        }
        Ok(())
    }

    /// Brings one piece's bytes (`None`: zeroes); blocks that are complete go to `out`.
    pub fn apply(
        &mut self,
        io: &mut Io<'_>,
        out: &mut Gather,
        held: &[u8],
        p: &Piece,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        let [head, middle, tail] = cut(p);
        let part = |from: u64, to: u64| bytes.map(|b| &b[from as usize..to as usize]);
        if let Some((from, to)) = head {
            self.fill(io, out, held, p.start + from, to - from, part(from, to))?;
        }
        if let Some((from, to)) = middle {
            out.push(io, held, p.start + from, to - from, part(from, to))?;
        }
        if let Some((from, to)) = tail {
            self.fill(io, out, held, p.start + from, to - from, part(from, to))?;
        }
        Ok(())
    }

    /// Brings bytes of one shared block.
    fn fill(
        &mut self,
        io: &mut Io<'_>,
        out: &mut Gather,
        held: &[u8],
        start: u64,
        len: u64,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        let (block, at) = (start / BLOCK_BYTES, (start % BLOCK_BYTES) as usize);
        let shared = self.shared.get_mut(&block).expect("every part was planned");
        let buf = shared.buf.as_mut().expect("bases are read before parts are brought");
        let place = &mut buf[at..at + len as usize];
        match bytes {
            Some(b) => place.copy_from_slice(b),
            None => place.fill(0),
        }
        shared.missing -= len as u32;
        if shared.missing == 0 {
            out.push(io, held, block * BLOCK_BYTES, BLOCK_BYTES, Some(&buf[..]))?;
            self.shared.remove(&block);
            self.buffered -= 1;
        }
        Ok(())
    }

    /// Bounds memory: when too many blocks wait, they are written as they are and read again
    /// when their next part comes.
    pub fn spill(&mut self, io: &mut Io<'_>, out: &mut Gather, held: &[u8]) -> Result<()> {
        if self.buffered <= MAX_SHARED {
            return Ok(());
        }
        for (block, shared) in &mut self.shared {
            if let Some(buf) = shared.buf.take() {
                out.push(io, held, block * BLOCK_BYTES, BLOCK_BYTES, Some(&buf[..]))?;
                shared.needs_base = true;
            }
        }
        self.buffered = 0;
        out.drain(io, held)
    }
}

/// Where the bytes of a write lie.
#[derive(Clone, Copy)]
enum At {
    /// In the gathering buffer, from here on.
    Gathered(usize),
    /// In the memory that is held still, from here on.
    Held(usize),
}

/// A write to be.
struct Write {
    dst: u64,
    len: usize,
    at: At,
}

/// Writes to the area, gathered; neighbours in order become one write.
///
/// What is longer than [`SHORT`], or has no neighbour, is written from where it lies. That is the
/// `held` memory, a window's buffer, which is the same and unchanged until [`Gather::drain`].
#[derive(Default)]
pub(crate) struct Gather {
    buf: AlignedBuf,
    used: usize,
    /// Bytes to be written, gathered or held.
    bytes: usize,
    writes: Vec<Write>,
}

/// Where in `held` these bytes lie, if they do, and on a block's boundary.
fn place_in(held: &[u8], bytes: &[u8]) -> Option<usize> {
    let at = bytes.as_ptr().addr().checked_sub(held.as_ptr().addr())?;
    let inside = at.checked_add(bytes.len()).is_some_and(|end| end <= held.len());
    (inside && at.is_multiple_of(BLOCK_SIZE)).then_some(at)
}

impl Gather {
    /// Adds whole blocks; `None` adds zeroes.
    fn push(
        &mut self,
        io: &mut Io<'_>,
        held: &[u8],
        dst: u64,
        len: u64,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        if self.bytes >= TOGETHER {
            self.drain(io, held)?;
        }
        let len = len as usize;
        let next = self.writes.last().is_some_and(|w| w.dst + w.len as u64 == dst);
        match bytes.map(|b| (b, place_in(held, b))) {
            Some((_, Some(at))) if !next || len > SHORT || self.goes_on(at) => {
                self.hold(dst, at, len);
                Ok(())
            }
            other => {
                if next {
                    self.copy_last(io, held)?;
                }
                self.copy(io, held, dst, len, other.map(|(b, _)| b))
            }
        }
    }

    /// Is this what follows the newest write's bytes in memory?
    fn goes_on(&self, at: usize) -> bool {
        matches!(self.writes.last(), Some(Write { at: At::Held(a), len, .. }) if a + len == at)
    }

    /// Adds blocks that are written from where they lie.
    fn hold(&mut self, mut dst: u64, mut at: usize, mut len: usize) {
        self.bytes += len;
        if self.goes_on(at)
            && let Some(w) = self.writes.last_mut()
            && w.dst + w.len as u64 == dst
        {
            let more = len.min(LONGEST.saturating_sub(w.len));
            w.len += more;
            (dst, at, len) = (dst + more as u64, at + more, len - more);
        }
        while len > 0 {
            let n = len.min(LONGEST);
            self.writes.push(Write { dst, len: n, at: At::Held(at) });
            (dst, at, len) = (dst + n as u64, at + n, len - n);
        }
    }

    /// Gathers the newest write, if it is a short one, so that its neighbour can join it.
    fn copy_last(&mut self, io: &mut Io<'_>, held: &[u8]) -> Result<()> {
        match self.writes.pop() {
            Some(Write { dst, len, at: At::Held(at) }) if len <= SHORT => {
                self.bytes -= len;
                self.copy(io, held, dst, len, Some(&held[at..at + len]))
            }
            other => {
                self.writes.extend(other);
                Ok(())
            }
        }
    }

    /// Adds a copy of `bytes`, or zeroes.
    fn copy(
        &mut self,
        io: &mut Io<'_>,
        held: &[u8],
        dst: u64,
        len: usize,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        let mut done = 0;
        while done < len {
            if self.used == GATHER {
                self.drain(io, held)?;
            }
            let n = (len - done).min(GATHER - self.used);
            // As much as is needed: all of it would be cleared for a batch of a few blocks, too.
            if self.buf.len() < self.used + n {
                self.buf.reuse((self.used + n).next_power_of_two().min(GATHER));
            }
            let place = &mut self.buf[self.used..self.used + n];
            match bytes {
                Some(b) => place.copy_from_slice(&b[done..done + n]),
                None => place.fill(0),
            }
            let dst = dst + done as u64;
            match self.writes.last_mut() {
                Some(Write { dst: d, len: l, at: At::Gathered(_) })
                    if *d + *l as u64 == dst && *l + n <= LONGEST =>
                {
                    *l += n;
                }
                _ => self.writes.push(Write { dst, len: n, at: At::Gathered(self.used) }),
            }
            self.used += n;
            self.bytes += n;
            done += n;
        }
        Ok(())
    }

    /// Writes everything gathered.
    pub fn drain(&mut self, io: &mut Io<'_>, held: &[u8]) -> Result<()> {
        let data = |w: &Write| match w.at {
            At::Gathered(at) => &self.buf[at..at + w.len],
            At::Held(at) => &held[at..at + w.len],
        };
        let ops: Vec<WriteOp<'_>> =
            self.writes.iter().map(|w| WriteOp { offset: w.dst, data: data(w) }).collect();
        if !ops.is_empty() {
            io.report.writes += ops.len() as u64;
            io.report.write_bytes += self.bytes as u64;
            io.area.write_batch(io.origin, &ops)?;
        }
        self.writes.clear();
        (self.used, self.bytes) = (0, 0);
        Ok(())
    }
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
