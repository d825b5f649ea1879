//! The table of permissions as the target uses it.

use super::books::Books;
use super::clock::Used;
use super::entry::{Entry, Owner};
use super::give::{Gift, Wish};
use super::leaf::{Entries, Finding, LEAF_SPAN, Leaf, part_of};
use super::owners::{Owners, numbers};
use super::spill::{Saved, Spill};
use super::store::{HOT_BYTES, LEAF_BYTES, Store};
use super::tree::Tree;
use crate::device::calls::lock;
use siftfs_base::{BlockRun, Error, Result};
use std::iter::once;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

/// Blocks of the largest area, 8 PiB: the leaves' numbers have 32 bits.
const MOST_BLOCKS: u64 = 1 << 41;

/// Blocks of one check, which bounds its time and its answer.
const MOST_CHECKED: u64 = 1 << 18;

/// Bytes of memory that the table may have.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// For leaves whose blocks are unlike, some 2 KiB each. What has no room here is in the
    /// scratch file.
    pub leaves: usize,
    /// For the tree, the owners, and what says where leaves are. What has no room here is refused.
    pub index: usize,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// All blocks are the owner's, and all were written.
    Written,
    /// All blocks are the owner's. These of them were not written: ranges in order, apart from
    /// each other, at least one.
    Unwritten(Vec<Range<u64>>),
    /// Some block is not the owner's, or there is no block.
    Refused,
}

/// What the table has, and what has been asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Owners.
    pub owners: usize,
    /// Leaves of unlike blocks that are in memory.
    pub hot: usize,
    /// Leaves that are in the scratch file alone.
    pub spilled: usize,
    /// Leaves that checks have found in memory.
    pub hits: u64,
    /// Leaves that checks have read from the scratch file.
    pub misses: u64,
    /// Leaves that could not be read or kept when something was taken back. Nobody has anything of
    /// them since.
    pub lost: u64,
    /// Bytes of memory, computed, without the allocator's own.
    pub bytes: usize,
    /// Bytes of the scratch file.
    pub spill_bytes: u64,
}

/// Which owner has each block of an area, and whether the block was written. It is in memory and in
/// a scratch file, and ends with this process.
///
/// A check that begins behind an answer sees what that answer told. It does not hold off a change
/// beside it: the caller has the check, and what it is for, in one step towards the end of a grant
/// (rule R29).
pub struct Permissions {
    store: Store,
    memory: Memory,
    books: Mutex<Books>,
    misses: AtomicU64,
}

impl Permissions {
    /// For an area of this many blocks, of which nobody has any. The scratch file is made in
    /// `folder`, has no name, and grows when the leaves have no room in memory.
    ///
    /// # Errors
    /// Refused: there is no such area, no leaf has room, or the scratch file cannot be made.
    pub fn new(blocks: u64, memory: Memory, folder: &Path) -> Result<Self> {
        if blocks > MOST_BLOCKS {
            return Err(Error::Refused(format!("an area of {blocks} blocks")));
        }
        let frames = memory.leaves / HOT_BYTES;
        if frames == 0 || u32::try_from(frames).is_err() {
            return Err(Error::Refused(format!("{} bytes for leaves", memory.leaves)));
        }
        let tree = Tree::new(blocks.div_ceil(LEAF_SPAN));
        let used = Used::new(frames);
        let store = Store { tree, used, spill: Spill::create(folder)?, blocks };
        Ok(Self { store, memory, books: Mutex::default(), misses: AtomicU64::new(0) })
    }

    /// One more owner, which has nothing yet.
    ///
    /// # Errors
    /// Refused: there are 65,536, or the index has no room.
    pub fn owner(&self) -> Result<Owner> {
        let mut books = lock(&self.books);
        self.room(&books, Owners::bytes_of_one())?;
        books.owners.add()
    }

