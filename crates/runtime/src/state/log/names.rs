//! Pending name operations and their closure (rule R2).
//!
//! A name operation is pending from its execution until a staged transaction carries it or a
//! journal transaction that contains it is durable. A staged transaction that binds or removes a
//! name carries every pending operation connected with it: through the same name, the same inode,
//! the inode's directory if that is itself newly named, and the entries of a directory that must be
//! empty for the operation to be possible. What *publishes* a file, giving another name to bytes
//! that an fsync made durable before, goes along with the next record of any fsync.

use crate::state::costs;
use crate::state::tree::nodes::give_back;
use ahash::HashMap;
use siftfs_base::{InodeNr, Lsn};
use siftfs_log::{NameOp, NameOpKind};
use std::collections::{BTreeMap, BTreeSet};

/// Why a closure cannot be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum Unstageable {
    /// A directory was moved inside the closure.
    DirectoryMove,
    /// The closure has more operations than one staged transaction carries.
    ClosureTooLarge,
    /// The file's ancestors are not known, and more permission changes are pending than its record
    /// takes along.
    UnknownAncestors,
    /// The record would have more data than an eighth of the lane.
    TooMuchData,
}

struct Pending {
    op: NameOp,
    /// The operation moves a directory.
    moves_directory: bool,
    /// First and last operation of the group that it is in: one record carries all of them, and the
    /// data of their files.
    group: Option<(Lsn, Lsn)>,
}

/// What else is known of an operation.
#[derive(Clone, Copy, Default)]
pub struct Traits {
    /// The operation moves a directory.
    pub moves_directory: bool,
    /// The operation gives another name to a file whose bytes were made durable before, as programs
    /// publish what they have written.
    pub publishes: bool,
}

type Key = (InodeNr, Vec<u8>);

/// All pending name operations.
#[derive(Default)]
pub struct NameLog {
    ops: BTreeMap<Lsn, Pending>,
    by_inode: HashMap<InodeNr, BTreeSet<Lsn>>,
    by_key: HashMap<Key, BTreeSet<Lsn>>,
    by_dir: HashMap<InodeNr, BTreeSet<Lsn>>,
    /// The operations that publish a file.
    published: BTreeSet<Lsn>,
}

/// Names an operation binds or removes.
pub fn keys(op: &NameOp) -> Vec<(InodeNr, &[u8])> {
    match &op.kind {
        NameOpKind::Create { dir, name, .. }
        | NameOpKind::Link { dir, name, .. }
        | NameOpKind::Unlink { dir, name, .. }
        | NameOpKind::RemoveDir { dir, name, .. } => vec![(*dir, name)],
        NameOpKind::Rename { dir, name, new_dir, new_name, .. } => {
            vec![(*dir, name), (*new_dir, new_name)]
        }
        NameOpKind::Exchange { dir, name, other_dir, other_name, .. } => {
            vec![(*dir, name), (*other_dir, other_name)]
        }
    }
}

/// Inodes an operation names, unnames or moves.
pub fn inodes(op: &NameOp) -> Vec<InodeNr> {
    match &op.kind {
        NameOpKind::Create { ino, .. }
        | NameOpKind::Link { ino, .. }
        | NameOpKind::Unlink { ino, .. }
        | NameOpKind::RemoveDir { ino, .. } => vec![*ino],
        NameOpKind::Rename { ino, displaced: 0, .. } => vec![*ino],
        NameOpKind::Rename { ino, displaced, .. } => vec![*ino, *displaced],
        NameOpKind::Exchange { ino, other_ino, .. } => vec![*ino, *other_ino],
    }
}

/// Directories that must be empty for the operation, whose pending removals it therefore needs.
fn emptied(op: &NameOp) -> Option<InodeNr> {
    match &op.kind {
        NameOpKind::RemoveDir { ino, .. } => Some(*ino),
        NameOpKind::Rename { displaced, .. } if *displaced != 0 => Some(*displaced),
        _ => None,
    }
}

