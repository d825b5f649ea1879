//! Which inodes a session that caches has looked up, as far as its answers have come.
//!
//! A kernel that is told of a change of an inode may say that it does not know it. Then either it
//! has forgotten it, or it is about to learn of it from an answer that is on its way, with what was
//! before. That is told apart here: no count, and no answer on its way that was asked for before
//! the notice came.

use super::slots::Said;
use siftfs_base::InodeNr;
use siftfs_calls::{Grant, Proof, Proven};
use siftfs_proto::{DirEntry, Reply, Request};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A call that may look something up, in the order in which these begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked(u64);

/// An inode of a notice that is not taken back.
#[derive(Clone, Copy)]
struct Noticed {
    /// Calls from this one on began after the notice came.
    before: u64,
    /// Notices about it.
    notices: u32,
}

/// What is counted of an inode.
#[derive(Clone, Copy, Default)]
struct Count {
    references: u64,
    generation: u32,
    /// The server's code for a reference, if it checks callers.
    proof: Option<Proof>,
}

/// An inode that a session refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub ino: InodeNr,
    pub generation: u32,
    pub references: u64,
    pub proof: Option<Proof>,
}

impl Known {
    /// As it is shown to a server that checks callers.
    pub fn proven(&self) -> Option<Proven> {
        let Self { ino, generation, proof, .. } = *self;
        Some(Proven { ino, generation, grant: Grant::Reference, proof: proof? })
    }
}

impl Count {
    fn of(self, ino: InodeNr) -> Known {
        let Self { references, generation, proof } = self;
        Known { ino, generation, references, proof }
    }
}

#[derive(Default)]
struct Table {
    counts: HashMap<InodeNr, Count>,
    next: u64,
    under_way: BTreeSet<u64>,
    noticed: HashMap<InodeNr, Noticed>,
}

/// What a session has looked up.
#[derive(Default)]
pub(super) struct LookedUp(Mutex<Table>);

impl LookedUp {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is about to be sent. What may look something up is to be ended by
    /// [`LookedUp::answered`].
    pub fn asks(&self, request: &Request) -> Option<Asked> {
        use Request as R;
        match request {
            R::Forget { ino, count } => {
                let mut table = self.lock();
                if let Some(known) = table.counts.get_mut(ino) {
                    known.references = known.references.saturating_sub(*count);
                    if known.references == 0 {
                        table.counts.remove(ino);
                    }
                }
                None
            }
            R::Lookup { .. }
            | R::MakeNode { .. }
            | R::MakeDir { .. }
            | R::Symlink { .. }
            | R::Link { .. }
            | R::Create { .. }
            | R::TmpFile { .. }
            | R::ReadDir { plus: true, .. } => {
                let mut table = self.lock();
                let number = table.next;
                table.next += 1;
                table.under_way.insert(number);
                Some(Asked(number))
            }
            _ => None,
        }
    }

    /// It is answered. What it counted is noted before it counts as answered.
    pub fn answered(&self, asked: Option<Asked>, said: &Said) {
        let Some(Asked(number)) = asked else { return };
        let mut table = self.lock();
        let (result, noted) = said;
        let mut proofs = noted.proofs.iter().copied();
        let mut count = |ino, generation| {
            // References to a file that had the number before are given back by the number, too.
            let count = table.counts.entry(ino).or_default();
            count.generation = generation;
            count.references += 1;
            count.proof = proofs.next();
        };
        match result {
            Ok(Reply::Entry(attr) | Reply::Created { attr, .. }) => {
                count(attr.ino, attr.generation)
            }
            Ok(Reply::Dir(entries)) => {
                let counted = entries.iter().filter(|e| e.name != b"." && e.name != b"..");
                let generation = |e: &DirEntry| e.attr.as_ref().map_or(0, |attr| attr.generation);
                counted.for_each(|entry| count(entry.ino, generation(entry)));
            }
            _ => {}
        }
        table.under_way.remove(&number);
    }

    /// A notice about these inodes has come.
    pub fn notice(&self, inodes: &[InodeNr]) {
        let mut table = self.lock();
        let before = table.next;
        for ino in inodes {
            let noticed = table.noticed.entry(*ino).or_insert(Noticed { before, notices: 0 });
            noticed.before = before;
            noticed.notices += 1;
        }
    }

    /// It is taken back.
    pub fn taken(&self, inodes: &[InodeNr]) {
        let mut table = self.lock();
        for ino in inodes {
            if let Some(noticed) = table.noticed.get_mut(ino) {
                noticed.notices -= 1;
                if noticed.notices == 0 {
                    table.noticed.remove(ino);
                }
            }
        }
    }

    /// Has the session looked the inode up, or is an answer on its way that may say so, and may be
    /// older than a notice about it?
    pub fn has(&self, ino: InodeNr) -> bool {
        let table = self.lock();
        if table.counts.contains_key(&ino) {
            return true;
        }
        let first = table.under_way.first();
        let noticed = table.noticed.get(&ino);
        noticed.zip(first).is_some_and(|(noticed, first)| *first < noticed.before)
    }

    /// How often the session refers to the inode.
    pub fn references(&self, ino: InodeNr) -> u64 {
        self.lock().counts.get(&ino).map_or(0, |count| count.references)
    }

    /// The generation of an inode that the session refers to.
    pub fn generation(&self, ino: InodeNr) -> Option<u32> {
        self.lock().counts.get(&ino).map(|count| count.generation)
    }

    /// An inode that it refers to.
    pub fn known(&self, ino: InodeNr) -> Option<Known> {
        let count = self.lock().counts.get(&ino).copied();
        count.map(|count| count.of(ino))
    }

    /// What it has looked up.
    pub fn held(&self) -> Vec<Known> {
        self.lock().counts.iter().map(|(ino, count)| count.of(*ino)).collect()
    }

    /// All that it has looked up, with their generations.
    pub fn generations(&self) -> Vec<(InodeNr, u32)> {
        self.lock().counts.iter().map(|(ino, count)| (*ino, count.generation)).collect()
    }

    /// All that it has looked up.
    pub fn all(&self) -> Vec<InodeNr> {
        self.lock().counts.keys().copied().collect()
    }
}

#[cfg(test)]
#[path = "looked_tests.rs"]
pub(super) mod tests;
