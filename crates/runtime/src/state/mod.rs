//! Everything under the Runtime's state lock, and the bookkeeping all operations share.

pub mod buffers;
pub mod caches;
pub mod discards;
pub mod fills;
pub mod generations;
pub mod heap;
pub mod inodes;
pub mod lane;
pub mod ledger;
pub mod memory;
pub mod names;
pub mod node;
pub mod nodes;
pub mod overlay;
pub mod overlay_debt;
pub mod permissions;
pub mod pushed;
pub mod questions;
pub mod recovery;
pub mod report;
pub mod room;
pub mod running;
pub mod sections;
pub mod shadow;
pub mod sizes;
pub mod staging;
pub mod stats;
pub mod step;
pub mod time;
pub mod unsynced;

pub use self::inodes::Inodes;
pub use self::ledger::{Ledger, TxnInfo};
pub use self::recovery::Recovery;
pub use self::running::Running;
pub use self::staging::Staging;
pub use self::time::Time;
use crate::config::Config;
use crate::state::caches::meta_cache::MetaCache;
use crate::state::caches::page_cache::PageCache;
use crate::state::discards::Discards;
use crate::state::names::{NameLog, Traits};
use crate::state::node::Node;
use crate::state::sections::Sections;
use siftfs_base::{BLOCK_BYTES, InodeNr, Lsn, Result, Timestamp, errno};
use siftfs_device::{AreaReader, JournalReader, StagingReader};
use siftfs_ext4::{Fs, Mapping};
use siftfs_log::{NameOp, NameOpKind};

/// Where the Runtime reads outside its caches.
pub struct Readers {
    /// The file-system area.
    pub area: AreaReader,
    /// The journal ring.
    pub journal: JournalReader,
    /// The lanes.
    pub lanes: Vec<StagingReader>,
}

/// Everything under the Runtime's state lock. A method belongs to the narrowest part that it needs,
/// so that the receiver says what may change: [`Tree`], [`Log`], [`Metadata`], or all of this.
pub struct State {
    /// Names, attributes and mappings.
    pub metadata: Metadata,
    /// Data pages.
    pub pages: PageCache,
    /// Fills of the page cache under way.
    pub fills: fills::Fills,
    /// Counters the status report shows.
    pub stats: crate::state::stats::RuntimeStats,
    /// Freed blocks whose space goes back to the storage.
    pub discards: Discards,
    /// Atomic sections, with the bytes that are no file's yet.
    pub sections: Sections,
}

/// Names, attributes and mappings, and what of them the logs are owed. No page of a file is in
/// here.
pub struct Metadata {
    /// The files and directories as they are now.
    pub tree: Tree,
    /// What the logs are owed, and what they hold.
    pub log: Log,
}

/// The files and directories as they are now. Nothing in here knows of logs: who changes something
/// notes in the [`Log`] what it is owed.
pub struct Tree {
    /// The ext4 layer.
    pub fs: Fs,
    /// Metadata blocks.
    pub meta: MetaCache,
    /// The inodes in memory, the references to them, and the inodes that are about to be freed.
    pub inodes: Inodes,
}

/// What the logs are owed, and what they hold, with the settings that say when it is written.
pub struct Log {
    /// Settings.
    pub config: Config,
    /// What the running transaction owes: changes that no transaction has journaled.
    pub running: Running,
    /// Pending name operations.
    pub names: NameLog,
    /// Transactions from their cut to their reclamation, the room in the journal, and what the
    /// Service was asked.
    pub ledger: Ledger,
    /// The lanes, and the order of what is staged in them.
    pub staging: Staging,
    /// The clock, and the latest time it gave.
    pub time: Time,
    /// `None` on a volume that was clean: rule R18 comes before the mount.
    pub recovery: Option<Recovery>,
}

impl Log {
    /// Are staged transactions being applied that are durable already?
    pub fn is_replaying(&self) -> bool {
        self.recovery.is_some()
    }

    /// The present time; never before an earlier one.
    pub fn now(&mut self) -> Timestamp {
        self.time.now()
    }

    /// Notes that something unjournaled exists, for the commit timer.
    pub fn touch(&mut self) {
        self.running.touch(&self.time);
    }

