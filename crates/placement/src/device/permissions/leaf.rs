//! The entries of 512 blocks.

use super::entry::{Entry, Owner};
use super::spill::Saved;
use std::ops::Range;

/// Blocks of a leaf.
pub(super) const LEAF_BLOCKS: usize = 512;

/// The same, to compute with numbers of blocks.
pub(super) const LEAF_SPAN: u64 = LEAF_BLOCKS as u64;

pub(super) type Entries = [Entry; LEAF_BLOCKS];

/// A leaf as the tree has it.
#[derive(Debug)]
pub(super) enum Leaf {
    /// All of its blocks have this entry; nobody has them if it is [`Entry::FREE`].
    Same(Entry),
    Hot(Box<Hot>),
    Spilled(Saved),
}

impl Leaf {
    pub const FREE: Self = Self::Same(Entry::FREE);

    /// Has nobody any of its blocks?
    pub fn is_free(&self) -> bool {
        matches!(self, Self::Same(entry) if *entry == Entry::FREE)
    }
}

/// A leaf of unlike blocks that is in memory.
#[derive(Debug)]
pub(super) struct Hot {
    pub entries: Entries,
    /// Its place in the clock.
    pub frame: u32,
    /// Its place in the scratch file.
    pub slot: u32,
    /// The slot has these very entries.
    pub saved: Option<Saved>,
}

/// What a leaf says, wherever it lies.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Same(Entry),
    Mixed(Box<Entries>),
}

impl Content {
    pub fn is_mixed(&self) -> bool {
        matches!(self, Self::Mixed(_))
    }

    /// The entry of the block at this place of the leaf.
    pub fn entry(&self, at: usize) -> Entry {
        match self {
            Self::Same(entry) => *entry,
            Self::Mixed(entries) => entries.get(at).copied().unwrap_or(Entry::FREE),
        }
    }

    /// With `change` made to each entry of these parts, in a leaf of which the first `len` blocks
    /// are in the area.
    pub fn edited(
        self,
        parts: impl Iterator<Item = Range<usize>>,
        len: usize,
        change: impl Fn(Entry) -> Entry,
    ) -> Self {
        let mut parts = parts.peekable();
        if let (Self::Same(entry), Some(first)) = (&self, parts.peek())
            && (change(*entry) == *entry || *first == (0..len))
        {
            return Self::Same(change(*entry));
        }
        let mut entries = match self {
            Self::Same(entry) => Box::new([entry; LEAF_BLOCKS]),
            Self::Mixed(entries) => entries,
        };
        for part in parts {
            entries.get_mut(part).into_iter().flatten().for_each(|e| *e = change(*e));
        }
        let first = entries.first().copied().unwrap_or(Entry::FREE);
        match entries.iter().take(len).all(|entry| *entry == first) {
            true => Self::Same(first),
            false => Self::Mixed(entries),
        }
    }
}

/// Collects what a check finds.
pub(super) struct Finding {
    pub owner: Owner,
    /// Blocks that are the owner's and were not written, in order; none meets another.
    pub unwritten: Vec<Range<u64>>,
    /// What has to be read is not looked at, and said here.
    pub at_once: bool,
    pub missed: bool,
}

impl Finding {
    /// Nothing is found yet.
    pub fn of(owner: Owner, at_once: bool) -> Self {
        Self { owner, unwritten: Vec::new(), at_once, missed: false }
    }

    /// Are these blocks the owner's, which all have the entry?
    pub fn same(&mut self, entry: Entry, blocks: Range<u64>) -> bool {
        if !entry.is_of(self.owner) {
            return false;
        }
        if !entry.is_written() {
            self.push(blocks);
        }
        true
    }

    /// Are these blocks the owner's, which begin at this one?
    pub fn each(&mut self, entries: &[Entry], from: u64) -> bool {
        let wanted = Entry::new(self.owner, true);
        if entries.iter().all(|entry| *entry == wanted) {
            return true;
        }
        (from..).zip(entries).all(|(block, entry)| self.same(*entry, block..block + 1))
    }

    fn push(&mut self, blocks: Range<u64>) {
        match self.unwritten.last_mut() {
            Some(last) if last.end == blocks.start => last.end = blocks.end,
            _ => self.unwritten.push(blocks),
        }
    }
}

/// The places that blocks of the area have in a leaf, without those that lie in others.
pub(super) fn part_of(number: u64, blocks: &Range<u64>) -> Range<usize> {
    let first = number.saturating_mul(LEAF_SPAN);
    let place = |block: u64| {
        let within = block.saturating_sub(first).min(LEAF_SPAN);
        usize::try_from(within).unwrap_or(LEAF_BLOCKS)
    };
    place(blocks.start)..place(blocks.end)
}

#[cfg(test)]
#[path = "leaf_tests.rs"]
mod tests;
