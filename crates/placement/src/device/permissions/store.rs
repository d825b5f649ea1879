//! Leaves and where they lie: in the tree, in memory, in the scratch file.

use super::clock::{Clock, Used};
use super::leaf::{Content, Entries, Hot, LEAF_BLOCKS, LEAF_SPAN, Leaf};
use super::spill::{Saved, Slots, Spill};
use super::tree::Tree;
use siftfs_base::{Error, Result};

/// Bytes of a leaf in memory: itself, and what the allocator adds.
pub(super) const LEAF_BYTES: usize = size_of::<Hot>() + 16;

/// The same with its place in the clock, of which half may not be used yet.
pub(super) const HOT_BYTES: usize = LEAF_BYTES + 48;

/// The leaves, without what says which of them are where.
pub(super) struct Store {
    pub tree: Tree,
    pub used: Used,
    pub spill: Spill,
    /// Blocks of the area.
    pub blocks: u64,
}

/// Which leaves are where. It is part of the books: the methods that are given it are called by
/// one thread at a time.
#[derive(Default)]
pub(super) struct Places {
    pub clock: Clock,
    pub slots: Slots,
}

/// A leaf that goes from memory to the scratch file.
enum Leaving {
    Saved(Saved),
    Unsaved(u32, Box<Entries>),
}

impl Store {
    /// How many blocks of the leaf are in the area.
    pub fn len_of(&self, number: u64) -> usize {
        let rest = self.blocks.saturating_sub(number.saturating_mul(LEAF_SPAN));
        usize::try_from(rest).unwrap_or(LEAF_BLOCKS).min(LEAF_BLOCKS)
    }

    /// What a leaf says. Its place stays as it is.
    ///
    /// # Errors
    /// Those of [`Spill::read`].
    pub fn content(&self, number: u64) -> Result<Content> {
        self.tree.peek(number, |leaf| match leaf {
            Leaf::Same(entry) => Ok(Content::Same(*entry)),
            Leaf::Hot(hot) => Ok(Content::Mixed(Box::new(hot.entries))),
            Leaf::Spilled(saved) => self.spill.read(*saved).map(Content::Mixed),
        })
    }

    /// Changes what a leaf says. For one that becomes mixed a slot has been reserved.
    ///
    /// # Errors
    /// I/O, only if the content is mixed: another leaf could not leave memory. Nothing has changed
    /// then.
    pub fn put(&self, places: &mut Places, number: u64, content: Content) -> Result<()> {
        let entries = match content {
            Content::Same(entry) => {
                self.put_leaf(places, number, Leaf::Same(entry));
                return Ok(());
            }
            Content::Mixed(entries) => entries,
        };
        let in_place = self.tree.change(number, |hot| {
            hot.entries = *entries;
            hot.saved = None;
            self.used.mark(hot.frame);
        });
        if in_place {
            return Ok(());
        }
        let frame = self.frame(places, number)?;
        let slot = self.tree.peek(number, |leaf| match leaf {
            Leaf::Spilled(saved) => Some(saved.slot),
            _ => None,
        });
        let slot = slot.unwrap_or_else(|| places.slots.take());
        let hot = Hot { entries: *entries, frame, slot, saved: None };
        self.tree.replace(number, Leaf::Hot(Box::new(hot)));
        Ok(())
    }

    /// All blocks of a leaf get the same entry; what it had besides is free.
    fn put_leaf(&self, places: &mut Places, number: u64, leaf: Leaf) {
        match self.tree.replace(number, leaf) {
            Leaf::Same(_) => {}
            Leaf::Hot(hot) => {
                places.clock.release(hot.frame);
                places.slots.release(hot.slot);
            }
            Leaf::Spilled(saved) => places.slots.release(saved.slot),
        }
    }

    /// Nobody has anything in this leaf any more. This cannot fail.
    pub fn clear(&self, places: &mut Places, number: u64) {
        self.put_leaf(places, number, Leaf::FREE);
    }

    /// Keeps in memory a leaf that a check has read, if it is still the one that was read.
    ///
    /// # Errors
    /// I/O: another leaf could not leave memory.
    pub fn keep(
        &self,
        places: &mut Places,
        number: u64,
        (saved, entries): (Saved, Box<Entries>),
    ) -> Result<()> {
        let still = |leaf: &Leaf| matches!(leaf, Leaf::Spilled(now) if *now == saved);
        if !self.tree.peek(number, still) {
            return Ok(());
        }
        let frame = self.frame(places, number)?;
        let hot = Hot { entries: *entries, frame, slot: saved.slot, saved: Some(saved) };
        self.tree.replace(number, Leaf::Hot(Box::new(hot)));
        Ok(())
    }

    /// Room in memory for this leaf, from which another one may have to go.
    fn frame(&self, places: &mut Places, number: u64) -> Result<u32> {
        if let Some(frame) = places.clock.put(number, &self.used) {
            return Ok(frame);
        }
        let full = || Error::Refused("the permission table has no room for a leaf".into());
        let victim = places.clock.victim(&self.used).ok_or_else(full)?;
        self.evict(places, victim)?;
        places.clock.put(number, &self.used).ok_or_else(full)
    }

    fn evict(&self, places: &mut Places, number: u64) -> Result<()> {
        let leaving = self.tree.peek(number, |leaf| match leaf {
            Leaf::Hot(hot) => match hot.saved {
                Some(saved) => Some(Leaving::Saved(saved)),
                None => Some(Leaving::Unsaved(hot.slot, Box::new(hot.entries))),
            },
            _ => None,
        });
        let saved = match leaving.expect("the clock has leaves that are in memory") {
            Leaving::Saved(saved) => saved,
            // Nobody changes the leaf meanwhile, because that is done under the books.
            Leaving::Unsaved(slot, entries) => {
                self.spill.write(slot, &entries, &mut places.slots)?
            }
        };
        if let Leaf::Hot(hot) = self.tree.replace(number, Leaf::Spilled(saved)) {
            places.clock.release(hot.frame);
        }
        Ok(())
    }

    /// Makes sure that this many leaves more can become mixed.
    ///
    /// # Errors
    /// I/O: the scratch file has no room.
    pub fn reserve(&self, places: &mut Places, more: usize) -> Result<()> {
        places.slots.reserve(more, self.used.frames(), &self.spill)
    }
}