fn unindex<K: std::hash::Hash + Eq>(map: &mut HashMap<K, BTreeSet<Lsn>>, key: &K, lsn: Lsn) {
    if let Some(set) = map.get_mut(key) {
        set.remove(&lsn);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

impl NameLog {
    /// An operation has just been carried out under the state lock.
    pub fn push(&mut self, op: NameOp, traits: Traits) {
        let lsn = op.lsn;
        if traits.publishes {
            self.published.insert(lsn);
        }
        for ino in inodes(&op) {
            self.by_inode.entry(ino).or_default().insert(lsn);
        }
        for (dir, name) in keys(&op) {
            self.by_key.entry((dir, name.to_vec())).or_default().insert(lsn);
            self.by_dir.entry(dir).or_default().insert(lsn);
        }
        let old = self
            .ops
            .insert(lsn, Pending { op, moves_directory: traits.moves_directory, group: None });
        assert!(old.is_none(), "one operation per LSN");
    }

    /// The operations from `first` to `last`, which ran under one hold of the state lock, are a
    /// group: whatever carries one of them carries all.
    pub fn group(&mut self, first: Lsn, last: Lsn) {
        for pending in self.ops.range_mut(first..=last).map(|(_, pending)| pending) {
            assert!(pending.group.is_none(), "an operation is in one group");
            pending.group = Some((first, last));
        }
    }

    /// Is the pending operation in a group?
    pub fn is_grouped(&self, lsn: Lsn) -> bool {
        self.ops.get(&lsn).is_some_and(|pending| pending.group.is_some())
    }

    /// Number of pending operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Memory in bytes, about: each operation is in four indices, with its names in two.
    pub fn bytes(&self) -> u64 {
        let indices = self.by_inode.capacity() * size_of::<(InodeNr, BTreeSet<Lsn>)>()
            + self.by_key.capacity() * size_of::<(Key, BTreeSet<Lsn>)>()
            + self.by_dir.capacity() * size_of::<(InodeNr, BTreeSet<Lsn>)>();
        (self.ops.len() * (size_of::<Pending>() + costs::OPERATION) + indices) as u64
    }

    /// The oldest pending operation.
    pub fn oldest(&self) -> Option<Lsn> {
        self.ops.first_key_value().map(|(lsn, _)| *lsn)
    }

    /// The operation, if pending.
    pub fn get(&self, lsn: Lsn) -> Option<&NameOp> {
        self.ops.get(&lsn).map(|p| &p.op)
    }

    /// A staged transaction carries it now.
    pub fn remove(&mut self, lsn: Lsn) {
        let Some(pending) = self.ops.remove(&lsn) else { return };
        self.published.remove(&lsn);
        for ino in inodes(&pending.op) {
            unindex(&mut self.by_inode, &ino, lsn);
        }
        for (dir, name) in keys(&pending.op) {
            unindex(&mut self.by_key, &(dir, name.to_vec()), lsn);
            unindex(&mut self.by_dir, &dir, lsn);
        }
    }

    /// A journal transaction with this cut is durable.
    pub fn journaled(&mut self, cut: Lsn) {
        let done: Vec<Lsn> = self.ops.range(..=cut).map(|(l, _)| *l).collect();
        for lsn in done {
            self.remove(lsn);
        }
        give_back(&mut self.by_inode);
        give_back(&mut self.by_key);
        give_back(&mut self.by_dir);
    }

    /// Is anything pending that publishes a file?
    pub fn publishes(&self) -> bool {
        !self.published.is_empty()
    }

    /// The operations a staged transaction of `asked` must carry, in order. For a directory (each
    /// inode says whether it is one) that includes those on its entries. With `published`, also
    /// everything that publishes a file: a program that renames a durable file, and then makes
    /// another one durable that refers to it, never finds the second step without the first, as on
    /// ext4. At most `most`.
    pub fn closure(
        &self,
        asked: &[(InodeNr, bool)],
        published: bool,
        most: usize,
    ) -> Result<BTreeSet<Lsn>, Unstageable> {
        let mut work: Vec<Lsn> = Vec::new();
        for &(ino, is_dir) in asked {
            work.extend(self.of_inode(ino));
            if is_dir {
                work.extend(self.in_dir(ino));
            }
        }
        if published {
            work.extend(&self.published);
        }
        self.connected(work, most)
    }

    /// The operations that a new group of operations on these inodes and names, of theirs among the
    /// directories' entries, would have to take along; see [`NameLog::closure`].
    pub fn closure_of(
        &self,
        touched: &[InodeNr],
        names: &[(InodeNr, Vec<u8>)],
        most: usize,
    ) -> Result<BTreeSet<Lsn>, Unstageable> {
        let dirs = names.iter().map(|(dir, _)| dir);
        let mut work: Vec<Lsn> =
            touched.iter().chain(dirs).flat_map(|i| self.of_inode(*i)).collect();
        work.extend(names.iter().filter_map(|key| self.by_key.get(key)).flatten());
        work.extend(&self.published);
        self.connected(work, most)
    }

    /// `work`, and all that is connected with it.
    fn connected(&self, mut work: Vec<Lsn>, most: usize) -> Result<BTreeSet<Lsn>, Unstageable> {
        let mut found: BTreeSet<Lsn> = BTreeSet::new();
        while let Some(lsn) = work.pop() {
            if !found.insert(lsn) {
                continue;
            }
            if found.len() > most {
                return Err(Unstageable::ClosureTooLarge);
            }
            let Some(pending) = self.ops.get(&lsn) else { continue };
            if pending.moves_directory {
                return Err(Unstageable::DirectoryMove);
            }
            if let Some((first, last)) = pending.group {
                work.extend(self.ops.range(first..=last).map(|(lsn, _)| *lsn));
            }
            for i in inodes(&pending.op) {
                work.extend(self.of_inode(i));
            }
            for (dir, name) in keys(&pending.op) {
                work.extend(self.by_key.get(&(dir, name.to_vec())).into_iter().flatten());
                work.extend(self.of_inode(dir));
            }
            if let Some(dir) = emptied(&pending.op) {
                work.extend(self.in_dir(dir));
            }
        }
        Ok(found)
    }

    /// Is a move of this directory pending?
    pub fn moves(&self, dir: InodeNr) -> bool {
        self.of_inode(dir).any(|lsn| self.ops.get(&lsn).is_some_and(|p| p.moves_directory))
    }

    /// Is the inode's creation pending: does it not exist in the last durable state?
    pub fn creates(&self, ino: InodeNr) -> bool {
        let created = |lsn: Lsn| {
            let op = self.ops.get(&lsn).map(|p| &p.op.kind);
            matches!(op, Some(NameOpKind::Create { ino: made, .. }) if *made == ino)
        };
        self.of_inode(ino).any(created)
    }

    fn of_inode(&self, ino: InodeNr) -> impl Iterator<Item = Lsn> + '_ {
        self.by_inode.get(&ino).into_iter().flatten().copied()
    }

    fn in_dir(&self, ino: InodeNr) -> impl Iterator<Item = Lsn> + '_ {
        self.by_dir.get(&ino).into_iter().flatten().copied()
    }
}