    /// The inode's attributes changed; the running transaction will write them.
    pub fn mark_inode(&mut self, ino: InodeNr) {
        self.running.inode_changed(ino, &self.time);
    }

    /// Notes a permission change that is pending on the inode (rule R17).
    pub fn mark_perms(&mut self, ino: InodeNr) {
        if !self.is_replaying() {
            self.running.permissions.changed(ino);
        }
    }

    /// Share of staging or journal in use, whichever is more, in percent.
    pub fn log_fill_percent(&self) -> u64 {
        let journal = self.ledger.journal_used() * 100 / self.ledger.journal_len();
        journal.max(self.staging.fill_percent())
    }
}

impl Tree {
    /// The inode's extent tree changed.
    pub fn note_tree(&mut self, ino: InodeNr) {
        if self.fs.worst_case_touched(&self.node(ino).inode).is_ok_and(|t| t > 1) {
            self.inodes.note_untidy(ino);
        }
    }

    /// Is every block of `[first, end)` mapped and written? Where the mapping cannot be read, no:
    /// the bound is larger then, and the assembly, which needs the mapping, finds the error.
    fn has_home(&mut self, ino: InodeNr, first: u64, end: u64) -> bool {
        let mut block = first;
        while block < end {
            let node = self.inodes.get(&ino).expect("loaded before use");
            match self.fs.map(&mut self.meta, &node.inode, block, end - block) {
                Ok(Mapping::Mapped { len, unwritten: false, .. }) => block += len.max(1),
                _ => return false,
            }
        }
        true
    }

    /// Makes sure the inode is in memory. ESTALE if it is not in use.
    pub fn load(&mut self, ino: InodeNr) -> Result<()> {
        if self.inodes.contains(ino) {
            return Ok(());
        }
        let inode = self.fs.read_inode(&mut self.meta, ino)?;
        if inode.nlink == 0 && !self.inodes.is_orphan(ino) {
            return Err(errno(libc::ESTALE));
        }
        let version = self.inodes.next_version();
        self.inodes.add(ino, Node::new(inode, version));
        Ok(())
    }

    /// The node; it must have been loaded under this lock.
    pub fn node(&self, ino: InodeNr) -> &Node {
        self.inodes.get(&ino).expect("loaded before use")
    }

    /// The node to be changed; it must have been loaded under this lock.
    pub fn node_mut(&mut self, ino: InodeNr) -> &mut Node {
        self.inodes.get_mut(&ino).expect("loaded before use")
    }

    /// Loads and checks that it is a directory.
    pub fn load_dir(&mut self, ino: InodeNr) -> Result<()> {
        self.load(ino)?;
        if !self.node(ino).inode.is_dir() {
            return Err(errno(libc::ENOTDIR));
        }
        Ok(())
    }

    /// Notes that there is more to make durable of this inode than before; see [`Node::changed`].
    pub fn mark_changed(&mut self, ino: InodeNr) {
        let change = self.inodes.next_version();
        if let Some(node) = self.inodes.get_mut(&ino) {
            node.changed = change;
        }
    }

    /// Does the operation give a file another name whose bytes were all made durable by fsync?
    fn publishes(&self, kind: &NameOpKind) -> bool {
        let inodes = match kind {
            NameOpKind::Rename { ino, .. } | NameOpKind::Link { ino, .. } => [*ino, *ino],
            NameOpKind::Exchange { ino, other_ino, .. } => [*ino, *other_ino],
            _ => return false,
        };
        let durable =
            |n: &Node| n.fsynced && n.inode.is_reg() && n.data.each().iter().all(|d| d.is_empty());
        inodes.iter().any(|i| self.inodes.get(i).is_some_and(durable))
    }
}

impl Metadata {
    /// Packs loose extent trees as far as the running transaction has room; true when done.
    pub fn tidy_trees(&mut self) -> Result<bool> {
        while let Some(ino) = self.tree.inodes.take_untidy() {
            if self.tree.load(ino).is_err() {
                continue;
            }
            let node = self.tree.inodes.get_mut(&ino).expect("just loaded");
            let blocks = self.tree.fs.tree_blocks(&mut self.tree.meta, &node.inode)?;
            let blocks = usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(2);
            if blocks > self.log.half_transaction() {
                continue;
            }
            if self.room_in_transaction(blocks).is_err() {
                self.tree.inodes.note_untidy(ino);
                return Ok(false);
            }
            let node = self.tree.inodes.get_mut(&ino).expect("just loaded");
            if self.tree.fs.tidy(&mut self.tree.meta, &mut node.inode)? {
                self.remapped(ino);
                self.log.mark_inode(ino);
            }
        }
        Ok(true)
    }

