//! An inode in memory: its ext4 form as the next transaction will journal it, what the
//! application sees beyond that, and what is not durable yet.

use crate::state::tree::generations::Generations;
use crate::state::tree::overlay::{Overlay, Source};
use crate::state::tree::sizes::Sizes;
use siftfs_base::{BLOCK_BYTES, Blocks, Bytes, InodeNr, Lsn, RangeSet, TxnSeq};
use siftfs_ext4::{Inode, PoolId};

/// Changes of one inode since its last durable state, as a staged transaction must carry them.
/// Two generations exist: what the running transaction will journal, and what the transaction in
/// flight has taken but not made durable.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Attributes (mode, owner, times, flags) changed.
    pub attrs: bool,
    /// Times alone changed (fdatasync may leave them).
    pub times: bool,
    /// Size changed (without data saying so).
    pub size: bool,
    /// Extended attributes changed.
    pub xattrs: bool,
    /// Smallest size reached by a truncation (rule R6).
    pub min_size: Option<u64>,
    /// Ranges that became zero or unmapped (rule R6).
    pub zeros: RangeSet<Bytes>,
    /// Preallocations: offset, length, keep size.
    pub allocs: Vec<(u64, u64, bool)>,
}

impl Delta {
    /// Nothing changed?
    pub fn is_empty(&self) -> bool {
        !self.attrs && !self.times && self.is_empty_for_datasync()
    }

    /// Nothing changed that fdatasync owes?
    pub fn is_empty_for_datasync(&self) -> bool {
        !self.attrs
            && !self.size
            && !self.xattrs
            && self.min_size.is_none()
            && self.zeros.is_empty()
            && self.allocs.is_empty()
    }

    /// `later` happened after `self`.
    pub fn merge(&mut self, later: Delta) {
        self.attrs |= later.attrs;
        self.times |= later.times;
        self.size |= later.size;
        self.xattrs |= later.xattrs;
        if let Some(min) = later.min_size {
            self.min_size = Some(self.min_size.map_or(min, |m| m.min(min)));
        }
        self.zeros.union(&later.zeros);
        self.allocs.extend(later.allocs);
    }
}

/// One inode in memory, with what is not durable of it.
///
/// 1. *In memory.* The inode was read from the area, or an operation made it. `inode` and `size`
///    agree, and nothing is pending.
/// 2. *Changed.* Written bytes are in the page cache and in `dirty`; blocks without a home are in
///    `reserved`; `size` is the new size, `inode.size` still the journaled one. Other changes are
///    in the running generation of `delta`.
/// 3. *Staged.* A record takes dirty bytes to a lane, for an fsync or for the background's
///    overwrites: they leave `dirty` and `pushing`, and `overlay` says where they lie. A record of
///    the whole inode also empties both generations of `delta`.
/// 4. *Pushed.* Assembly sends dirty bytes of new blocks straight to the area: they move from
///    `dirty` to `pushing`, and their blocks are in `sent`.
/// 5. *Cut.* The running generation of `delta` becomes the one in flight, `inode.size` follows
///    `pushed_size`, and the transaction takes over the ranges of `overlay`.
/// 6. *Journaled.* The generation in flight, `pushing` and `sent` are emptied: the transaction is
///    durable.
/// 7. *Reclaimed.* `overlay` loses the ranges that the transaction journaled: the area has them,
///    and `map_version` is drawn anew.
/// 8. *Out of memory.* A named inode for which [`Node::evictable`] holds may be dropped and read
///    again later. An unlinked one is freed once it has no open handle and no lookup.
///
/// Steps 2 to 7 overlap: new changes come while older ones are staged or in flight.
pub struct Node {
    /// The inode as the next transaction will write it. For a regular file `inode.size` is the
    /// *journaled* size: it never exceeds what is durable or explicitly extended (rule R20).
    pub inode: Inode,
    /// The size the application sees, in bytes.
    pub size: u64,
    /// The running transaction has the data below this byte, because it was sent to the area ahead
    /// of it. The journaled size follows at the cut, not before: a staged transaction carries that
    /// size.
    pub pushed_size: u64,
    /// Sizes that the file had since the journaled one: the size that comes with unsynced data is
    /// one of them.
    pub sizes: Sizes,
    /// Directory through which the inode was last found; for permission closures (rule R17).
    pub parent: Option<InodeNr>,
    /// Open handles.
    pub opens: u32,
    /// Changes since the last durable state.
    pub delta: Generations<Delta>,
    /// Bytes in the page cache that nothing durable holds: dirty ones, and in flight those that go
    /// straight to the area.
    pub data: Generations<RangeSet<Bytes>>,
    /// Pages that the dirty bytes touch.
    pub dirty_pages: u64,
    /// Blocks that the transaction in flight writes straight to the area. Until it is journaled
    /// only the cache has them, even if an fsync has made the bytes of them that were dirty durable
    /// meanwhile: the rest of the block is in no record.
    pub sent: RangeSet<Blocks>,
    /// Dirty bytes that the assembly under way has not checked yet; bytes that became clean
    /// meanwhile may be among them. `None` while the assembly owes nothing of this inode.
    pub unseen: Option<RangeSet<Bytes>>,
    /// Where staged and journaled bytes lie.
    pub overlay: Overlay,
    /// File blocks without a home for which space is reserved.
    pub reserved: RangeSet<Blocks>,
    /// The pool that new blocks come from: of the session whose private log was taken in last.
    pub pool: Option<PoolId>,
    /// A number drawn anew with every change of data or `delta`. As long as it stays, nothing was
    /// added to what a commit under way has to make durable.
    pub changed: u64,
    /// Monotonic time of the oldest unsynced data, in nanoseconds.
    pub dirty_since: Option<u64>,
    /// The next transaction must push the data (replaced by rename or truncate, rule R20).
    pub push_next: bool,
    /// An fsync was called for the inode: if its data is durable when it gets its next name, that
    /// name publishes it.
    pub fsynced: bool,
    /// The newest staged transaction that carries something of this inode.
    pub staged: Lsn,
    /// A number drawn anew, and never repeated in a mount, whenever bytes read from the area before
    /// may not be the file's any more: the file's mapping changed, or the area got what the overlay
    /// had.
    pub map_version: u64,
    /// The newest transaction that changes the file's mapping, the one under way included. Older
    /// ones have every mapping that a later one finds unchanged.
    pub mapped_in: TxnSeq,
    /// Extents beyond the size are still to be removed (a truncation too large for one
    /// transaction).
    pub trunc_pending: bool,
    /// The file was made without a name, and may still get one.
    pub linkable: bool,
    /// The read pattern, for read-ahead.
    pub sequence: Sequence,
}

