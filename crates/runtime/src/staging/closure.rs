//! What an fsync must take along that is not its inode's own: name operations (rule R2) and pending
//! permission changes (rule R17).

use crate::staging::not_staged::Drafting;
use crate::state::Log;
use crate::state::Metadata;
use crate::state::Tree;
use crate::state::log::names::{self, Unstageable};
use crate::state::room::MOST_GUARDS;
use siftfs_base::{Error, InodeNr, Lsn, Result};
use siftfs_log::NameOpKind;
use std::collections::BTreeSet;

impl Metadata {
    /// The name operations of an fsync. If there is anything to make durable, what publishes
    /// files goes along: on its own it costs no fsync a write.
    pub fn closure(&mut self, inodes: &[InodeNr], own: bool) -> Drafting<BTreeSet<Lsn>> {
        let most = self.log.closure_max();
        let asked: Vec<(InodeNr, bool)> =
            inodes.iter().map(|ino| (*ino, self.tree.node(*ino).inode.is_dir())).collect();
        let mut ops = self.log.names.closure(&asked, false, most);
        if self.log.names.publishes() && ops.as_ref().is_ok_and(|ops| own || !ops.is_empty()) {
            ops = self.log.names.closure(&asked, true, most);
        }
        let ops = ops?;
        if self.moved_above(&ops)? {
            return Err(Unstageable::DirectoryMove.into());
        }
        Ok(ops)
    }

    /// As [`Metadata::closure`], when `own` operations on `names` are about to be made: what they
    /// must take along.
    pub fn closure_with(
        &mut self,
        inodes: &[InodeNr],
        names: &[(InodeNr, Vec<u8>)],
        own: usize,
    ) -> Drafting<BTreeSet<Lsn>> {
        let most = self.log.closure_max().saturating_sub(own);
        let ops = self.log.names.closure_of(inodes, names, most)?;
        let dirs = names.iter().map(|(dir, _)| *dir).collect();
        if self.moved_above(&ops)? || self.any_moved(dirs)? {
            return Err(Unstageable::DirectoryMove.into());
        }
        Ok(ops)
    }

    /// Was a directory moved anywhere above a name of `ops`? The name is to be found where the
    /// caller saw it, however far up the move was (rule R2).
    fn moved_above(&mut self, ops: &BTreeSet<Lsn>) -> Result<bool> {
        let mut dirs: Vec<InodeNr> = Vec::new();
        for op in ops.iter().filter_map(|l| self.log.names.get(*l)) {
            dirs.extend(names::keys(op).iter().map(|(dir, _)| *dir));
        }
        self.any_moved(dirs)
    }

