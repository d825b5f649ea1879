//! Ordered replay: one transaction after the other, staged data before metadata images.

use crate::sources::{Window, windows};
use crate::tags::{Piece, Source, blocks_of, resolve};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Result};
use siftfs_device::{AlignedBuf, AreaWriter, Origin, ReadOp, StagingReader, WriteOp};
use siftfs_log::LogKey;
use siftfs_wire::{CheckpointReport, Transaction};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bytes gathered before they are written to the area.
const BATCH: usize = 4 << 20;
/// Longest write of images.
const IMAGE_RUN: usize = 1 << 20;
/// Blocks merged from several tags that may wait for their last byte.
const MAX_SHARED: usize = 2048;
/// Pieces whose shared blocks are fetched together.
const SOME: usize = 1024;

/// Where replay reads and writes.
pub(crate) struct Io<'a> {
    pub area: &'a AreaWriter,
    pub lanes: &'a [StagingReader],
    pub lane_key: LogKey,
    pub origin: Origin,
    pub report: &'a mut CheckpointReport,
}

/// Buffers of the ordered replay, kept from one transaction to the next.
#[derive(Default)]
pub(crate) struct OrderedReplay {
    window: Window,
    out: Batch,
}

impl OrderedReplay {
    /// Applies one transaction to the area: zero tags, copy tags, images, in this order. The
    /// writes are volatile on return. Applying the same transaction again changes nothing.
    ///
    /// # Errors
    /// Corrupt if a staged record that the tags need does not verify; then nothing of that
    /// record was written, but earlier parts of the transaction may have been.
    pub fn apply(&mut self, io: &mut Io<'_>, txn: &Transaction, images: &[u8]) -> Result<()> {
        let pieces = resolve(txn);
        let mut plan = Plan::new(&pieces);
        count(io.report, txn, &pieces, &plan);
        let (zeros, copies): (Vec<Piece>, Vec<Piece>) =
            pieces.into_iter().partition(|p| p.source == Source::Zero);
        for some in zeros.chunks(SOME) {
            plan.read_bases(io, some.iter())?;
            for piece in some {
                plan.apply(io, &mut self.out, piece, None)?;
            }
            plan.spill(io, &mut self.out)?;
        }
        self.apply_copies(io, txn, copies, &mut plan)?;
        assert!(plan.shared.is_empty(), "a block still waits for bytes that no tag has");
        self.out.drain(io)?;
        write_images(io, txn, images)
    }

    fn apply_copies(
        &mut self,
        io: &mut Io<'_>,
        txn: &Transaction,
        copies: Vec<Piece>,
        plan: &mut Plan,
    ) -> Result<()> {
        let mut by_record: HashMap<u32, Vec<Piece>> = HashMap::new();
        let mut needed = vec![false; txn.staged.len()];
        for p in copies {
            if let Source::Staged { record, .. } = p.source {
                needed[record as usize] = true;
                by_record.entry(record).or_default().push(p);
            }
        }
        for which in windows(&txn.staged, &needed) {
            let (lanes, key) = (io.lanes, &io.lane_key);
            self.window.load(lanes, key, io.origin, &txn.staged, &which, io.report)?;
            let mut work: Vec<(Piece, usize)> = Vec::new();
            for (i, loaded) in self.window.records.iter().enumerate() {
                let pieces = by_record.remove(&loaded.record).unwrap_or_default();
                work.extend(pieces.into_iter().map(|p| (p, i)));
            }
            // Ascending destinations: neighbours from different records become one write.
            work.sort_by_key(|(p, _)| p.start);
            for some in work.chunks(SOME) {
                plan.read_bases(io, some.iter().map(|(p, _)| p))?;
                for (piece, i) in some {
                    let Source::Staged { offset, .. } = piece.source else { continue };
                    let bytes = self.window.bytes(&self.window.records[*i], offset, piece.len)?;
                    plan.apply(io, &mut self.out, piece, Some(bytes))?;
                }
                plan.spill(io, &mut self.out)?;
            }
        }
        Ok(())
    }
}