    /// Notes that `[start, end)` of the inode's overlay, which is not empty, waits for the next
    /// transaction, with `bytes` staged bytes.
    pub fn note_overlay(&mut self, ino: InodeNr, (start, end): (u64, u64), bytes: u64) {
        self.log.running.overlay.note(ino, bytes);
        // Where a range can cost no more than a few blocks in all, looking costs more.
        let look = self.tree.groups() > room::FEW_GROUPS || self.tree.tree_touched(ino) > 1;
        let (first, end) = (start / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        if !look || !self.tree.has_home(ino, first, end) {
            self.note_homeless(ino, end - first);
        }
    }

    /// Notes that a range of `blocks` blocks, which waits for the next transaction, has unmapped
    /// ones.
    fn note_homeless(&mut self, ino: InodeNr, blocks: u64) {
        let tree = self.tree.tree_touched(ino);
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        self.log.running.overlay.note_homeless(ino, tree, blocks);
    }

    /// Blocks `[first, end)` of the inode are unmapped: ranges of its overlay that wait for the
    /// next transaction there, of whatever came after the caller emptied the range, have no home.
    pub fn lost_homes(&mut self, ino: InodeNr, first: u64, end: u64) {
        let txn = self.log.next_txn();
        let bytes = (first * BLOCK_BYTES, end.saturating_mul(BLOCK_BYTES));
        for (start, end) in self.tree.node_mut(ino).overlay.needs_tags(bytes.0, bytes.1, txn) {
            self.log.running.overlay.note(ino, end - start);
        }
        let ranges = self.tree.node(ino).overlay.unjournaled_from(first * BLOCK_BYTES);
        let end = end.saturating_mul(BLOCK_BYTES);
        let blocks = ranges
            .take_while(|(start, _)| *start < end)
            .map(|(start, end)| end.div_ceil(BLOCK_BYTES) - start / BLOCK_BYTES)
            .collect::<Vec<u64>>();
        for blocks in blocks {
            self.note_homeless(ino, blocks);
        }
    }

    /// The inode's mapping was changed: reads of the area that are under way may not become pages
    /// of it, and no range is physical before the next cut.
    pub fn remapped(&mut self, ino: InodeNr) {
        let version = self.tree.inodes.next_version();
        let txn = self.log.next_txn();
        let node = self.tree.node_mut(ino);
        node.map_version = version;
        node.mapped_in = txn;
    }

    /// Notes a change of the inode's `delta`.
    pub fn mark_delta(&mut self, ino: InodeNr) {
        self.log.running.delta_changed(ino);
        self.tree.mark_changed(ino);
        self.log.mark_inode(ino);
    }

    /// Records a name operation that has just been carried out.
    pub fn log_name_op(&mut self, time: Timestamp, kind: NameOpKind, moves_directory: bool) {
        self.log.touch();
        if !self.log.is_replaying() {
            let lsn = self.log.staging.draw();
            let publishes = self.tree.publishes(&kind);
            let traits = Traits { moves_directory, publishes };
            self.log.names.push(NameOp { lsn, time, kind }, traits);
        }
    }
}

impl State {
    /// Keeps caches within their bounds. Staged transactions from `unwritten` on cannot be read
    /// from their lanes yet.
    pub fn shrink_caches(&mut self, unwritten: Lsn) {
        let nodes = &self.metadata.tree.inodes;
        self.pages.shrink(|ino, index| {
            let busy = |n: &Node| n.page_busy(index) || n.page_on_its_way(index, unwritten);
            nodes.get(&ino).is_some_and(busy)
        });
        self.metadata.tree.meta.shrink();
        let Self { metadata: Metadata { tree, log }, pages, .. } = self;
        let busy = |ino| log.running.owes_inode(ino);
        tree.inodes.shrink(log.config.max_nodes, busy, |ino| pages.remove_range(ino, 0, u64::MAX));
    }
}