    /// Was one of `dirs`, or a directory above one of them, moved?
    pub fn any_moved(&mut self, mut dirs: Vec<InodeNr>) -> Result<bool> {
        let mut seen: BTreeSet<InodeNr> = BTreeSet::from([siftfs_proto::ROOT_INO]);
        while let Some(dir) = dirs.pop() {
            if !seen.insert(dir) {
                continue;
            }
            if self.log.names.moves(dir) {
                return Ok(true);
            }
            match self.tree.load(dir) {
                // A directory that was left and removed meanwhile leads nowhere.
                Err(Error::Posix(libc::ESTALE)) => {}
                other => {
                    other?;
                    if self.tree.node(dir).inode.nlink > 0 {
                        dirs.push(self.tree.parent_of_dir(dir)?);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Inodes with a permission change that is not durable among `inodes`, their ancestors, what
    /// the closure names and the ancestors of each of its names (rule R17); and `more` directories
    /// and their ancestors. All that may guard a durable name, if the ancestors of an inode are not
    /// known, or with `every`.
    pub fn pending_permissions(
        &mut self,
        inodes: &[InodeNr],
        more: &[InodeNr],
        ops: &BTreeSet<Lsn>,
        every: bool,
    ) -> Drafting<Vec<InodeNr>> {
        let mut found = Vec::new();
        if self.log.running.permissions.is_empty() {
            return Ok(found);
        }
        let pending = |log: &Log, i: &InodeNr| log.running.permissions.is_pending(*i);
        let mut dirs: BTreeSet<InodeNr> = more.iter().copied().collect();
        for op in ops.iter().filter_map(|l| self.log.names.get(*l)) {
            dirs.extend(names::keys(op).iter().map(|(dir, _)| *dir));
            // A name must not show its file with access that was taken away before.
            let named = names::inodes(op).into_iter();
            found.extend(named.filter(|i| !inodes.contains(i) && pending(&self.log, i)));
        }
        let mut unknown = every;
        for ino in inodes {
            let node = self.tree.node(*ino);
            if node.inode.is_dir() {
                dirs.insert(*ino);
            } else if let Some(parent) = node.parent {
                dirs.insert(parent);
            } else if node.inode.nlink > 0 {
                unknown = true;
            }
            if pending(&self.log, ino) {
                found.push(*ino);
            }
        }
        if unknown {
            let guards = self.log.guards().filter(|i| !inodes.contains(i) && !found.contains(i));
            let guards: Vec<InodeNr> = guards.take(MOST_GUARDS + 1).collect();
            if guards.len() > MOST_GUARDS {
                return Err(Unstageable::UnknownAncestors.into());
            }
            found.extend(guards);
        }
        let mut seen: BTreeSet<InodeNr> = inodes.iter().copied().collect();
        seen.extend(found.iter().copied());
        for dir in dirs {
            self.find_pending_above(dir, &mut seen, &mut found)?;
        }
        Ok(self.tree.still_named(found)?)
    }

    /// Adds `dir` and the directories above it to `seen`, and to `found` those of them that were
    /// not seen and have a pending permission change.
    fn find_pending_above(
        &mut self,
        mut dir: InodeNr,
        seen: &mut BTreeSet<InodeNr>,
        found: &mut Vec<InodeNr>,
    ) -> Result<()> {
        let mut path = BTreeSet::new();
        loop {
            if seen.insert(dir) && self.log.running.permissions.is_pending(dir) {
                found.push(dir);
            }
            if dir == siftfs_proto::ROOT_INO {
                return Ok(());
            }
            if !path.insert(dir) {
                return Err(siftfs_base::corrupt("directory tree", "the parents form a loop"));
            }
            // A directory that was left and removed meanwhile guards nothing any more.
            match self.tree.load(dir) {
                Err(Error::Posix(libc::ESTALE)) => return Ok(()),
                other => other?,
            }
            if self.tree.node(dir).inode.nlink == 0 {
                return Ok(());
            }
            dir = self.tree.parent_of_dir(dir)?;
        }
    }

    /// Inodes that the closure renames over others, or names in a group: their data goes along
    /// (rule R20).
    pub fn replacing(&self, inodes: &[InodeNr], ops: &BTreeSet<Lsn>) -> Vec<InodeNr> {
        let moved: BTreeSet<InodeNr> = ops
            .iter()
            .filter_map(|l| self.log.names.get(*l))
            .filter_map(|op| match op.kind {
                NameOpKind::Rename { ino, displaced, .. } if displaced != 0 => Some(ino),
                NameOpKind::Rename { ino, .. } | NameOpKind::Link { ino, .. } => {
                    self.log.names.is_grouped(op.lsn).then_some(ino)
                }
                _ => None,
            })
            .filter(|i| !inodes.contains(i))
            .collect();
        let live = |i: &InodeNr| {
            self.tree.inodes.get(i).is_some_and(|n| n.inode.is_reg() && n.inode.nlink > 0)
        };
        moved.into_iter().filter(live).collect()
    }
}

impl Tree {
    /// Those of the inodes that have a name. The others guard nothing, and recovery may not find
    /// them. Nor do inodes guard anything that were freed while their change was on its way.
    fn still_named(&mut self, inodes: Vec<InodeNr>) -> Result<Vec<InodeNr>> {
        let mut named = Vec::new();
        for ino in inodes {
            match self.load(ino) {
                Err(Error::Posix(libc::ESTALE)) => continue,
                other => other?,
            }
            if self.node(ino).inode.nlink > 0 {
                named.push(ino);
            }
        }
        Ok(named)
    }
}

impl Log {
    /// Inodes with a permission change that is not durable and that may be above a durable name.
    /// What a pending operation creates is above none; above a name that the closure brings, it is
    /// found there.
    fn guards(&self) -> impl Iterator<Item = InodeNr> + '_ {
        self.running.permissions.pending().filter(|ino| !self.names.creates(*ino))
    }

    /// Are they too many for the record of a file whose ancestors are not known?
    pub fn has_many_guards(&self) -> bool {
        self.guards().nth(MOST_GUARDS).is_some()
    }
}
