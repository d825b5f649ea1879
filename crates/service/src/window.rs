//! Reading what a window's pieces need from lanes and journal, verified (rules R11, R13).

use crate::batch::{Batch, Place, Repeated};
use crate::blocks::{Io, JOURNAL, LONGEST_WRITE};
use crate::memory::Memory;
use crate::piece::{Origin, Piece};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error, Result, corrupt};
use siftfs_device::{AlignedBuf, ReadOp};
use siftfs_log::StagedRef;
use siftfs_log::{DATA_CHUNK, DataSums, EpochKey, LogKey, RecordHead, RecordHeader};
use std::ops::Range;

/// A record no longer than this is read whole.
const SHORT: u64 = 64 << 10;
/// Chunks read although nothing wants them, to make one read of two.
const GAP: u32 = 4;
/// Longest single read, so that several are in flight.
const LONGEST: u64 = 2 << 20;
/// Most pieces of one window, whose bookkeeping is bounded too: a usual window of single blocks.
const MAX_PIECES: usize = 1 << 14;
/// Heads read together, in bytes, for records of which only a part is wanted.
const HEADS: u64 = 1 << 20;
/// Writes of at least this part of a short window are worth no longer one: seeking is little of
/// what they cost.
const LONG_WRITES: u64 = 32;

/// A piece and, if its bytes are staged, where they are in the window's buffer.
pub(crate) struct Work {
    pub piece: Piece,
    at: usize,
}

/// What is read of one record.
struct Fetch {
    record: u32,
    /// The record's pieces, ascending by their place in it.
    work: Range<usize>,
    /// Runs of chunks of its data section; all of the record if there is none.
    parts: Vec<Range<u32>>,
    /// Where the record's bytes go in the buffer, and how many.
    at: usize,
    bytes: u64,
}

/// A read: lane or journal, byte offset in its region, length.
struct Segment {
    lane: usize,
    offset: u64,
    len: u64,
}

/// Pieces that are read together, and the buffer for it, which is kept for the next window.
#[derive(Default)]
pub(crate) struct Window {
    buf: Memory,
    heads: AlignedBuf,
    pub work: Vec<Work>,
    fetches: Vec<Fetch>,
    fetched: usize,
    /// Batch pieces covered.
    pieces: usize,
    bytes: u64,
    /// Bytes to come that are not worth a long window.
    ahead: u64,
}

impl Window {
    /// Opens a window over the batch's next pieces. It covers at most `limit` bytes of staged
    /// records, unless a single record is longer; and `short` bytes where a longer window would not
    /// save writes. Reads nothing yet.
    pub fn plan(&mut self, batch: &mut Batch, limit: u64, short: u64) {
        self.close();
        if self.ahead == 0 {
            self.cover(batch, limit);
            self.ahead = if self.bytes <= short || self.orders(short) { 0 } else { self.bytes };
        }
        if self.ahead > 0 {
            self.close();
            self.cover(batch, limit.min(short));
            self.ahead = self.ahead.saturating_sub(self.bytes);
        }
        let place = |f: &Fetch| match batch.record(f.record) {
            Place::Lane(s) => (usize::from(s.lane.0), s.pos),
            Place::Journal(r) => (JOURNAL, r.pos),
        };
        self.fetches.sort_unstable_by_key(place);
        let mut at = 0;
        for f in &mut self.fetches {
            f.at = at;
            at += f.bytes as usize;
        }
        if self.buf.len() < at {
            // Never two of them at a time. What the window may grow to is taken at once; pages are
            // not, before they are used.
            self.buf = Memory::default();
            self.buf = Memory::new(at.max(usize::try_from(limit).unwrap_or(0)));
        }
    }

    /// Takes the batch's next pieces until the window is full.
    fn cover(&mut self, batch: &mut Batch, limit: u64) {
        loop {
            let from = batch.cursor + self.pieces;
            let to = batch.sort_run(from);
            if from == to || !self.take(batch, from..to, limit) {
                break;
            }
        }
    }