/// Writes the metadata images, runs of neighbouring blocks in one write.
fn write_images(io: &mut Io<'_>, txn: &Transaction, images: &[u8]) -> Result<()> {
    let mut ops: Vec<WriteOp<'_>> = Vec::new();
    let mut i = 0;
    while i < txn.images.len() {
        let from = i;
        i += 1;
        while i < txn.images.len()
            && txn.images[i] == txn.images[i - 1] + 1
            && (i - from) * BLOCK_SIZE < IMAGE_RUN
        {
            i += 1;
        }
        let data = &images[from * BLOCK_SIZE..i * BLOCK_SIZE];
        ops.push(WriteOp { offset: txn.images[from] * BLOCK_BYTES, data });
    }
    if ops.is_empty() {
        return Ok(());
    }
    io.report.writes += ops.len() as u64;
    io.report.write_bytes += images.len() as u64;
    io.area.write_batch(io.origin, &ops)
}

/// A transaction's share of the report.
fn count(report: &mut CheckpointReport, txn: &Transaction, pieces: &[Piece], plan: &Plan) {
    let images = txn.images.len() as u64;
    report.batch += 1;
    report.raw_images += images;
    report.surviving_images += images;
    report.raw_tags += (txn.zeros.len() + txn.copies.len()) as u64 + images;
    let tags: HashSet<u32> = pieces.iter().map(|p| p.tag).collect();
    report.surviving_tags += tags.len() as u64 + images;
    let zeros: u64 = txn.zeros.iter().map(|z| blocks_of(z.dst, u64::from(z.len))).sum();
    let copies: u64 = txn.copies.iter().map(|c| blocks_of(c.dst, u64::from(c.len))).sum();
    report.raw_blocks += zeros + copies + images;
    report.surviving_blocks += plan.whole + plan.shared.len() as u64 + images;
}

/// A block that no single piece covers.
struct Shared {
    /// Bytes that pieces still have to bring.
    missing: u32,
    /// The rest of its bytes must be read from the area before it is written.
    needs_base: bool,
    buf: Option<Box<[u8; BLOCK_SIZE]>>,
}

/// Which blocks of a transaction are merged from several pieces or with what the area holds.
struct Plan {
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
    fn new(pieces: &[Piece]) -> Self {
        let mut plan = Self { shared: BTreeMap::new(), whole: 0, buffered: 0 };
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

    /// Gives every shared block that `pieces` touch its buffer, read from the area where the
    /// tags do not cover it.
    fn read_bases<'p>(
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
    fn apply(
        &mut self,
        io: &mut Io<'_>,
        out: &mut Batch,
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
        out: &mut Batch,
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
    fn spill(&mut self, io: &mut Io<'_>, out: &mut Batch) -> Result<()> {
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
struct Batch {
    buf: AlignedBuf,
    used: usize,
    /// Destination, start in `buf`, length.
    writes: Vec<(u64, usize, usize)>,
}

impl Batch {
    /// Adds whole blocks; `None` adds zeroes.
    fn push(&mut self, io: &mut Io<'_>, dst: u64, len: u64, bytes: Option<&[u8]>) -> Result<()> {
        if self.buf.len() < BATCH {
            self.buf = AlignedBuf::zeroed(BATCH);
        }
        let mut done = 0;
        while done < len {
            if self.used == BATCH {
                self.drain(io)?;
            }
            let n = (len - done).min((BATCH - self.used) as u64) as usize;
            let place = &mut self.buf[self.used..self.used + n];
            match bytes {
                Some(b) => place.copy_from_slice(&b[done as usize..done as usize + n]),
                None => place.fill(0),
            }
            match self.writes.last_mut() {
                Some((d, _, l)) if *d + *l as u64 == dst + done => *l += n,
                _ => self.writes.push((dst + done, self.used, n)),
            }
            self.used += n;
            done += n as u64;
        }
        Ok(())
    }

    /// Writes everything gathered.
    fn drain(&mut self, io: &mut Io<'_>) -> Result<()> {
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
