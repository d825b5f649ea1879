//! What the running transaction takes along.

use crate::state::log::overlay_debt::OverlayDebt;
use crate::state::log::permissions::Permissions;
use crate::state::log::pushed::Pushed;
use crate::state::log::time::Time;
use crate::state::tree::inodes::Inodes;
use crate::state::unsynced::Unsynced;
use siftfs_base::{BlockRun, InodeNr};
use std::collections::BTreeSet;

/// Whose unsynced data a transaction pushes besides what it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// Data older than the commit interval.
    Aged,
    /// Data older than the commit interval, and this inode's data.
    Inode(InodeNr),
    /// Everything.
    All,
}

impl Push {
    /// Does a caller wait for this inode's data?
    pub fn asks_for(&self, ino: InodeNr) -> bool {
        match self {
            Self::Aged => false,
            Self::Inode(asked) => *asked == ino,
            Self::All => true,
        }
    }
}

/// What the running transaction owes: changes that no transaction has journaled.
#[derive(Default)]
pub struct Running {
    /// Permission changes that are not durable (R17).
    pub permissions: Permissions,
    /// Overlay ranges that no transaction has journaled.
    pub overlay: OverlayDebt,
    /// Dirty data, and the space reserved for it.
    pub data: Unsynced,
    /// Inodes whose attributes the running transaction must write.
    inode_dirty: BTreeSet<InodeNr>,
    /// Inodes with changes in `delta` (for the hand-over at a cut).
    delta_dirty: BTreeSet<InodeNr>,
    /// Renames over other files since the last cut, whose data that cut must take along.
    replacing: usize,
    /// Inode numbers freed by the running transaction.
    freed_inodes: Vec<InodeNr>,
    /// When the oldest unjournaled change was made (monotonic nanoseconds).
    unjournaled_since: Option<u64>,
    /// What went to the area ahead of the running transaction.
    pushed: Pushed,
    /// The running transaction is being assembled: it will be cut.
    assembling: bool,
    /// Inodes with something in the transaction in flight.
    in_flight: Vec<InodeNr>,
    /// A commit and a checkpoint were made for this operation: a shortage is final now.
    space_tried: bool,
}

/// What a cut takes out of the running transaction.
pub struct Taken {
    /// What went to the area ahead of the transaction.
    pub pushed: Pushed,
    /// Inode numbers that the transaction freed.
    pub freed_inodes: Vec<InodeNr>,
}

/// What operations do to it.
impl Running {
    /// An operation begins. `space_tried` says that a commit and a checkpoint were made for it:
    /// then a shortage is final.
    pub fn begin_operation(&mut self, space_tried: bool) {
        self.space_tried = space_tried;
    }

    /// Is a shortage of space final for the operation under way?
    pub fn is_shortage_final(&self) -> bool {
        self.space_tried
    }

    /// Something unjournaled exists from now on, if it did not before.
    pub fn touch(&mut self, time: &Time) {
        if self.unjournaled_since.is_none() {
            self.unjournaled_since = Some(time.mono_ns());
        }
    }

    /// When the oldest unjournaled change was made, in monotonic nanoseconds.
    pub fn unjournaled_since(&self) -> Option<u64> {
        self.unjournaled_since
    }

    /// The inode's attributes changed: the transaction must write them.
    pub fn inode_changed(&mut self, ino: InodeNr, time: &Time) {
        self.inode_dirty.insert(ino);
        self.touch(time);
    }

    /// Must the transaction write the inode's attributes?
    pub fn owes_inode(&self, ino: InodeNr) -> bool {
        self.inode_dirty.contains(&ino)
    }

    /// Inodes whose attributes the transaction must write.
    pub fn inodes_owed(&self) -> usize {
        self.inode_dirty.len()
    }

    /// The inode's `delta` changed: the cut hands it over.
    pub fn delta_changed(&mut self, ino: InodeNr) {
        self.delta_dirty.insert(ino);
    }

    /// The inode was freed: its number waits for the transaction, which says nothing else of it.
    pub fn freed(&mut self, ino: InodeNr) {
        self.freed_inodes.push(ino);
        self.inode_dirty.remove(&ino);
        self.delta_dirty.remove(&ino);
        self.permissions.freed(ino);
    }

    /// A file is renamed over another one: the cut must take its data along.
    pub fn replaced(&mut self) {
        self.replacing += 1;
    }

    /// Renames over other files since the last cut.
    pub fn replacing(&self) -> usize {
        self.replacing
    }
}

/// What the background does with it.
impl Running {
    /// The transaction is being assembled from now on.
    pub fn begin_assembly(&mut self) {
        self.assembling = true;
    }

    /// The assembly has ended, with a cut or without.
    pub fn end_assembly(&mut self) {
        self.assembling = false;
    }

    /// Is the transaction being assembled? Then it will be cut, unless the assembly fails.
    pub fn is_assembling(&self) -> bool {
        self.assembling
    }

    /// Data of the inode is sent to a run of the area ahead of the transaction; see
    /// [`Pushed::add`].
    pub fn push(&mut self, ino: InodeNr, run: BlockRun, joins: bool) {
        self.in_flight.push(ino);
        self.pushed.add(run, joins);
    }

    /// Bytes sent to the area ahead of the transaction.
    pub fn pushed_bytes(&self) -> usize {
        self.pushed.bytes()
    }

    /// Inodes with something in the transaction in flight, and those whose data went ahead of the
    /// transaction under assembly. One may be named more than once.
    pub fn in_flight(&self) -> &[InodeNr] {
        &self.in_flight
    }

    /// Gives out the inodes whose attributes the transaction must write: the caller writes them.
    pub fn take_inodes(&mut self) -> BTreeSet<InodeNr> {
        std::mem::take(&mut self.inode_dirty)
    }

    /// The transaction is cut: what it takes of the inodes is in flight from here on, and the next
    /// transaction begins. Dirty data that stays behind counts as unjournaled from now on.
    pub fn cut(&mut self, inodes: &mut Inodes, time: &Time) -> Taken {
        for ino in std::mem::take(&mut self.delta_dirty) {
            if let Some(node) = inodes.get_mut(&ino) {
                node.delta.cut();
                self.in_flight.push(ino);
            }
        }
        self.permissions.cut();
        self.data.cut();
        self.overlay.cut();
        self.replacing = 0;
        self.unjournaled_since = (!self.data.is_empty()).then(|| time.mono_ns());
        Taken {
            pushed: std::mem::take(&mut self.pushed),
            freed_inodes: std::mem::take(&mut self.freed_inodes),
        }
    }

    /// The transaction in flight is durable, and so is what it took of the inodes.
    pub fn journaled(&mut self, inodes: &mut Inodes) {
        self.permissions.journaled();
        self.data.journaled();
        for ino in std::mem::take(&mut self.in_flight) {
            if let Some(node) = inodes.get_mut(&ino) {
                node.delta.journaled();
                node.data.journaled();
                node.sent.clear();
            }
        }
    }
}
