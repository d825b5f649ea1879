//! Permission changes that are not durable (rule R17).

use crate::state::tree::generations::Generations;
use siftfs_base::{InodeNr, Lsn};
use std::collections::BTreeSet;

/// Permission changes, from the operation that made them until a record or a transaction has made
/// them durable.
#[derive(Default)]
pub struct Permissions {
    /// Inodes with a change that is not durable.
    pending: Generations<BTreeSet<InodeNr>>,
    /// The newest record that carries a change.
    last_staged: Lsn,
}

impl Permissions {
    /// The inode's permissions changed.
    pub fn changed(&mut self, ino: InodeNr) {
        self.pending.running_mut().insert(ino);
    }

    /// Is every change durable?
    pub fn is_empty(&self) -> bool {
        self.pending.each().iter().all(|pending| pending.is_empty())
    }

    /// Is a change of this inode not durable?
    pub fn is_pending(&self, ino: InodeNr) -> bool {
        self.pending.each().iter().any(|pending| pending.contains(&ino))
    }

    /// The inodes with a change that is not durable, ascending.
    pub fn pending(&self) -> impl Iterator<Item = InodeNr> + '_ {
        self.pending.running().union(self.pending.in_flight()).copied()
    }

    /// The record `lsn` carries the permissions of these inodes, which may be none.
    pub fn staged(&mut self, inodes: &[InodeNr], lsn: Lsn) {
        if !inodes.is_empty() {
            self.last_staged = lsn;
        }
        for ino in inodes {
            for pending in self.pending.each_mut() {
                pending.remove(ino);
            }
        }
    }

    /// The newest record that carries a permission change, of whatever inode; 0 if there is none.
    pub fn last_staged(&self) -> Lsn {
        self.last_staged
    }

    /// The inode was freed: the running transaction says nothing of its permissions.
    pub fn freed(&mut self, ino: InodeNr) {
        self.pending.running_mut().remove(&ino);
    }

    /// The running transaction is cut: it takes the changes along.
    pub fn cut(&mut self) {
        self.pending.cut();
    }

    /// The transaction in flight is durable.
    pub fn journaled(&mut self) {
        self.pending.journaled();
    }
}

#[cfg(test)]
#[path = "permissions_tests.rs"]
mod tests;
