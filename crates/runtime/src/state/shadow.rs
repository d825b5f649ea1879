//! Bytes that were written to a file and are not the file's yet: those of a section, or of a
//! compound.

use crate::state::costs;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Bytes, RangeSet, SharedBlock};
use siftfs_proto::WriteData;
use std::collections::BTreeMap;

/// Bytes beside a file.
#[derive(Default)]
pub struct Shadow {
    written: RangeSet<Bytes>,
    /// The pages of `written`; what was not written of them says nothing.
    pages: BTreeMap<u64, SharedBlock>,
}

impl Shadow {
    /// The ranges that were written.
    pub fn written(&self) -> &RangeSet<Bytes> {
        &self.written
    }

    /// Number of pages that it holds.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Number of pages that it would hold more if bytes `[start, end)` were written.
    pub fn more_pages(&self, start: u64, end: u64) -> u64 {
        let (first, last) = (start / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let there = self.pages.range(first..last.max(first)).count() as u64;
        (last.max(first) - first) - there
    }

    /// Memory in bytes, about.
    pub fn bytes(&self) -> u64 {
        (self.pages.len() * (BLOCK_SIZE + costs::PAGE)) as u64
            + self.written.ranges() as u64 * costs::RANGE
    }

    /// Bytes `[start, end)`, which were written, page by page: where each piece begins in the file,
    /// its bytes, and their page.
    pub fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &[u8], &SharedBlock)> {
        (start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).map(move |index| {
            let page = self.pages.get(&index).expect("what was written has its page");
            let base = index * BLOCK_BYTES;
            let (from, to) = (start.max(base), end.min(base + BLOCK_BYTES));
            (from, &page[(from - base) as usize..(to - base) as usize], page)
        })
    }

    /// Lays what was written over `out`, which holds the file's bytes from `offset` on.
    pub fn lay_over(&self, offset: u64, out: &mut [u8]) {
        let end = offset + out.len() as u64;
        for (s, e) in self.written.overlapping(offset, end) {
            for (at, bytes, _) in self.pieces(s, e) {
                let from = (at - offset) as usize;
                out[from..from + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    /// Writes; whole blocks are given at a block's begin.
    pub fn put(&mut self, offset: u64, data: &WriteData) {
        match data {
            WriteData::Blocks(blocks) => {
                let pages = (offset / BLOCK_BYTES..).zip(blocks.iter().cloned());
                self.pages.extend(pages);
                self.written.insert(offset, offset + data.len() as u64);
            }
            WriteData::Bytes(bytes) => self.put_bytes(offset, bytes),
        }
    }

    /// Writes bytes, at least one.
    pub fn put_bytes(&mut self, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let start = (at % BLOCK_BYTES) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(BLOCK_SIZE - start));
            match <&[u8; BLOCK_SIZE]>::try_from(piece) {
                Ok(whole) => {
                    self.pages.insert(at / BLOCK_BYTES, SharedBlock::from(*whole));
                }
                Err(_) => {
                    let page = self.pages.entry(at / BLOCK_BYTES);
                    let page = page.or_insert_with(SharedBlock::zeroed).make_mut();
                    page[start..start + piece.len()].copy_from_slice(piece);
                }
            }
            at += piece.len() as u64;
            rest = tail;
        }
        self.written.insert(offset, offset + bytes.len() as u64);
    }

    /// The file ends at `size`: what was written behind it is forgotten.
    pub fn cut(&mut self, size: u64) {
        self.written.remove(size, u64::MAX);
        drop(self.pages.split_off(&size.div_ceil(BLOCK_BYTES)));
    }
}

#[cfg(test)]
#[path = "shadow_tests.rs"]
mod tests;
