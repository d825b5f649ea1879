//! What programs have of leased files at the storage's target: blocks that they read and write
//! there by themselves (rules R29 and R42; `docs/design/target.md`, "The data plane").
//!
//! 1. *Asked.* What is pending of the file is brought home; then its blocks are chosen, and the
//!    target is told.
//! 2. *Granted.* The program may read and write them.
//! 3. *Ending.* The target is told, and answers when nothing runs any more.
//!
//! In 1 and 3 one thread asks the target, without the state lock; other threads that want the file
//! wait for it.

use crate::state::leases::readers::Readers;
use crate::state::step::{Step, Stop};
use ahash::{HashMap, HashSet};
use siftfs_base::{Blocks, InodeNr, RangeSet, Result, errno};
use siftfs_proto::LeaseId;

/// Time between two checkpoints for the sake of grants, at least.
const BETWEEN_NS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asked,
    Granted,
    Ending,
}

#[derive(Debug)]
struct Direct {
    lease: LeaseId,
    phase: Phase,
    /// Blocks of the file.
    blocks: RangeSet<Blocks>,
}

/// What the end of a grant has to wait for.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing is granted of the file.
    Nothing,
    /// Another thread is at it.
    Wait,
    /// The target is to be told that this lease's grant ends.
    Revoke(LeaseId),
}

/// All grants of the volume.
#[derive(Debug, Default)]
pub struct Directs {
    /// What programs may read alone.
    pub readers: Readers,
    of_file: HashMap<InodeNr, Direct>,
    /// How often something was taken back for a file's other users.
    pub recalls: u64,
    /// Files whose leases are ending: nothing is granted of them any more.
    closing: HashSet<InodeNr>,
    /// When something was brought home last, in nanoseconds of the monotonic clock.
    brought: Option<u64>,
    /// Leased files of which something may be lost that a holder's fsync has not told.
    lost: HashSet<InodeNr>,
}

impl Directs {
    /// Something of a leased file is to be granted.
    ///
    /// # Errors
    /// `EAGAIN` if another thread is at it, `ESTALE` if the lease is ending.
    pub fn ask(&mut self, ino: InodeNr, lease: LeaseId) -> Result<()> {
        if self.closing.contains(&ino) {
            return Err(errno(libc::ESTALE));
        }
        if self.of_file.contains_key(&ino) {
            return Err(errno(libc::EAGAIN));
        }
        let direct = Direct { lease, phase: Phase::Asked, blocks: RangeSet::new() };
        self.of_file.insert(ino, direct);
        Ok(())
    }

    /// May what is pending be brought home at `now`? That is a checkpoint, which nobody is to make
    /// as often as he likes: what is home already is granted without.
    pub fn may_bring(&mut self, now: u64) -> bool {
        let may = self.brought.is_none_or(|last| now.saturating_sub(last) >= BETWEEN_NS);
        if may {
            self.brought = Some(now);
        }
        may
    }

    /// These blocks are chosen. From here on they are the program's.
    ///
    /// # Panics
    /// If nobody has asked.
    pub fn offer(&mut self, ino: InodeNr, blocks: RangeSet<Blocks>) {
        let direct = self.of_file.get_mut(&ino).filter(|direct| direct.phase == Phase::Asked);
        direct.expect("one who asked is offered something").blocks = blocks;
    }

    /// The target has granted what was offered.
    ///
    /// # Panics
    /// If nobody has asked.
    pub fn granted(&mut self, ino: InodeNr) {
        let direct = self.of_file.get_mut(&ino).filter(|direct| direct.phase == Phase::Asked);
        direct.expect("one who asked is granted something").phase = Phase::Granted;
    }

    /// Nothing is granted of the file: the target has not granted it, or has ended it. What was.
    pub fn forget(&mut self, ino: InodeNr) -> RangeSet<Blocks> {
        self.of_file.remove(&ino).map_or_else(RangeSet::new, |direct| direct.blocks)
    }

    /// The grant is to end.
    pub fn end(&mut self, ino: InodeNr) -> End {
        match self.of_file.get_mut(&ino) {
            None => End::Nothing,
            Some(direct) if direct.phase == Phase::Granted => {
                direct.phase = Phase::Ending;
                End::Revoke(direct.lease)
            }
            Some(_) => End::Wait,
        }
    }

    /// Is anything granted of the file, or about to be?
    pub fn has(&self, ino: InodeNr) -> bool {
        self.of_file.contains_key(&ino)
    }

    /// How many files have a grant to write, or are about to.
    pub fn writers(&self) -> usize {
        self.of_file.len()
    }

    /// Is somebody about to be granted something of the file?
    pub fn is_asked(&self, ino: InodeNr) -> bool {
        self.of_file.get(&ino).is_some_and(|direct| direct.phase == Phase::Asked)
    }

    /// The lease whose grant of the file the target has.
    pub fn of(&self, ino: InodeNr) -> Option<LeaseId> {
        let direct = self.of_file.get(&ino).filter(|direct| direct.phase == Phase::Granted);
        direct.map(|direct| direct.lease)
    }

    /// The files of which something is granted.
    pub fn files(&self) -> Vec<InodeNr> {
        self.of_file.keys().copied().collect()
    }

    /// The file's lease is ending: nothing more is granted.
    pub fn lease_ends(&mut self, ino: InodeNr) {
        self.closing.insert(ino);
    }

    /// The file's lease has ended.
    ///
    /// # Panics
    /// If something is granted by it.
    pub fn lease_ended(&mut self, ino: InodeNr) {
        assert!(!self.has(ino), "what was granted is taken back before (rule R29)");
        self.closing.remove(&ino);
        self.lost.remove(&ino);
    }

    /// What was written of a leased file under a grant, and not made durable, may be lost.
    pub fn note_lost(&mut self, ino: InodeNr) {
        self.lost.insert(ino);
    }

    /// May something be lost that was not told? It is from here on.
    pub fn take_lost(&mut self, ino: InodeNr) -> bool {
        self.lost.remove(&ino)
    }

    /// The holder's own session is about to do something with the file.
    ///
    /// # Errors
    /// Stops if something of it is granted.
    pub fn touch(&self, ino: InodeNr) -> Step<()> {
        if self.has(ino) { Err(Stop::TakeBack(ino)) } else { Ok(()) }
    }

    /// The file is about to be changed, or leased.
    ///
    /// # Errors
    /// Stops if a program reads it.
    pub fn touch_readers(&self, ino: InodeNr) -> Step<()> {
        if self.readers.has(ino) { Err(Stop::TakeBack(ino)) } else { Ok(()) }
    }

    /// It is about to do something with these bytes alone.
    ///
    /// # Errors
    /// Stops if a block of theirs is granted.
    pub fn touch_blocks(&self, ino: InodeNr, first: u64, end: u64) -> Step<()> {
        match self.of_file.get(&ino) {
            Some(direct) if direct.blocks.overlaps(first, end) => Err(Stop::TakeBack(ino)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "direct_tests.rs"]
mod tests;