    /// Does it bring neighbours together that windows of `short` bytes would write apart?
    ///
    /// Memory that is used again at once is still in the processor's cache, and little of it has to
    /// be found.
    fn orders(&self, short: u64) -> bool {
        let (mut parts, mut from, mut bytes) = (0, 0, 0);
        for f in &self.fetches {
            if bytes > 0 && bytes + f.bytes > short {
                parts += writes(&self.work[from..f.work.start]);
                (from, bytes) = (f.work.start, 0);
            }
            bytes += f.bytes;
        }
        parts += writes(&self.work[from..]);
        let whole = writes(&self.work);
        parts > whole + whole / 16 || self.bytes < parts * (short / LONG_WRITES)
    }

    /// Takes pieces of one transaction, sorted by source, record by record; `false` if the window
    /// is full.
    fn take(&mut self, batch: &Batch, run: Range<usize>, limit: u64) -> bool {
        let mut rest = &batch.pieces[run];
        while let Some(first) = rest.first() {
            let record = record_of(first);
            let same = rest.iter().take_while(|p| record.is_some() && record_of(p) == record);
            let (group, more) = rest.split_at(same.take(MAX_PIECES).count().max(1));
            let at = self.work.len();
            let fetch = record.map(|record| {
                let work = at..at + group.len();
                Fetch::new(record, work, group, batch.record(record))
            });
            let bytes = fetch.as_ref().map_or(0, |f| f.bytes);
            let full = self.bytes + bytes > limit || at + group.len() > MAX_PIECES;
            if full && at > 0 {
                return false;
            }
            self.work.extend(group.iter().map(|p| Work { piece: *p, at: 0 }));
            self.fetches.extend(fetch);
            self.bytes += bytes;
            self.pieces += group.len();
            rest = more;
        }
        true
    }

    /// Forgets the pieces, keeps the buffers.
    pub fn close(&mut self) {
        self.work.clear();
        self.fetches.clear();
        (self.fetched, self.pieces, self.bytes) = (0, 0, 0);
    }

    /// Gives the buffers back.
    pub fn release(&mut self) {
        assert!(self.work.is_empty(), "an open window needs its buffer");
        self.buf = Memory::default();
    }

    /// Does it cover any piece?
    pub fn is_open(&self) -> bool {
        !self.work.is_empty()
    }

    /// Has everything been read?
    pub fn is_loaded(&self) -> bool {
        self.fetched == self.fetches.len()
    }

    /// Batch pieces covered.
    pub fn pieces(&self) -> usize {
        self.pieces
    }

    /// Bytes of staged records in it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads and verifies more, about `limit` bytes.
    pub fn load(&mut self, io: &mut Io<'_>, batch: &Batch, limit: u64) -> Result<()> {
        let from = self.fetched;
        let (mut to, mut bytes, mut heads) = (from, 0, 0);
        while to < self.fetches.len() && bytes < limit && heads < HEADS {
            let f = &self.fetches[to];
            bytes += f.bytes;
            heads += f.partly(batch).map_or(0, head_guess);
            to += 1;
        }
        let heads = self.read_heads(io, batch, from..to)?;
        let mut segments = Vec::new();
        for (f, head) in self.fetches[from..to].iter().zip(&heads) {
            f.segments(io, batch.record(f.record), head.as_ref(), &mut segments)?;
        }
        let at = self.fetches.get(from).map_or(0, |f| f.at);
        read(io, &segments, &mut self.buf[at..])?;
        for (i, head) in (from..to).zip(heads) {
            self.verify(io.lane_key, batch, i, head)?;
        }
        self.fetched = to;
        Ok(())
    }

