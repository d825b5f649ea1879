//! The orphan list: inodes without a name that are still open, chained through `i_dtime` from
//! `s_last_orphan`, so that recovery can finish deleting them.

use std::collections::{BTreeMap, BTreeSet};

use siftfs_base::{InodeNr, Result, corrupt};

use crate::fs::Fs;
use crate::inode::Inode;
use crate::store::BlockStore;

/// Neighbours of an inode on the list; 0 means no neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    /// Nearer to the head.
    prev: InodeNr,
    /// Farther from the head: what `i_dtime` holds.
    next: InodeNr,
}

impl Fs {
    /// The inodes on the list, head first. Called once after opening a volume, before its inodes
    /// are read: from then on [`Fs::read_inode`] keeps the list's links out of `dtime`.
    ///
    /// Errors: `Corrupt` if the chain loops, leaves the inode range or meets an inode that is
    /// not in use.
    pub fn read_orphans(&mut self, store: &mut dyn BlockStore) -> Result<Vec<InodeNr>> {
        let (mut list, mut seen) = (Vec::new(), BTreeSet::new());
        let mut at = self.superblock.super_block().s_last_orphan.get();
        while at != 0 {
            if at < self.layout.geo.first_ino
                || !seen.insert(at)
                || !self.inode_in_use(store, at)?
            {
                let detail = format!("inode {at} is reserved, free or on it twice");
                return Err(corrupt("orphan list", detail));
            }
            list.push(at);
            at = match self.orphan_next(at) {
                Some(next) => next,
                None => self.read_inode(store, at)?.dtime,
            };
        }
        if self.orphans.is_none() {
            let ends = [0].into_iter();
            let prevs = ends.clone().chain(list.iter().copied());
            let nexts = list.iter().copied().skip(1).chain(ends);
            let links = prevs.zip(nexts).map(|(prev, next)| Links { prev, next });
            self.orphans = Some(list.iter().copied().zip(links).collect());
        }
        Ok(list)
    }

    /// What `i_dtime` of an orphan must hold; `None` if the inode is not on the list.
    pub(crate) fn orphan_next(&self, ino: InodeNr) -> Option<InodeNr> {
        self.orphans.as_ref()?.get(&ino).map(|l| l.next)
    }

    /// Is the inode on the list?
    pub fn is_orphan(&self, ino: InodeNr) -> bool {
        self.orphan_next(ino).is_some()
    }

    /// Puts an inode at the head of the list and writes it. Nothing happens if it is on it.
    pub fn orphan_add(&mut self, store: &mut dyn BlockStore, inode: &Inode) -> Result<()> {
        self.read_orphans_once(store)?;
        if self.is_orphan(inode.ino) {
            return self.write_inode(store, inode);
        }
        let head = self.superblock.super_block().s_last_orphan.get();
        let map = self.orphans.get_or_insert_with(BTreeMap::new);
        map.insert(inode.ino, Links { prev: 0, next: head });
        if let Some(old) = map.get_mut(&head) {
            old.prev = inode.ino;
        }
        self.superblock.set_last_orphan(inode.ino);
        self.write_inode(store, inode)
    }

    /// Takes an inode off the list and writes it, with `inode.dtime` again as its deletion time
    /// (set that before). Also rewrites the inode that pointed to it. Nothing but the write
    /// happens if it is not on the list.
    pub fn orphan_remove(&mut self, store: &mut dyn BlockStore, inode: &Inode) -> Result<()> {
        self.read_orphans_once(store)?;
        let removed = self.orphans.as_mut().and_then(|map| {
            let links = map.remove(&inode.ino)?;
            if let Some(next) = map.get_mut(&links.next) {
                next.prev = links.prev;
            }
            if let Some(prev) = map.get_mut(&links.prev) {
                prev.next = links.next;
            }
            Some(links)
        });
        match removed {
            Some(Links { prev: 0, next }) => self.superblock.set_last_orphan(next),
            Some(Links { prev, .. }) => {
                // The record as it stands; only its link, which write_inode supplies, changes.
                let before = self.read_inode(store, prev)?;
                self.write_inode(store, &before)?;
            }
            None => {}
        }
        self.write_inode(store, inode)
    }

    fn read_orphans_once(&mut self, store: &mut dyn BlockStore) -> Result<()> {
        if self.orphans.is_none() {
            self.read_orphans(store)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "orphan_tests.rs"]
mod tests;
