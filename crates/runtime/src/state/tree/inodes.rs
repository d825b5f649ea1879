//! Which inodes are in memory, and why.

use crate::state::tree::ends::Ends;
use crate::state::tree::node::Node;
use crate::state::tree::nodes::Nodes;
use crate::state::tree::references::{LetGo, References, SessionId};
use siftfs_base::{InodeNr, Lsn, TxnSeq};
use siftfs_proto::compound::Access;
use std::collections::{BTreeSet, VecDeque};

/// The inodes in memory, the references to them, and the inodes that are about to be freed.
pub struct Inodes {
    /// Inodes in memory.
    nodes: Nodes,
    /// Last number given to a node's `map_version`.
    versions: u64,
    /// What the sessions refer to.
    pub references: References,
    /// Ends of files in which kernels may still believe.
    pub ends: Ends,
    /// Unlinked inodes not freed yet: those on the on-disk orphan list.
    orphans: BTreeSet<InodeNr>,
    /// Unlinked, unreferenced inodes whose blocks are still to be freed.
    evict_queue: VecDeque<InodeNr>,
    /// Inodes whose extent tree has blocks and was changed: packed again at unmount, so that e2fsck
    /// has nothing to optimise.
    untidy: BTreeSet<InodeNr>,
    /// Newest staged transaction of any inode evicted from memory.
    evicted_staged: Lsn,
}

/// The inodes in memory.
impl Inodes {
    /// No inode is in memory. `orphans` are on the on-disk orphan list, and nothing refers to them:
    /// they are to be freed.
    pub fn new(orphans: BTreeSet<InodeNr>) -> Self {
        Self {
            nodes: Nodes::default(),
            versions: 0,
            references: References::default(),
            ends: Ends::default(),
            evict_queue: orphans.iter().copied().collect(),
            orphans,
            untidy: BTreeSet::new(),
            evicted_staged: Lsn(0),
        }
    }

    /// The node, if in memory.
    pub fn get(&self, ino: &InodeNr) -> Option<&Node> {
        self.nodes.get(ino)
    }

    /// The node to be changed, if in memory.
    pub fn get_mut(&mut self, ino: &InodeNr) -> Option<&mut Node> {
        self.nodes.get_mut(ino)
    }

    /// Is the inode in memory?
    pub fn contains(&self, ino: InodeNr) -> bool {
        self.nodes.contains_key(&ino)
    }

    /// How many inodes are in memory.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// An inode was read or made.
    pub fn add(&mut self, ino: InodeNr, node: Node) {
        self.nodes.insert(ino, node);
    }

    /// Takes an inode that is being freed out of memory. [`Inodes::freed`] follows.
    pub fn take(&mut self, ino: InodeNr) -> Option<Box<Node>> {
        self.nodes.remove(&ino)
    }

    /// Draws a number for [`Node::map_version`] or [`Node::changed`].
    pub fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// Everything up to the transaction `seq` is in the area; that transaction, or one before it,
    /// journaled overlay ranges of `inodes`.
    pub fn reclaimed(&mut self, inodes: &[InodeNr], seq: TxnSeq) {
        for ino in inodes {
            let version = self.next_version();
            if let Some(node) = self.nodes.get_mut(ino) {
                node.overlay.reclaimed(seq);
                node.map_version = version;
            }
        }
    }

    /// The newest record that carries something of the inode is `lsn`.
    pub fn staged(&mut self, ino: InodeNr, lsn: Lsn) {
        match self.nodes.get_mut(&ino) {
            Some(node) => node.staged = lsn,
            None => self.evicted_staged = lsn,
        }
    }

    /// The newest record that carries something of an inode that is not in memory any more.
    pub fn evicted_staged(&self) -> Lsn {
        self.evicted_staged
    }

    /// Brings the number of inodes in memory down to `limit`, or a step closer to it. An inode
    /// stays if it is `busy`, or has something that nothing else has; `gone` is told of each that
    /// does not.
    pub fn shrink(
        &mut self,
        limit: usize,
        busy: impl Fn(InodeNr) -> bool,
        mut gone: impl FnMut(InodeNr),
    ) {
        let Self { nodes, evicted_staged, .. } = self;
        // More than an operation brings in, so that the bound is reached again after a while in
        // which most of them were busy; but few enough that no operation waits long.
        let most = 8 + nodes.len().saturating_sub(limit).min(512);
        let idle = |ino, node: &Node| !busy(ino) && node.evictable();
        nodes.sweep(limit, most, idle, |ino, node| {
            *evicted_staged = node.staged.max(*evicted_staged);
            gone(ino);
        });
    }

    /// The inode's extent tree has blocks and was changed.
    pub fn note_untidy(&mut self, ino: InodeNr) {
        self.untidy.insert(ino);
    }

    /// The next inode whose extent tree is to be packed.
    pub fn take_untidy(&mut self) -> Option<InodeNr> {
        self.untidy.pop_first()
    }

    /// Bytes of the table of nodes, without what single nodes hold.
    pub fn node_bytes(&self) -> u64 {
        self.nodes.bytes()
    }
}