    /// Gives these blocks to an owner, all or none. Those that it has already stay its own, and
    /// stay written.
    ///
    /// # Errors
    /// Refused: there is no such owner, a run is empty or beyond the area, a block is another
    /// owner's, or the index has no room. I/O or corrupt: the scratch file has no room or fails.
    /// Nothing has changed then; but leaves in which the file fails also while this is undone are
    /// lost ([`Counts::lost`]).
    pub fn give(&self, owner: Owner, runs: &[BlockRun], written: bool) -> Result<()> {
        if written { self.give_both(owner, runs, &[]) } else { self.give_both(owner, &[], runs) }
    }

    /// As [`Self::give`], blocks that were written, and fresh ones that were not: all or none of
    /// both.
    ///
    /// # Errors
    /// As of [`Self::give`].
    pub fn give_both(&self, owner: Owner, written: &[BlockRun], fresh: &[BlockRun]) -> Result<()> {
        let mut wish = Wish::of(owner, true);
        for (runs, fresh) in [(written, false), (fresh, true)] {
            for run in runs {
                let end = run.start.checked_add(run.len).filter(|_| run.len > 0);
                let end = end.filter(|end| *end <= self.store.blocks);
                let end = end.ok_or_else(|| no_blocks(run.start, run.len))?;
                wish.blocks.insert(run.start, end);
                if fresh {
                    wish.fresh.insert(run.start, end);
                }
            }
        }
        self.carry_out(&wish)
    }

    /// These blocks of the owner were written. What was written is durable, or not: that is for the
    /// caller to say.
    ///
    /// # Errors
    /// Refused: a block is not the owner's, or the range is longer than a check may be, or empty.
    /// I/O or corrupt: the scratch file has no room or fails; nothing has changed, as for
    /// [`Self::give`].
    pub fn set_written(&self, owner: Owner, blocks: Range<u64>) -> Result<()> {
        match self.check(owner, blocks.clone())? {
            Checked::Written => return Ok(()),
            Checked::Refused => {
                let len = blocks.end.saturating_sub(blocks.start);
                return Err(no_blocks(blocks.start, len));
            }
            Checked::Unwritten(_) => {}
        }
        let mut wish = Wish::of(owner, false);
        wish.blocks.insert(blocks.start, blocks.end);
        self.carry_out(&wish)
    }

    fn carry_out(&self, wish: &Wish) -> Result<()> {
        let mut books = lock(&self.books);
        books.owners.find(wish.owner)?;
        let gift = Gift::plan(&self.store, wish)?;
        self.room(&books, gift.index_bytes(&self.store))?;
        gift.carry_out(&self.store, &mut books)
    }

    /// Takes back all that the owner has, wherever it lies, and ends the owner. No check that
    /// begins when this has returned finds anything of it. The scratch file cannot hinder this: a
    /// leaf that it does not give back is taken from all that have something in it
    /// ([`Counts::lost`]).
    ///
    /// # Errors
    /// Refused: there is no such owner.
    pub fn take_all(&self, owner: Owner) -> Result<()> {
        let mut guard = lock(&self.books);
        let books = &mut *guard;
        let leaves = books.owners.remove(owner)?;
        let free = |entry: Entry| if entry.is_of(owner) { Entry::FREE } else { entry };
        for number in numbers(&leaves) {
            let len = self.store.len_of(number);
            let content = self.store.content(number);
            let rest = content.map(|content| content.edited(once(0..len), len, free));
            let put = rest.and_then(|rest| self.store.put(&mut books.places, number, rest));
            if let Err(error) = put {
                books.lose(&self.store, number, &error);
            }
        }
        Ok(())
    }

    /// Are all these blocks the owner's, and which of them were written? What is refused, and what
    /// fails, is granted to nobody. A leaf that had to be read stays in memory, unless a change is
    /// under way.
    ///
    /// # Errors
    /// Refused: more than 262,144 blocks. I/O or corrupt: the scratch file did not give back what
    /// was written to it.
    pub fn check(&self, owner: Owner, blocks: Range<u64>) -> Result<Checked> {
        self.find(&mut Finding::of(owner, false), blocks)
    }