    /// Reads and checks the heads of the records that are not read whole.
    fn read_heads(
        &mut self,
        io: &mut Io<'_>,
        batch: &Batch,
        which: Range<usize>,
    ) -> Result<Vec<Option<RecordHead>>> {
        let fetches = &self.fetches[which];
        let partly = |f: &Fetch| f.partly(batch);
        let segments: Vec<Segment> =
            fetches.iter().filter_map(partly).map(|s| segment(io, s, 0, head_guess(s))).collect();
        let total: u64 = segments.iter().map(|s| s.len).sum();
        if (self.heads.len() as u64) < total {
            self.heads = AlignedBuf::default();
            self.heads = AlignedBuf::zeroed(total as usize);
        }
        read(io, &segments, &mut self.heads)?;
        let (mut heads, mut at) = (Vec::new(), 0);
        for f in fetches {
            let Some(s) = partly(f) else {
                heads.push(None);
                continue;
            };
            let len = head_guess(s) as usize;
            let head = decode_head(io, s, &self.heads[at..at + len])?;
            heads.push(Some(head));
            at += len;
        }
        Ok(heads)
    }

    /// Verifies what was read of a record and gives its pieces their places.
    fn verify(
        &mut self,
        lane_key: EpochKey,
        batch: &Batch,
        i: usize,
        head: Option<RecordHead>,
    ) -> Result<()> {
        let f = &self.fetches[i];
        let from = batch.record(f.record);
        let bytes = &self.buf[f.at..f.at + f.bytes as usize];
        let (data_len, places) = match (from, head) {
            (Place::Journal(r), _) => (r.sums.data_len(), verify_parts(&r.sums, &f.parts, bytes)),
            (Place::Lane(_), Some(head)) => {
                (head.header.layout.data_len, verify_parts(head.sums(), &f.parts, bytes))
            }
            (Place::Lane(s), None) => {
                let key = lane_key.lane(s.lane);
                let header = peek(s, &key, bytes)?;
                let head = checked_head(s, &key, header, bytes)?;
                let l = header.layout;
                let data = bytes.get(l.data_offset as usize..);
                let data = data.and_then(|d| d.get(..l.data_len as usize));
                let whole = data.is_some_and(|d| head.verify_data(d));
                (l.data_len, whole.then(|| vec![(0..l.data_len, l.data_offset as usize)]))
            }
        };
        let places = places.ok_or_else(|| corrupt(name_of(from), "data checksum mismatch"))?;
        for work in &mut self.work[f.work.clone()] {
            let Origin::Staged { offset, .. } = work.piece.source.origin() else { continue };
            let end = u64::from(offset) + u64::from(work.piece.len);
            let holds = |r: &Range<u32>| r.start <= offset && end <= u64::from(r.end);
            let place = places.iter().rev().find(|(r, _)| holds(r));
            let (run, at) =
                place.filter(|_| end <= u64::from(data_len)).ok_or_else(|| outside(from))?;
            work.at = f.at + at + (offset - run.start) as usize;
        }
        Ok(())
    }

    /// A loaded piece's bytes; `None` for zeroes.
    pub fn bytes_of<'a>(&'a self, batch: &'a Batch, work: &Work) -> Option<&'a [u8]> {
        let len = work.piece.len as usize;
        match work.piece.source.origin() {
            Origin::Zero { .. } => None,
            Origin::Image { slot, offset } => {
                let at = offset as usize;
                Some(&batch.images.data(slot)[at..at + len])
            }
            Origin::Staged { .. } => Some(&self.buf[work.at..work.at + len]),
        }
    }

    /// The memory that staged bytes lie in; it does not change until the window is closed.
    pub fn held(&self) -> &[u8] {
        &self.buf
    }

    /// Puts the pieces in the order of their destinations; everything is loaded.
    pub fn sort_by_destination(&mut self) {
        assert!(self.is_loaded(), "fetches name pieces by their place");
        self.work.sort_unstable_by_key(|w| w.piece.start);
    }
}

/// Writes that these pieces make in the order of their destinations.
fn writes(work: &[Work]) -> u64 {
    let mut ranges: Vec<(u64, u64)> = work.iter().map(|w| (w.piece.start, w.piece.end())).collect();
    ranges.sort_unstable();
    let (mut count, mut left, mut end) = (0, 0, None);
    for (from, to) in ranges {
        let len = to - from;
        if end != Some(from) {
            left = 0;
        }
        let more = len.saturating_sub(left).div_ceil(LONGEST_WRITE);
        count += more;
        left = left + more * LONGEST_WRITE - len;
        end = Some(to);
    }
    count
}

