//! What programs have of files at the storage's target to read alone: several of the same file at
//! once, as long as nothing changes it (rules R29 and R42; `docs/design/target.md`, "Readers").
//!
//! A grant is of an open handle, and needs no lease: the program has nothing that nobody else has,
//! so the host ends it without asking. Its steps:
//!
//! 1. *Asked.* What is pending of the file is brought home. Whatever changes the file meanwhile
//!    goes on, and the grant is not made.
//! 2. *Offered.* Its blocks are chosen, and the target is told.
//! 3. *Granted.* The program may read them.
//! 4. *Ending.* The target is told, and answers when nothing reads any more.
//!
//! In 2 and 4 one thread asks the target, without the state lock; whatever changes the file waits
//! for it. Each grant keeps its inode.

use crate::state::Inodes;
use crate::state::tree::nodes::give_back;
use crate::state::tree::references::SessionId;
use ahash::HashMap;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{Handle, LeaseId};
use std::hash::Hash;

/// Grants of one session at a time.
const MOST_OF_SESSION: usize = 1024;
/// Grants of one file at a time: a session that changes it waits for the end of each.
const MOST_OF_FILE: usize = 64;
/// After a file's grants were taken back because it changes, in nanoseconds of the monotonic clock,
/// none is made of it: so readers that ask again at once delay no writer without an end.
const QUIET_NS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asked,
    Offered,
    Granted,
    Ending,
}

/// An open handle of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Whose.
    pub session: SessionId,
    /// Which.
    pub handle: Handle,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    ino: InodeNr,
    reader: Reader,
    phase: Phase,
}

/// Whose grants are to end.
#[derive(Clone, Copy, Debug)]
pub enum Whose {
    /// Those of this file.
    File(InodeNr),
    /// That of this handle of a session.
    Handle(Reader),
    /// Those of this session.
    Session(SessionId),
}

/// What the end of grants has to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// None is left.
    Nothing,
    /// Another thread is at one.
    Wait,
    /// The target is to be told that this one ends.
    Revoke(LeaseId),
}

/// All such grants of the volume.
#[derive(Debug, Default)]
pub struct Readers {
    grants: HashMap<LeaseId, Grant>,
    of_file: HashMap<InodeNr, Vec<LeaseId>>,
    of_session: HashMap<SessionId, Vec<LeaseId>>,
    /// Files that are left quiet, and until when.
    quiet: HashMap<InodeNr, u64>,
}

impl Readers {
    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// Does a program read the file, or is it about to?
    pub fn has(&self, ino: InodeNr) -> bool {
        self.of_file.contains_key(&ino)
    }

    /// Is a grant called so?
    pub fn is_named(&self, id: LeaseId) -> bool {
        self.grants.contains_key(&id)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.grants.len()
    }

    /// A handle of the file asks for a grant, which is called `id`.
    ///
    /// # Errors
    /// `EAGAIN` if the handle has one, the file or the session has the most that it may have, or
    /// the file has just been changed.
    pub fn ask(
        &mut self,
        (ino, now): (InodeNr, u64),
        (reader, id): (Reader, LeaseId),
        inodes: &mut Inodes,
    ) -> Result<()> {
        let quiet = self.quiet.get(&ino).is_some_and(|until| is_quiet(*until, now));
        let of_file = self.of_file.get(&ino).map_or(0, Vec::len);
        let of_session = self.of_session.get(&reader.session).map_or(0, Vec::len);
        let has_one = !self.all(Whose::Handle(reader)).is_empty();
        if quiet || has_one || of_file >= MOST_OF_FILE || of_session >= MOST_OF_SESSION {
            return Err(errno(libc::EAGAIN));
        }
        self.grants.insert(id, Grant { ino, reader, phase: Phase::Asked });
        self.of_file.entry(ino).or_default().push(id);
        self.of_session.entry(reader.session).or_default().push(id);
        inodes.keep(ino);
        Ok(())
    }

    /// Moves a grant on; false if it is not there any more, because the file was to be changed.
    fn moves(&mut self, id: LeaseId, from: Phase, to: Phase) -> bool {
        let Some(grant) = self.grants.get_mut(&id) else { return false };
        assert_eq!(grant.phase, from, "a grant goes its steps in order");
        grant.phase = to;
        true
    }

    /// The grant's blocks are chosen. From here on whatever changes the file waits for its end.
    /// False if the file was to be changed meanwhile: there is no grant any more.
    pub fn offer(&mut self, id: LeaseId) -> bool {
        self.moves(id, Phase::Asked, Phase::Offered)
    }

    /// The target has granted what was offered.
    ///
    /// # Panics
    /// If nothing was offered.
    pub fn granted(&mut self, id: LeaseId) {
        let offered = self.moves(id, Phase::Offered, Phase::Granted);
        assert!(offered, "what is offered is not taken back before it is granted");
    }

    /// The file is about to be changed.
    pub fn note_change(&mut self, ino: InodeNr, now: u64) {
        if self.quiet.len() >= self.quiet.capacity() / 2 {
            self.quiet.retain(|_, until| is_quiet(*until, now));
        }
        self.quiet.insert(ino, now.saturating_add(QUIET_NS));
    }

    /// The grants of `whose` are to end. A grant that was asked for, and not offered, has ended
    /// when this returns.
    pub fn end(&mut self, whose: Whose, inodes: &mut Inodes) -> Next {
        for (id, grant) in self.all(whose) {
            if grant.phase == Phase::Asked {
                self.forget(id, inodes);
            }
        }
        let left = self.all(whose);
        match left.iter().find(|(_, grant)| grant.phase == Phase::Granted) {
            Some((id, _)) => {
                self.moves(*id, Phase::Granted, Phase::Ending);
                Next::Revoke(*id)
            }
            None if left.is_empty() => Next::Nothing,
            None => Next::Wait,
        }
    }

    fn all(&self, whose: Whose) -> Vec<(LeaseId, Grant)> {
        let ids = match whose {
            Whose::File(ino) => self.of_file.get(&ino),
            Whose::Session(session) => self.of_session.get(&session),
            Whose::Handle(reader) => self.of_session.get(&reader.session),
        };
        let known = |id: &LeaseId| self.grants.get(id).map(|grant| (*id, *grant));
        let of = |(_, grant): &(LeaseId, Grant)| match whose {
            Whose::Handle(reader) => grant.reader == reader,
            Whose::File(_) | Whose::Session(_) => true,
        };
        ids.into_iter().flatten().filter_map(known).filter(of).collect()
    }

    /// The grant has ended, or was not made; it keeps its inode no more.
    pub fn forget(&mut self, id: LeaseId, inodes: &mut Inodes) {
        let Some(Grant { ino, reader, .. }) = self.grants.remove(&id) else { return };
        leaves(&mut self.of_file, ino, id);
        leaves(&mut self.of_session, reader.session, id);
        give_back(&mut self.grants);
        inodes.let_go(ino);
    }
}

/// Is a file left quiet at `now`? A clock that was set back makes nothing last longer.
fn is_quiet(until: u64, now: u64) -> bool {
    until.checked_sub(now).is_some_and(|left| left > 0 && left <= QUIET_NS)
}

/// A grant is not one of its file's, or of its session's, any more.
fn leaves<K: Hash + Eq>(of: &mut HashMap<K, Vec<LeaseId>>, whose: K, id: LeaseId) {
    if let Some(ids) = of.get_mut(&whose) {
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            of.remove(&whose);
            give_back(of);
        }
    }
}

#[cfg(test)]
#[path = "readers_tests.rs"]
mod tests;