    /// As [`Self::check`], of what is in memory. `None`: something would have to be read.
    ///
    /// # Errors
    /// Refused: as of [`Self::check`].
    pub fn check_at_once(&self, owner: Owner, blocks: Range<u64>) -> Result<Option<Checked>> {
        let mut finding = Finding::of(owner, true);
        let checked = self.find(&mut finding, blocks)?;
        Ok(if finding.missed { None } else { Some(checked) })
    }

    fn find(&self, finding: &mut Finding, blocks: Range<u64>) -> Result<Checked> {
        if blocks.is_empty() || blocks.end > self.store.blocks {
            return Ok(Checked::Refused);
        }
        if blocks.end - blocks.start > MOST_CHECKED {
            return Err(no_blocks(blocks.start, blocks.end - blocks.start));
        }
        for number in blocks.start / LEAF_SPAN..blocks.end.div_ceil(LEAF_SPAN) {
            let start = blocks.start.max(number * LEAF_SPAN);
            let end = blocks.end.min((number + 1) * LEAF_SPAN);
            if !self.look(finding, number, start..end)? {
                return Ok(Checked::Refused);
            }
        }
        match std::mem::take(&mut finding.unwritten) {
            none if none.is_empty() => Ok(Checked::Written),
            some => Ok(Checked::Unwritten(some)),
        }
    }

    /// Looks at these blocks of one leaf.
    fn look(&self, finding: &mut Finding, number: u64, blocks: Range<u64>) -> Result<bool> {
        let part = part_of(number, &blocks);
        let mut missed = None;
        let is = self.store.tree.look(number, |leaf| match leaf {
            Leaf::Same(entry) => Ok(finding.same(*entry, blocks)),
            Leaf::Hot(hot) => {
                self.store.used.mark(hot.frame);
                Ok(hot.entries.get(part).is_some_and(|e| finding.each(e, blocks.start)))
            }
            Leaf::Spilled(_) if finding.at_once => {
                finding.missed = true;
                Ok(false)
            }
            Leaf::Spilled(saved) => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                let entries = self.store.spill.read(*saved)?;
                let is = entries.get(part).is_some_and(|e| finding.each(e, blocks.start));
                missed = Some((*saved, entries));
                Ok(is)
            }
        })?;
        if let Some(read) = missed {
            self.keep(number, read);
        }
        Ok(is)
    }

    /// Keeps in memory what a check has read. It is left out if that would have to wait or fails.
    fn keep(&self, number: u64, read: (Saved, Box<Entries>)) {
        let mut books = match self.books.try_lock() {
            Ok(books) => books,
            Err(TryLockError::Poisoned(books)) => books.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if let Err(error) = self.store.keep(&mut books.places, number, read) {
            tracing::debug!(%error, "a leaf of the permission table stays in its scratch file");
        }
    }

    /// What the table has, and what has been asked.
    pub fn counts(&self) -> Counts {
        let books = lock(&self.books);
        let places = &books.places;
        let hot = places.clock.leaves();
        Counts {
            owners: books.owners.len(),
            hot,
            spilled: places.slots.used() - hot,
            hits: self.store.tree.hits(),
            misses: self.misses.load(Ordering::Relaxed),
            lost: books.lost,
            bytes: self.index_bytes(&books)
                + hot * LEAF_BYTES
                + places.clock.bytes(&self.store.used),
            spill_bytes: places.slots.file_bytes(),
        }
    }

    fn index_bytes(&self, books: &Books) -> usize {
        self.store.tree.bytes() + books.owners.bytes() + books.places.slots.bytes()
    }

    /// Has the index room for these bytes more?
    fn room(&self, books: &Books, bytes: usize) -> Result<()> {
        match self.index_bytes(books) + bytes <= self.memory.index {
            true => Ok(()),
            false => Err(Error::Refused("the permission table's index has no room".into())),
        }
    }
}

fn no_blocks(start: u64, len: u64) -> Error {
    Error::Refused(format!("permissions of {len} blocks from {start} on"))
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "faults_tests.rs"]
mod faults;

#[cfg(test)]
#[path = "threads_tests.rs"]
mod threads;
