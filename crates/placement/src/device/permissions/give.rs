//! Giving blocks to an owner: all that is asked, or nothing.

use super::books::Books;
use super::entry::{Entry, Owner};
use super::leaf::{Content, LEAF_SPAN, part_of};
use super::owners::{Leaves, RUN_BYTES, leaves_of, numbers};
use super::store::Store;
use siftfs_base::{Blocks, Error, RangeSet, Result};
use std::iter::once;
use std::ops::Range;

/// What is to become of blocks, which are the area's.
pub(super) struct Wish {
    pub owner: Owner,
    pub blocks: RangeSet<Blocks>,
    /// Those of them that were not written. What was written of these stays so.
    pub fresh: RangeSet<Blocks>,
    /// Those that nobody has are given to the owner, too. Otherwise it has them all.
    pub free: bool,
}

/// A wish that may be carried out: nothing that is another's stands against it.
pub(super) struct Gift<'a> {
    wish: &'a Wish,
    leaves: RangeSet<Leaves>,
    /// What the owner had of it, in order.
    had: Vec<(Range<u64>, Entry)>,
    /// How many leaves become mixed.
    mixed: usize,
}

impl<'a> Gift<'a> {
    /// Looks at all that would change, and changes nothing.
    ///
    /// # Errors
    /// Refused: a block is another owner's, or free though it must not be. I/O or corrupt: a leaf
    /// cannot be read.
    pub fn plan(store: &Store, wish: &'a Wish) -> Result<Self> {
        let leaves = leaves_of(&wish.blocks);
        let (mut had, mut mixed) = (Vec::new(), 0);
        for number in numbers(&leaves) {
            let before = store.content(number)?;
            for (start, end) in within(&wish.blocks, number) {
                wish.look(&before, number, start..end, &mut had)?;
            }
            let was_mixed = before.is_mixed();
            let after = wish.make(store, number, before);
            mixed += usize::from(after.is_mixed() && !was_mixed);
        }
        Ok(Self { wish, leaves, had, mixed })
    }

    /// Bytes of the index that this takes, at most.
    pub fn index_bytes(&self, store: &Store) -> usize {
        let nodes = self.leaves.iter().map(|(from, to)| store.tree.missing(from..to));
        nodes.sum::<usize>() + self.leaves.ranges() * RUN_BYTES + self.mixed * 8
    }

    /// Does it, under the books under which it was planned.
    ///
    /// # Errors
    /// I/O or corrupt, from the scratch file. Nothing has changed then, but leaves may be lost in
    /// which it fails also while this is undone.
    pub fn carry_out(&self, store: &Store, books: &mut Books) -> Result<()> {
        store.reserve(&mut books.places, self.mixed)?;
        for number in numbers(&self.leaves) {
            let leaf = store.content(number).map(|leaf| self.wish.make(store, number, leaf));
            let put = leaf.and_then(|leaf| store.put(&mut books.places, number, leaf));
            if let Err(error) = put {
                self.undo(store, books, number);
                return Err(error);
            }
        }
        books.owners.touch(self.wish.owner, &self.leaves);
        Ok(())
    }

    /// Undoes what was done to the leaves before this one.
    fn undo(&self, store: &Store, books: &mut Books, end: u64) {
        for number in numbers(&self.leaves).take_while(|number| *number < end) {
            let before = store.content(number).map(|leaf| self.restored(store, number, leaf));
            let put = before.and_then(|leaf| store.put(&mut books.places, number, leaf));
            if let Err(error) = put {
                books.lose(store, number, &error);
            }
        }
    }

    fn restored(&self, store: &Store, number: u64, leaf: Content) -> Content {
        let len = store.len_of(number);
        let leaf = leaf.edited(self.wish.parts(number), len, |_| Entry::FREE);
        let (first, end) = (number * LEAF_SPAN, (number + 1) * LEAF_SPAN);
        let at = self.had.partition_point(|(blocks, _)| blocks.end <= first);
        let had = self.had.iter().skip(at).take_while(|(blocks, _)| blocks.start < end);
        had.fold(leaf, |leaf, (blocks, entry)| {
            leaf.edited(once(part_of(number, blocks)), len, |_| *entry)
        })
    }
}

impl Wish {
    /// Of no block yet.
    pub fn of(owner: Owner, free: bool) -> Self {
        let (blocks, fresh) = Default::default();
        Self { owner, blocks, fresh, free }
    }

    /// Looks at blocks of a leaf, and notes those that the owner has.
    fn look(
        &self,
        leaf: &Content,
        number: u64,
        blocks: Range<u64>,
        had: &mut Vec<(Range<u64>, Entry)>,
    ) -> Result<()> {
        let is_same = matches!(leaf, Content::Same(_));
        let step = if is_same { blocks.end - blocks.start } else { 1 };
        let mut block = blocks.start;
        while block < blocks.end {
            let part = block..block + step;
            let entry = leaf.entry(part_of(number, &part).start);
            match entry == Entry::FREE {
                true if self.free => {}
                false if entry.is_of(self.owner) => note(had, part, entry),
                _ => return Err(Error::Refused(format!("block {block} is not the owner's"))),
            }
            block += step;
        }
        Ok(())
    }

    /// What a leaf says when it has been carried out.
    fn make(&self, store: &Store, number: u64, leaf: Content) -> Content {
        let len = store.len_of(number);
        let given = |fresh: bool| {
            move |entry: Entry| {
                let was_written = entry.is_of(self.owner) && entry.is_written();
                Entry::new(self.owner, !fresh || was_written)
            }
        };
        let fresh = self.fresh_in(number);
        if fresh.is_empty() {
            return leaf.edited(self.parts(number), len, given(false));
        }
        let mut written = RangeSet::<Blocks>::new();
        within(&self.blocks, number).for_each(|(start, end)| written.insert(start, end));
        fresh.iter().for_each(|(start, end)| written.remove(start, end));
        let parts = |blocks: &RangeSet<Blocks>| -> Vec<Range<usize>> {
            blocks.iter().map(|(start, end)| part_of(number, &(start..end))).collect()
        };
        let leaf = leaf.edited(parts(&fresh).into_iter(), len, given(true));
        leaf.edited(parts(&written).into_iter(), len, given(false))
    }

    /// The blocks of a leaf that were not written.
    fn fresh_in(&self, number: u64) -> RangeSet<Blocks> {
        let mut fresh = RangeSet::new();
        within(&self.fresh, number).for_each(|(start, end)| fresh.insert(start, end));
        fresh
    }

    /// The parts of a leaf that this is about.
    fn parts(&self, number: u64) -> impl Iterator<Item = Range<usize>> {
        within(&self.blocks, number).map(move |(start, end)| part_of(number, &(start..end)))
    }
}

/// The ranges of a leaf's blocks that are in the set.
fn within(blocks: &RangeSet<Blocks>, number: u64) -> impl Iterator<Item = (u64, u64)> {
    blocks.overlapping(number * LEAF_SPAN, (number + 1) * LEAF_SPAN)
}

/// Adds blocks behind those that are noted.
fn note(had: &mut Vec<(Range<u64>, Entry)>, blocks: Range<u64>, entry: Entry) {
    match had.last_mut() {
        Some((last, same)) if last.end == blocks.start && *same == entry => last.end = blocks.end,
        _ => had.push((blocks, entry)),
    }
}
