//! Pieces to blocks: blocks that several pieces or the area's own bytes make up, and writes to
//! the area, gathered.

use crate::piece::Piece;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Result};
use siftfs_device::{AlignedBuf, AreaWriter, Origin, ReadOp, StagingReader, WriteOp};
use siftfs_log::LogKey;
use siftfs_wire::CheckpointReport;
use std::collections::BTreeMap;

/// Bytes gathered before they are written to the area.
const GATHER: usize = 4 << 20;
/// Longest single write, so that several are in flight.
const LONGEST: usize = 1 << 20;
/// Blocks merged from several pieces that may wait for their last byte.
const MAX_SHARED: usize = 2048;

/// Where replay reads and writes.
pub(crate) struct Io<'a> {
    pub area: &'a AreaWriter,
    pub lanes: &'a [StagingReader],
    pub lane_key: LogKey,
    pub origin: Origin,
    pub report: &'a mut CheckpointReport,
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
        p: &Piece,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        let [head, middle, tail] = cut(p);
        let part = |from: u64, to: u64| bytes.map(|b| &b[from as usize..to as usize]);
        if let Some((from, to)) = head {
            self.fill(io, out, p.start + from, to - from, part(from, to))?;
        }
        if let Some((from, to)) = middle {
            out.push(io, p.start + from, to - from, part(from, to))?;
        }
        if let Some((from, to)) = tail {
            self.fill(io, out, p.start + from, to - from, part(from, to))?;
        }
        Ok(())
    }

    /// Brings bytes of one shared block.
    fn fill(
        &mut self,
        io: &mut Io<'_>,
        out: &mut Gather,
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
            out.push(io, block * BLOCK_BYTES, BLOCK_BYTES, Some(&buf[..]))?;
            self.shared.remove(&block);
            self.buffered -= 1;
        }
        Ok(())
    }

    /// Bounds memory: when too many blocks wait, they are written as they are and read again
    /// when their next part comes.
    pub fn spill(&mut self, io: &mut Io<'_>, out: &mut Gather) -> Result<()> {
        if self.buffered <= MAX_SHARED {
            return Ok(());
        }
        for (block, shared) in &mut self.shared {
            if let Some(buf) = shared.buf.take() {
                out.push(io, block * BLOCK_BYTES, BLOCK_BYTES, Some(&buf[..]))?;
                shared.needs_base = true;
            }
        }
        self.buffered = 0;
        out.drain(io)
    }
}

/// Writes to the area, gathered; neighbours in order become one write.
#[derive(Default)]
pub(crate) struct Gather {
    buf: AlignedBuf,
    used: usize,
    /// Destination, start in `buf`, length.
    writes: Vec<(u64, usize, usize)>,
}

impl Gather {
    /// Adds whole blocks; `None` adds zeroes.
    fn push(&mut self, io: &mut Io<'_>, dst: u64, len: u64, bytes: Option<&[u8]>) -> Result<()> {
        if self.buf.len() < GATHER {
            self.buf = AlignedBuf::zeroed(GATHER);
        }
        let mut done = 0;
        while done < len {
            if self.used == GATHER {
                self.drain(io)?;
            }
            let n = (len - done).min((GATHER - self.used) as u64) as usize;
            let place = &mut self.buf[self.used..self.used + n];
            match bytes {
                Some(b) => place.copy_from_slice(&b[done as usize..done as usize + n]),
                None => place.fill(0),
            }
            match self.writes.last_mut() {
                Some((d, _, l)) if *d + *l as u64 == dst + done && *l + n <= LONGEST => *l += n,
                _ => self.writes.push((dst + done, self.used, n)),
            }
            self.used += n;
            done += n as u64;
        }
        Ok(())
    }

    /// Writes everything gathered.
    pub fn drain(&mut self, io: &mut Io<'_>) -> Result<()> {
        let ops: Vec<WriteOp<'_>> = self
            .writes
            .iter()
            .map(|(dst, at, len)| WriteOp { offset: *dst, data: &self.buf[*at..*at + *len] })
            .collect();
        if !ops.is_empty() {
            io.report.writes += ops.len() as u64;
            io.report.write_bytes += self.used as u64;
            io.area.write_batch(io.origin, &ops)?;
        }
        self.writes.clear();
        self.used = 0;
        Ok(())
    }
}