/// The record that a piece's bytes are staged in.
fn record_of(p: &Piece) -> Option<u32> {
    match p.source.origin() {
        Origin::Staged { record, .. } => Some(record),
        _ => None,
    }
}

impl Fetch {
    /// Decides what to read of a record: the chunks that `group` wants, or all if that is half
    /// of it.
    fn new(record: u32, work: Range<usize>, group: &[Piece], place: &Place) -> Self {
        let mut parts: Vec<Range<u32>> = Vec::new();
        for p in group {
            let Origin::Staged { offset, .. } = p.source.origin() else { continue };
            let end = u64::from(offset) + u64::from(p.len);
            let from = offset / DATA_CHUNK as u32;
            // A staged length has 32 bits, and tags end inside it.
            let to = end.div_ceil(DATA_CHUNK as u64) as u32;
            match parts.last_mut() {
                Some(p) if from <= p.end + GAP => p.end = p.end.max(to),
                _ => parts.push(from..to),
            }
        }
        let chunks: u64 = parts.iter().map(|p| u64::from(p.end - p.start)).sum();
        let mut bytes = chunks * DATA_CHUNK as u64;
        match place {
            Place::Lane(s) if u64::from(s.len) <= SHORT || bytes >= u64::from(s.len) / 2 => {
                parts.clear();
                bytes = s.len.into();
            }
            Place::Journal(r) if bytes >= u64::from(r.sums.data_len()) / 2 => {
                let all = r.sums.data_len().div_ceil(DATA_CHUNK as u32);
                parts.clear();
                parts.push(0..all);
                bytes = u64::from(all) * DATA_CHUNK as u64;
            }
            _ => {}
        }
        Self { record, work, parts, at: 0, bytes }
    }

    /// The staged record, if only a part of it is wanted: its head is read first.
    fn partly<'b>(&self, batch: &'b Batch) -> Option<&'b StagedRef> {
        match batch.record(self.record) {
            Place::Lane(s) if !self.parts.is_empty() => Some(s),
            _ => None,
        }
    }

    /// The reads; together they fill exactly the fetch's part of the buffer.
    fn segments(
        &self,
        io: &Io<'_>,
        place: &Place,
        head: Option<&RecordHead>,
        all: &mut Vec<Segment>,
    ) -> Result<()> {
        let s = match place {
            Place::Journal(r) => {
                all.extend(self.parts.iter().map(|p| repeated(io, r, p)));
                return Ok(());
            }
            Place::Lane(s) => s,
        };
        let Some(head) = head else {
            all.push(segment(io, s, 0, s.len.into()));
            return Ok(());
        };
        let data = u64::from(head.header.layout.data_offset);
        for p in &self.parts {
            let from = data + u64::from(p.start) * DATA_CHUNK as u64;
            let to = data + u64::from(p.end) * DATA_CHUNK as u64;
            // Data ends at the record's last block, whose padding is read along.
            if to > u64::from(s.len) {
                return Err(outside(place));
            }
            all.push(segment(io, s, from, to - from));
        }
        Ok(())
    }
}

/// Verifies runs of chunks of a data section; where each lies in `bytes`, or `None` if they are
/// damaged.
fn verify_parts(
    sums: &DataSums,
    parts: &[Range<u32>],
    bytes: &[u8],
) -> Option<Vec<(Range<u32>, usize)>> {
    let (mut places, mut at) = (Vec::new(), 0);
    for p in parts {
        let (from, to) = (p.start * DATA_CHUNK as u32, p.end * DATA_CHUNK as u32);
        let end = to.min(sums.data_len());
        let part = end.checked_sub(from).and_then(|len| bytes.get(at..at + len as usize))?;
        if !sums.verify_part(from as usize, part) {
            return None;
        }
        places.push((from..end, at));
        at += (to - from) as usize;
    }
    Some(places)
}