impl Node {
    /// A node for an inode just read or made.
    pub fn new(inode: Inode, map_version: u64) -> Self {
        let size = inode.size;
        Self {
            inode,
            size,
            pushed_size: 0,
            sizes: Sizes::default(),
            parent: None,
            opens: 0,
            delta: Generations::default(),
            data: Generations::default(),
            dirty_pages: 0,
            sent: RangeSet::new(),
            unseen: None,
            overlay: Overlay::default(),
            reserved: RangeSet::new(),
            pool: None,
            changed: 0,
            dirty_since: None,
            push_next: false,
            fsynced: false,
            staged: Lsn(0),
            sequence: Default::default(),
            map_version,
            mapped_in: TxnSeq(0),
            trunc_pending: false,
            linkable: false,
        }
    }

    /// Everything not durable: both generations of changes.
    pub fn whole_delta(&self) -> Delta {
        let mut delta = self.delta.in_flight().clone();
        delta.merge(self.delta.running().clone());
        delta
    }

    /// Bytes that nothing durable holds: dirty and in flight.
    pub fn undurable(&self) -> RangeSet<Bytes> {
        let mut ranges = self.data.running().clone();
        ranges.union(self.data.in_flight());
        ranges
    }

    /// Is the file without a name, and never to get one? A crash leaves nothing of it, so no fsync
    /// owes its bytes. A file made without a name is not dead as long as `linkable` says that it
    /// may be linked.
    pub fn is_dead(&self) -> bool {
        self.inode.nlink == 0 && !self.linkable
    }

    /// Does nothing durable lack anything of this inode?
    pub fn is_durable(&self) -> bool {
        self.data.each().iter().all(|bytes| bytes.is_empty())
            && self.delta.each().iter().all(|delta| delta.is_empty())
    }

    /// The size that a record of nothing but `ranges` gives the file: the journaled one, or, if
    /// they extend it, the next one that the file had, provided that they hold all that lies below
    /// it and is not durable. A write too large for one record comes back in part, and so does its
    /// size.
    pub fn size_with(&self, ranges: &RangeSet<Bytes>) -> u64 {
        let journaled = self.inode.size;
        let Some(end) = ranges.max_end().filter(|end| *end > journaled) else { return journaled };
        let next = self.sizes.from(end, self.size);
        let mut lacking = self.undurable();
        ranges.iter().for_each(|(s, e)| lacking.remove(s, e));
        if lacking.overlaps(journaled, next) { end } else { next }
    }

    /// May the node be forgotten and read again later?
    pub fn evictable(&self) -> bool {
        self.opens == 0
            && self.delta.each().iter().all(|delta| delta.is_empty())
            && self.data.each().iter().all(|bytes| bytes.is_empty())
            && self.sent.is_empty()
            && self.overlay.is_empty()
            && self.reserved.is_empty()
            && !self.trunc_pending
            && self.inode.nlink > 0
    }

    /// Must page `index` stay in the cache?
    pub fn page_busy(&self, index: u64) -> bool {
        let (start, end) = (index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES);
        self.data.each().iter().any(|bytes| bytes.overlaps(start, end)) || self.sent.contains(index)
    }
    /// Are bytes of page `index` in a record that is not written yet? Then only the cached page has
    /// them.
    pub fn page_on_its_way(&self, index: u64, unwritten: Lsn) -> bool {
        let (start, end) = (index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES);
        let unread = |source: &Source| match source {
            Source::Staged { record, .. } => record.lsn >= unwritten,
            Source::Zero => false,
        };
        self.overlay.overlapping(start, end).any(|part| unread(&part.source))
    }
}

/// The pattern of an inode's reads, as far as read-ahead needs it.
#[derive(Clone, Copy, Default)]
pub struct Sequence {
    /// One past the last page of the farthest read.
    pub next: u64,
    /// Pages of read-ahead beyond `next`; 0 while the reads are not sequential.
    pub ahead: u64,
    /// Page up to which read-ahead has been done, or is under way.
    pub done: u64,
}

impl Sequence {
    /// Pages of read-ahead behind those that are asked for.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }
}
