//! Bytes of pages that are newer than the area's: found in the overlay under the state lock, read
//! from the lanes without it (rule R11), and checked against the overlay again before the pages are
//! used.

use crate::state::Readers;
use crate::state::tree::overlay::{Overlay, Part, Source};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Result, SharedBlock};
use siftfs_device::{AlignedBuf, Origin, ReadOp, StagingReader};

/// Bytes of a lane between two pieces that are read along with them, as a record's head is.
const GAP: u64 = 16 << 10;
/// Bytes of one read of a lane at most; longer pieces are cut.
const READ: u64 = 256 << 10;
/// Bytes read from a lane at a time, so that memory is bounded however small the pieces are.
const ROUND: u64 = 2 << 20;

/// What the overlay has of bytes `[start, end)` of the file.
pub fn parts(overlay: &Overlay, start: u64, end: u64) -> Vec<Part> {
    overlay.overlapping(start, end).collect()
}

/// Those of `parts`, which are in order, that lie in the page at byte `start`, cut to it.
pub fn of_page(parts: &[Part], start: u64) -> impl Iterator<Item = Part> + '_ {
    let end = start + BLOCK_BYTES;
    let first = parts.partition_point(|p| p.end <= start);
    let inside = parts[first..].iter().take_while(move |p| p.start < end);
    inside.map(move |p| {
        let (from, to) = (p.start.max(start), p.end.min(end));
        Part { start: from, end: to, source: p.source.advanced(from - p.start) }
    })
}

/// Bytes of a lane that go into the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    lane: usize,
    /// Byte offset in the lane's region.
    offset: u64,
    /// Bytes.
    len: u64,
    /// Byte in the pages.
    to: u64,
}

/// Pieces that one read brings, and the whole blocks of the lane that hold them.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    start: u64,
    end: u64,
    pieces: Vec<Piece>,
}

/// Lays `parts` over `pages`, the first of which is at byte `base` of the file. Call without the
/// state lock.
pub fn lay_over(
    parts: &[Part],
    base: u64,
    readers: &Readers,
    buf: &mut AlignedBuf,
    pages: &mut [SharedBlock],
) -> Result<()> {
    let lens: Vec<u64> = readers.lanes.iter().map(|lane| lane.len()).collect();
    let mut pieces = Vec::new();
    for Part { start, end, source } in parts {
        match source {
            Source::Zero => put(pages, start - base, end - start, |part, _| part.fill(0)),
            Source::Staged { record, offset } => {
                let lane = usize::from(record.lane.0);
                let at = record.pos + u64::from(record.data_start) + u64::from(*offset);
                let piece =
                    Piece { lane, offset: at % lens[lane], len: end - start, to: start - base };
                cut(piece, &mut pieces);
            }
        }
    }
    pieces.sort_unstable();
    for of_lane in pieces.chunk_by(|a, b| a.lane == b.lane) {
        let runs = runs(of_lane);
        let mut rest = &runs[..];
        while !rest.is_empty() {
            let (round, more) = rest.split_at(round_of(rest));
            read_round(&readers.lanes[of_lane[0].lane], round, buf, pages)?;
            rest = more;
        }
    }
    Ok(())
}

/// `piece` in pieces that are read at once.
fn cut(mut piece: Piece, out: &mut Vec<Piece>) {
    while piece.len > READ {
        out.push(Piece { len: READ, ..piece });
        piece.offset += READ;
        piece.to += READ;
        piece.len -= READ;
    }
    out.push(piece);
}

/// Pieces of one lane, in order, joined to reads where little lies between them.
fn runs(pieces: &[Piece]) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::new();
    for piece in pieces {
        let start = piece.offset / BLOCK_BYTES * BLOCK_BYTES;
        let end = (piece.offset + piece.len).next_multiple_of(BLOCK_BYTES);
        match out.last_mut() {
            Some(run) if start <= run.end + GAP && end.max(run.end) - run.start <= READ => {
                run.end = run.end.max(end);
                run.pieces.push(*piece);
            }
            _ => out.push(Run { start, end, pieces: vec![*piece] }),
        }
    }
    out
}

/// How many of the runs are read together: one at least.
fn round_of(runs: &[Run]) -> usize {
    let mut bytes = 0;
    let fit = runs.iter().take_while(|run| {
        bytes += run.end - run.start;
        bytes <= ROUND
    });
    fit.count().max(1)
}

fn read_round(
    lane: &StagingReader,
    runs: &[Run],
    buf: &mut AlignedBuf,
    pages: &mut [SharedBlock],
) -> Result<()> {
    let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
    if (buf.len() as u64) < bytes {
        buf.reuse(bytes as usize);
    }
    let mut ops = Vec::with_capacity(runs.len());
    let mut rest = &mut buf[..];
    for run in runs {
        let (piece, tail) = rest.split_at_mut((run.end - run.start) as usize);
        ops.push(ReadOp { offset: run.start, buf: piece });
        rest = tail;
    }
    lane.read_batch(Origin::Foreground, &mut ops)?;
    for (run, op) in runs.iter().zip(&ops) {
        for piece in &run.pieces {
            let from = (piece.offset - run.start) as usize;
            put(pages, piece.to, piece.len, |part, done| {
                part.copy_from_slice(&op.buf[from + done..from + done + part.len()]);
            });
        }
    }
    Ok(())
}

/// Calls `fill` for what `len` bytes from `to` on are of each page, with how many came before.
fn put(pages: &mut [SharedBlock], to: u64, len: u64, mut fill: impl FnMut(&mut [u8], usize)) {
    let (mut at, end) = (to as usize, (to + len) as usize);
    while at < end {
        let (page, start) = (at / BLOCK_SIZE, at % BLOCK_SIZE);
        let take = (end - at).min(BLOCK_SIZE - start);
        fill(&mut pages[page].make_mut()[start..start + take], at - to as usize);
        at += take;
    }
}

#[cfg(test)]
#[path = "staged_reads_tests.rs"]
mod tests;
