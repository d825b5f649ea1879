//! The files and directories as they are now.

pub mod ends;
pub mod former;
pub mod generations;
pub mod inodes;
pub mod node;
pub mod nodes;
pub mod overlay;
pub mod pools;
pub mod references;
pub mod sizes;

pub use self::inodes::Inodes;
use self::node::Node;
use crate::state::caches::meta_cache::MetaCache;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_ext4::{Fs, Mapping};
use siftfs_log::NameOpKind;

/// The files and directories as they are now. Nothing in here knows of logs: who changes something
/// notes in the [`Log`](crate::state::Log) what it is owed.
pub struct Tree {
    /// The ext4 layer.
    pub fs: Fs,
    /// Metadata blocks.
    pub meta: MetaCache,
    /// The inodes in memory, the references to them, and the inodes that are about to be freed.
    pub inodes: Inodes,
}

impl Tree {
    /// The inode's extent tree changed.
    pub fn note_tree(&mut self, ino: InodeNr) {
        if self.fs.layout.worst_case_touched(&self.node(ino).inode).is_ok_and(|t| t > 1) {
            self.inodes.note_untidy(ino);
        }
    }

    /// Is every block of `[first, end)` mapped and written? Where the mapping cannot be read, no:
    /// the bound is larger then, and the assembly, which needs the mapping, finds the error.
    pub fn has_home(&mut self, ino: InodeNr, first: u64, end: u64) -> bool {
        let mut block = first;
        while block < end {
            let node = self.inodes.get(&ino).expect("loaded before use");
            match self.fs.layout.map(&mut self.meta, &node.inode, block, end - block) {
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
    pub fn publishes(&self, kind: &NameOpKind) -> bool {
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