/// The read of a run of chunks in the journal. A data section is filled up to whole blocks.
fn repeated(io: &Io<'_>, r: &Repeated, chunks: &Range<u32>) -> Segment {
    let from = u64::from(chunks.start) * DATA_CHUNK as u64;
    let len = u64::from(chunks.end - chunks.start) * DATA_CHUNK as u64;
    Segment { lane: JOURNAL, offset: r.pos % io.journal.len() + from, len }
}

fn segment(io: &Io<'_>, s: &StagedRef, from: u64, len: u64) -> Segment {
    let lane = usize::from(s.lane.0);
    Segment { lane, offset: s.pos % io.lanes[lane].len() + from, len }
}

/// Reads the segments one behind the other into `buf`, neighbours in one read, all reads of a
/// lane in flight together.
fn read(io: &mut Io<'_>, segments: &[Segment], buf: &mut [u8]) -> Result<()> {
    let mut rest = buf;
    let mut i = 0;
    while let Some(first) = segments.get(i) {
        let mut ops: Vec<ReadOp<'_>> = Vec::new();
        while let Some(s) = segments.get(i).filter(|s| s.lane == first.lane) {
            let mut len = s.len;
            i += 1;
            while let Some(next) = segments.get(i) {
                let goes_on = next.lane == s.lane && next.offset == s.offset + len;
                if !goes_on || len + next.len > LONGEST {
                    break;
                }
                len += next.len;
                i += 1;
            }
            let (buf, after) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = after;
            ops.push(ReadOp { offset: s.offset, buf });
            io.report.reads += 1;
            io.report.read_bytes += len;
        }
        io.region(first.lane).read_batch(io.origin, &mut ops)?;
    }
    Ok(())
}

fn name(s: &StagedRef) -> String {
    format!("staged record {} in lane {} at position {}", s.lsn.0, s.lane.0, s.pos)
}

fn name_of(place: &Place) -> String {
    match place {
        Place::Lane(s) => name(s),
        Place::Journal(r) => format!("staged data that the journal repeats at position {}", r.pos),
    }
}

fn outside(place: &Place) -> Error {
    corrupt("copy tag", format!("outside the data of {}", name_of(place)))
}

fn peek(s: &StagedRef, key: &LogKey, bytes: &[u8]) -> Result<RecordHeader> {
    RecordHeader::peek(bytes, key, s.lane, s.pos, s.len.into()).map_err(|i| i.into_error(name(s)))
}

/// Bytes of a record that most likely hold its head: the items and checksums of many small writes
/// take a few blocks. The rest is read if that was not enough.
fn head_guess(s: &StagedRef) -> u64 {
    (BLOCK_BYTES + u64::from(s.len) / 64).next_multiple_of(BLOCK_BYTES).min(s.len.into())
}

/// A head of which the first `bytes` are there; more is read if they are too few.
fn decode_head(io: &mut Io<'_>, s: &StagedRef, bytes: &[u8]) -> Result<RecordHead> {
    let key = io.lane_key.lane(s.lane);
    let header = peek(s, &key, bytes)?;
    if header.head_len() <= bytes.len() {
        return checked_head(s, &key, header, bytes);
    }
    // Inside the record, which the journal's reference bounds.
    let len = header.head_len().next_multiple_of(BLOCK_SIZE).min(s.len as usize);
    let mut more = AlignedBuf::zeroed(len);
    let one = segment(io, s, 0, len as u64);
    read(io, &[one], &mut more)?;
    checked_head(s, &key, header, &more)
}

/// The head, verified by its checksum and against the journal's reference.
fn checked_head(
    s: &StagedRef,
    key: &LogKey,
    header: RecordHeader,
    bytes: &[u8],
) -> Result<RecordHead> {
    let head = RecordHead::decode(header, key, bytes).map_err(|e| e.into_error(name(s)))?;
    if header.crc != s.crc || header.params.lsn != s.lsn || header.layout.len != s.len {
        return Err(corrupt(name(s), "not the record that was journaled"));
    }
    Ok(head)
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
