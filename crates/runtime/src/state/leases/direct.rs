//! What programs have of leased files at the storage's target: blocks that they read and write
//! there by themselves (rules R29 and R42; `docs/design/target.md`, "The data plane").
//!
//! 1. *Asked.* What is pending of the file is brought home; then its blocks are chosen, and the
//!    target is told.
//! 2. *Granted.* The program may read and write them.
//! 3. *Settling*, again and again. The target is asked to make durable what was written, and its
//!    answer is noted; then they are granted as before.
//! 4. *Extending*, again and again. More blocks were chosen, and the target is told; then they are
//!    granted as the others.
//! 5. *Ending.* The target is told, and answers when nothing runs any more.
//!
//! In 1, 3, 4 and 5 one thread asks the target, without the state lock; other threads that want the
//! file wait for it.

use crate::direct_plane::Written;
use crate::state::leases::readers::Readers;
use crate::state::leases::rooms::Rooms;
use crate::state::step::{Step, Stop};
use ahash::{HashMap, HashSet};
use siftfs_base::{BLOCK_BYTES, Blocks, Error, InodeNr, RangeSet, Result, errno};
use siftfs_proto::LeaseId;

/// Time between two checkpoints for the sake of grants, at least.
const BETWEEN_NS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asked,
    Granted,
    Settling,
    Extending,
    Ending,
}

#[derive(Debug)]
struct Direct {
    lease: LeaseId,
    phase: Phase,
    /// Blocks of the file.
    blocks: RangeSet<Blocks>,
    /// Those of them that were granted as fresh ones.
    fresh: RangeSet<Blocks>,
}

/// Blocks of a file that are to be granted.
#[derive(Debug, Default)]
pub struct Offered {
    /// All of them.
    pub blocks: RangeSet<Blocks>,
    /// Those that were never written.
    pub fresh: RangeSet<Blocks>,
}

/// What the end of a grant, or its settling, has to wait for.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing is granted of the file.
    Nothing,
    /// Another thread is at it.
    Wait,
    /// The target is to be told that this lease's grant ends, or is settled.
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
    /// What was set aside behind the ends of leased files.
    pub rooms: Rooms,
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
        let (blocks, fresh) = Default::default();
        let direct = Direct { lease, phase: Phase::Asked, blocks, fresh };
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

    /// These blocks are chosen, some of them fresh. From here on they are the program's.
    ///
    /// # Panics
    /// If nobody has asked.
    pub fn offer(&mut self, ino: InodeNr, offered: Offered) {
        let direct = self.of_file.get_mut(&ino).filter(|direct| direct.phase == Phase::Asked);
        let direct = direct.expect("one who asked is offered something");
        (direct.blocks, direct.fresh) = (offered.blocks, offered.fresh);
    }

    /// May more be granted by this lease now, beside what is granted of the file?
    ///
    /// # Errors
    /// `ESTALE` if nothing is granted by it, or the lease is ending.
    pub fn may_extend(&self, ino: InodeNr, lease: LeaseId) -> Result<bool> {
        let direct = self.of_file.get(&ino).filter(|direct| direct.lease == lease);
        let lasts = direct.filter(|direct| !matches!(direct.phase, Phase::Asked | Phase::Ending));
        match lasts.filter(|_| !self.closing.contains(&ino)) {
            Some(direct) => Ok(direct.phase == Phase::Granted),
            None => Err(errno(libc::ESTALE)),
        }
    }

    /// The blocks that are granted of a file, or about to be.
    pub fn blocks(&self, ino: InodeNr) -> Option<&RangeSet<Blocks>> {
        self.of_file.get(&ino).map(|direct| &direct.blocks)
    }

    /// How many blocks are granted as fresh ones.
    pub fn fresh_blocks(&self, ino: InodeNr) -> u64 {
        self.of_file.get(&ino).map_or(0, |direct| direct.fresh.total())
    }

    /// These blocks are chosen as well. From here on they are the program's.
    ///
    /// # Panics
    /// If nothing is granted, or the target is asked about it, or some are granted already.
    pub fn offer_more(&mut self, ino: InodeNr, more: &Offered) {
        let direct = self.of_file.get_mut(&ino).filter(|direct| direct.phase == Phase::Granted);
        let direct = direct.expect("what is granted grows");
        for (first, end) in more.blocks.iter() {
            assert!(!direct.blocks.overlaps(first, end), "a block is granted once");
            direct.blocks.insert(first, end);
        }
        more.fresh.iter().for_each(|(first, end)| direct.fresh.insert(first, end));
        direct.phase = Phase::Extending;
    }

    /// The target has granted what was offered besides, or has not: then it is nobody's again.
    ///
    /// # Panics
    /// If nothing was offered.
    pub fn extended(&mut self, ino: InodeNr, more: &Offered, granted: bool) {
        let direct = self.of_file.get_mut(&ino).filter(|direct| direct.phase == Phase::Extending);
        let direct = direct.expect("one who was offered more is answered");
        direct.phase = Phase::Granted;
        if !granted {
            more.blocks.iter().for_each(|(first, end)| direct.blocks.remove(first, end));
            more.fresh.iter().for_each(|(first, end)| direct.fresh.remove(first, end));
        }
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

    /// What the target may tell of a file as written for the first time, and has.
    ///
    /// # Errors
    /// Refused: some of it was not granted as fresh, so that the target cannot be believed.
    pub fn check_fresh(&self, ino: InodeNr, written: &Written) -> Result<()> {
        let direct = self.of_file.get(&ino);
        let within = |(first, end): (u64, u64)| {
            direct.is_some_and(|direct| direct.fresh.gaps(first, end).is_empty())
        };
        let reached = direct.and_then(|direct| direct.fresh.max_end()).unwrap_or(0);
        let ends = written.end <= reached.saturating_mul(BLOCK_BYTES);
        match ends && written.fresh.iter().all(within) {
            true => Ok(()),
            false => Err(Error::Refused("blocks were written that nobody has granted".into())),
        }
    }

    /// Does the program have this block of the file as a fresh one?
    pub fn has_fresh(&self, ino: InodeNr, block: u64) -> bool {
        self.of_file.get(&ino).is_some_and(|direct| direct.fresh.contains(block))
    }

    /// Is anything granted of the file, or about to be?
    pub fn has(&self, ino: InodeNr) -> bool {
        self.of_file.contains_key(&ino)
    }

    /// The target is to be asked to make durable what was written of the file: by which lease, or
    /// what that has to wait for.
    pub fn settle(&mut self, ino: InodeNr) -> End {
        match self.of_file.get_mut(&ino) {
            Some(direct) if direct.phase == Phase::Granted => {
                direct.phase = Phase::Settling;
                End::Revoke(direct.lease)
            }
            Some(Direct { phase: Phase::Asked, .. }) | None => End::Nothing,
            Some(_) => End::Wait,
        }
    }

    /// What the target has answered to that is noted.
    ///
    /// # Panics
    /// If it was not asked.
    pub fn settled(&mut self, ino: InodeNr) {
        let direct = self.of_file.get_mut(&ino).filter(|direct| direct.phase == Phase::Settling);
        direct.expect("one who settles is asked").phase = Phase::Granted;
    }

    /// How many files have a grant to write, or are about to.
    pub fn writers(&self) -> usize {
        self.of_file.len()
    }

    /// Is somebody about to be granted something of the file?
    pub fn is_asked(&self, ino: InodeNr) -> bool {
        let asked = |direct: &Direct| matches!(direct.phase, Phase::Asked | Phase::Extending);
        self.of_file.get(&ino).is_some_and(asked)
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
        drop(self.rooms.take(ino));
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