/// The references to inodes.
impl Inodes {
    /// Opens the inode for a session: the number of a handle that no other had in this mount. For a
    /// session that has ended it stands for nothing.
    ///
    /// # Panics
    /// If the inode is not in memory.
    pub fn open(&mut self, ino: InodeNr, session: SessionId, access: Option<Access>) -> u64 {
        let node = self.nodes.get_mut(&ino).expect("loaded before use");
        let (handle, open) = self.references.open(session, ino, access);
        node.opens += u32::from(open);
        handle
    }

    /// Closes a session's handle; false if it has none such open.
    pub fn close(&mut self, handle: u64, session: SessionId) -> bool {
        let Some(ino) = self.references.close(session, handle) else { return false };
        self.one_less(ino);
        true
    }

    /// Something that is no handle refers to the inode, until [`Inodes::let_go`].
    ///
    /// # Panics
    /// If the inode is not in memory.
    pub fn keep(&mut self, ino: InodeNr) {
        self.nodes.get_mut(&ino).expect("loaded before use").opens += 1;
    }

    /// What [`Inodes::keep`] counted is over.
    pub fn let_go(&mut self, ino: InodeNr) {
        self.one_less(ino);
    }

    fn one_less(&mut self, ino: InodeNr) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.opens = node.opens.saturating_sub(1);
        }
        self.queue_if_unreferenced(ino);
    }

    /// The session has ended, and refers to nothing any more.
    pub fn end_session(&mut self, session: SessionId) {
        let LetGo { handles, lookups } = self.references.end(session);
        self.ends.end(session);
        handles.into_iter().for_each(|ino| self.one_less(ino));
        lookups.into_iter().for_each(|ino| self.queue_if_unreferenced(ino));
    }

    /// The session gives up `count` of its lookups of the inode.
    pub fn forget(&mut self, session: SessionId, ino: InodeNr, count: u64) {
        self.references.forget(session, ino, count);
        if !self.references.has_looked_up(session, ino) {
            self.ends.forget(session, ino);
        }
        self.queue_if_unreferenced(ino);
    }

    /// Does an open handle or a lookup refer to the inode?
    pub fn is_referenced(&self, ino: InodeNr) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.opens > 0) || self.references.is_looked_up(ino)
    }

    /// Nobody refers to anything any more: every unlinked inode is to be freed.
    pub fn forget_all(&mut self) {
        self.references.forget_all();
        for ino in &self.orphans {
            if let Some(node) = self.nodes.get_mut(ino) {
                node.opens = 0;
            }
            self.evict_queue.push_back(*ino);
        }
    }

    /// Is there a removed file that a handle or a lookup still refers to?
    pub fn is_removed_in_use(&self) -> bool {
        self.orphans.iter().any(|ino| self.is_referenced(*ino))
    }
}

/// The inodes without a name, or with a truncation that is not finished.
impl Inodes {
    /// The inode is on the orphan list from now on.
    pub fn orphaned(&mut self, ino: InodeNr) {
        self.orphans.insert(ino);
    }

    /// The inode is not on the orphan list any more, or its number is another inode's now.
    pub fn not_orphaned(&mut self, ino: InodeNr) {
        self.orphans.remove(&ino);
    }

    /// Is the inode on the orphan list?
    pub fn is_orphan(&self, ino: InodeNr) -> bool {
        self.orphans.contains(&ino)
    }

    /// How many inodes are on the orphan list.
    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// How many of those on the orphan list are not in memory with a name.
    pub fn unnamed_orphans(&self) -> usize {
        let named = |i: &&InodeNr| self.nodes.get(i).is_some_and(|n| n.inode.nlink > 0);
        self.orphans.len() - self.orphans.iter().filter(named).count()
    }

    /// Queues an inode to be freed if it is unlinked, has no open handle, and no lookup refers to
    /// it.
    pub fn queue_if_unreferenced(&mut self, ino: InodeNr) {
        let Some(node) = self.nodes.get(&ino) else { return };
        if node.inode.nlink == 0 && node.opens == 0 && !self.references.is_looked_up(ino) {
            self.evict_queue.push_back(ino);
        }
    }

    /// Is an inode queued to be freed?
    pub fn has_to_free(&self) -> bool {
        !self.evict_queue.is_empty()
    }

    /// The next inode of the queue that is still on the orphan list. It may have got a reference
    /// since it was queued.
    pub fn next_to_free(&mut self) -> Option<InodeNr> {
        while let Some(ino) = self.evict_queue.pop_front() {
            if self.orphans.contains(&ino) {
                return Some(ino);
            }
        }
        None
    }

    /// The inode could not be freed now: it is the next one again.
    pub fn free_later(&mut self, ino: InodeNr) {
        self.evict_queue.push_front(ino);
    }

    /// The inode was freed.
    pub fn freed(&mut self, ino: InodeNr) {
        self.orphans.remove(&ino);
        self.untidy.remove(&ino);
    }
}

#[cfg(test)]
#[path = "inodes_tests.rs"]
mod tests;
