//! Names, attributes and mappings, and what of them the logs are owed.

use crate::state::log::Log;
use crate::state::log::names::{Traits, keys};
use crate::state::room;
use crate::state::tree::Tree;
use siftfs_base::{BLOCK_BYTES, InodeNr, Result, Timestamp};
use siftfs_log::{NameOp, NameOpKind};

/// Names, attributes and mappings, and what of them the logs are owed. No page of a file is in
/// here.
pub struct Metadata {
    /// The files and directories as they are now.
    pub tree: Tree,
    /// What the logs are owed, and what they hold.
    pub log: Log,
}

impl Metadata {
    /// Packs loose extent trees as far as the running transaction has room; true when done.
    pub fn tidy_trees(&mut self) -> Result<bool> {
        while let Some(ino) = self.tree.inodes.take_untidy() {
            if self.tree.load(ino).is_err() {
                continue;
            }
            let node = self.tree.inodes.get_mut(&ino).expect("just loaded");
            let blocks = self.tree.fs.layout.tree_blocks(&mut self.tree.meta, &node.inode)?;
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
            // What makes or removes a name alone is overtaken as on the mount.
            use NameOpKind::{Exchange, Link, Rename};
            if matches!(kind, Rename { .. } | Exchange { .. } | Link { .. }) {
                self.log.changes.ordered();
            }
            let op = NameOp { lsn, time, kind };
            self.log.changes.names(keys(&op));
            self.log.replies.made(&op);
            self.log.names.push(op, traits);
        }
    }
}

/// Notes a change of the permissions that the inode, which is loaded, had already. A directory's
/// are above files whose fsyncs must not overtake the change.
pub fn perms_changed(metadata: &mut Metadata, ino: InodeNr) {
    metadata.log.mark_perms(ino);
    if metadata.tree.node(ino).inode.is_dir() {
        metadata.log.changes.ordered();
    }
}
