//! Write leases: who holds which file alone, and for how long (rules R48, R49 and R54;
//! `docs/design/front-ends.md`, "Leases").
//!
//! 1. *Draining.* [`Leases::begin`] made it. Other sessions lose what they cache of the file, and
//!    what is pending of it is made durable. Nobody waits for it: a request of another session
//!    goes on, and the lease is not granted if one came too late.
//! 2. *Granted.* The holder may have changes that nobody else has seen.
//! 3. *Recalled.* Another session wants the file, and waits.
//! 4. *Ended.* It is not here any more.
//!
//! Times are nanoseconds of [`siftfs_base::Clock::boot_ns`].

pub mod direct;
pub mod readers;
pub mod rooms;

use crate::state::changes::Noted;
use crate::state::step::{Step, Stop};
use crate::state::tree::nodes::give_back;
use crate::state::tree::references::SessionId;
use crate::state::{Inodes, Tree};
use ahash::HashMap;
use direct::Directs;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{Holder, LeaseId, Owed, Shown, Target};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A file of which three leases were recalled within this time is left alone.
const OFTEN: Duration = Duration::from_secs(1);
/// How long a file is left alone: nobody gets a lease of it.
const ALONE: Duration = Duration::from_secs(10);
/// Leases at a time, of all sessions together.
pub const MOST_LEASES: usize = 64 << 10;
/// Files whose recalls are remembered.
const MOST_RECALLS: usize = 64 << 10;

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Is a time over that ends at `until` and was no longer than `longest` when it began? A clock that
/// was set back makes nothing last longer.
fn is_over(until: u64, longest: Duration, now: u64) -> bool {
    until.checked_sub(now).is_none_or(|left| left == 0 || left > ns(longest))
}

/// What a request is about to do with a file that may be leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Whose request it is.
    pub session: SessionId,
    /// What it does.
    pub does: Does,
}

/// What that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It writes, and may leave pages of the file in its session's cache.
    Pages,
    /// It reads bytes, and so may do as well.
    Reads,
    /// It reads or changes the file in any other way.
    Anything,
    /// It reads what no session that lends changes: extended attributes and flags.
    Asides,
    /// It makes durable what there is of the file.
    Durable,
}

impl Does {
    /// May it change the file?
    fn may_change(self) -> bool {
        match self {
            Self::Pages | Self::Anything => true,
            Self::Reads | Self::Asides | Self::Durable => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Other sessions touched the file since they were told last: in any way, and so that they may
    /// have pages.
    Draining {
        touched: bool,
        pages: bool,
    },
    Granted,
    Recalled,
}

/// One lease.
#[derive(Clone, Copy, Debug)]
struct Lease {
    id: LeaseId,
    session: SessionId,
    /// Its session lends: the daemon itself has it, and ends it. Programs were told by then that
    /// they wrote, or that it is durable, so no clock ends it, also if the machine has slept.
    lends: bool,
    generation: u32,
    phase: Phase,
    /// When it ends by itself.
    until: u64,
    /// The smallest and the largest size that others may have been told of: the file's when it was
    /// granted, and those that were shown.
    told: (u64, u64),
}

impl Lease {
    fn is_over(&self, term: Duration, now: u64) -> bool {
        let granted = !matches!(self.phase, Phase::Draining { .. });
        granted && !self.lends && is_over(self.until, term, now)
    }
}

/// A session that may hold leases.
struct Holding {
    holder: Arc<dyn Holder>,
    /// It changes nothing but what is leased to it, and of that nothing but bytes, size and times.
    lends: bool,
    leases: u64,
}

/// The last recalls of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Recalls {
    last: [Option<u64>; 2],
    alone_until: Option<u64>,
}

impl Recalls {
    fn is_alone(&self, now: u64) -> bool {
        self.alone_until.is_some_and(|until| !is_over(until, ALONE, now))
    }

    fn is_old(&self, now: u64) -> bool {
        let recent = |at: u64| now.abs_diff(at) < ns(OFTEN);
        !self.is_alone(now) && !self.last[0].is_some_and(recent)
    }
}

/// A lease that is recalled.
pub struct Recalled {
    /// The lease.
    pub lease: LeaseId,
    /// The one to be told; nobody if that was done before, or the lease's term is over.
    pub holder: Option<Arc<dyn Holder>>,
}

/// A lease that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its file.
    pub ino: InodeNr,
    /// Whose it was.
    pub session: SessionId,
    /// The smallest and the largest size that others were told of.
    pub told: (u64, u64),
}

/// All leases that have not ended.
#[derive(Default)]
pub struct Leases {
    /// How long one lasts without a use, and once it is recalled.
    term: Duration,
    of_file: HashMap<InodeNr, Lease>,
    /// How many those are.
    live: Arc<AtomicUsize>,
    files: HashMap<LeaseId, InodeNr>,
    holders: HashMap<SessionId, Holding>,
    recalls: HashMap<InodeNr, Recalls>,
    /// Files whose last lease has ended, and what is owed to the other sessions for that.
    settling: HashMap<InodeNr, Owed>,
    /// None is granted.
    closed: bool,
    /// What programs have of leased files at the storage's target.
    pub direct: Directs,
    numbers: RandomState,
    drawn: u64,
}

/// Sessions that may hold leases.
impl Leases {
    /// None, each of which will last for `term`.
    pub fn new(term: Duration) -> Self {
        Self { term, ..Self::default() }
    }

    /// How many there are, to be looked at without the state lock.
    pub fn live(&self) -> Arc<AtomicUsize> {
        self.live.clone()
    }

    /// How long a lease lasts without a use, and once it is recalled.
    pub fn term(&self) -> Duration {
        self.term
    }

    /// A session may hold leases from now on. One that `lends` changes nothing else.
    pub fn hold(&mut self, session: SessionId, holder: Arc<dyn Holder>, lends: bool) {
        self.holders.insert(session, Holding { holder, lends, leases: 0 });
    }

    /// A session ends. Its leases are to be ended: the files.
    pub fn end_session(&mut self, session: SessionId) -> Vec<InodeNr> {
        match self.holders.remove(&session) {
            Some(holding) if holding.leases > 0 => self.of_session(session),
            _ => Vec::new(),
        }
    }

    /// The files that are leased to the session, or about to be.
    pub fn of_session(&self, session: SessionId) -> Vec<InodeNr> {
        let own = self.of_file.iter().filter(|(_, lease)| lease.session == session);
        own.map(|(ino, _)| *ino).collect()
    }

    /// Is a file leased to the session, or about to be?
    pub fn has_any(&self, session: SessionId) -> bool {
        self.holders.get(&session).is_some_and(|holding| holding.leases > 0)
    }

    /// Is nothing granted any more?
    pub fn close(&mut self, closed: bool) {
        self.closed = closed;
    }
}

/// What leads to a lease.
impl Leases {
    /// A session wants the lease of a file that nobody has.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a session that may hold none, `EBUSY` if it has this one, `EAGAIN` if it
    /// has `most`, another session is about to get this one, the end of the last one is not told
    /// everywhere, or nobody gets it for a while.
    ///
    /// # Panics
    /// If the lease is to be recalled first.
    pub fn begin(
        &mut self,
        (session, most): (SessionId, u64),
        (ino, generation): (InodeNr, u32),
        now: u64,
    ) -> Result<LeaseId> {
        let busy = || errno(libc::EAGAIN);
        let holding = self.holders.get_mut(&session).ok_or_else(|| errno(libc::EOPNOTSUPP))?;
        if let Some(lease) = self.of_file.get(&ino) {
            assert!(matches!(lease.phase, Phase::Draining { .. }) || lease.session == session);
            return Err(if lease.session == session { errno(libc::EBUSY) } else { busy() });
        }
        let many = self.of_file.len() >= MOST_LEASES || self.recalls.len() >= MOST_RECALLS;
        let alone = self.recalls.get(&ino).is_some_and(|recalls| recalls.is_alone(now));
        let settling = self.settling.get(&ino).is_some_and(|owed| !owed.is_settled());
        if self.closed || many || alone || settling || holding.leases >= most {
            return Err(busy());
        }
        holding.leases += 1;
        let lends = holding.lends;
        let id = self.draw();
        let phase = Phase::Draining { touched: false, pages: false };
        let lease = Lease { id, session, lends, generation, phase, until: 0, told: (0, 0) };
        self.of_file.insert(ino, lease);
        self.live.store(self.of_file.len(), Ordering::SeqCst);
        self.files.insert(id, ino);
        Ok(id)
    }

    /// A number that names no lease, and no grant.
    pub fn draw(&mut self) -> LeaseId {
        loop {
            self.drawn += 1;
            let id = LeaseId(self.numbers.hash_one(self.drawn));
            if !self.files.contains_key(&id) && !self.direct.readers.is_named(id) {
                return id;
            }
        }
    }

    fn draining(&mut self, id: LeaseId) -> Result<(&mut bool, &mut bool)> {
        let ino = self.files.get(&id).ok_or_else(|| errno(libc::ESTALE))?;
        match self.of_file.get_mut(ino).map(|lease| &mut lease.phase) {
            Some(Phase::Draining { touched, pages }) => Ok((touched, pages)),
            _ => Err(errno(libc::ESTALE)),
        }
    }

    /// The other sessions are about to be told that they lose all that they cache of the file.
    ///
    /// # Errors
    /// `ESTALE` if the lease has ended.
    pub fn take_all(&mut self, id: LeaseId) -> Result<()> {
        self.draining(id).map(|(_, pages)| *pages = false)
    }

    /// The other sessions have lost that, and are about to be told once more that the file's
    /// attributes may change.
    ///
    /// # Errors
    /// `ESTALE` if the lease has ended.
    pub fn take_attributes(&mut self, id: LeaseId) -> Result<()> {
        self.draining(id).map(|(touched, _)| *touched = false)
    }

    /// Grants the lease of a file of `size` bytes, unless another session touched it since it was
    /// told: false then.
    ///
    /// # Errors
    /// `ESTALE` if the lease has ended, `EAGAIN` if none is granted any more.
    pub fn grant(&mut self, id: LeaseId, size: u64, now: u64) -> Result<bool> {
        let (touched, pages) = self.draining(id)?;
        if *touched || *pages {
            return Ok(false);
        }
        if self.closed {
            return Err(errno(libc::EAGAIN));
        }
        let lease = self.files.get(&id).and_then(|ino| self.of_file.get_mut(ino));
        let lease = lease.expect("just seen");
        (lease.phase, lease.told) = (Phase::Granted, (size, size));
        lease.until = now.saturating_add(ns(self.term));
        Ok(true)
    }
}

/// What a lease does while it is there, and its end.
impl Leases {
    /// Is nobody's lease here?
    pub fn is_empty(&self) -> bool {
        self.of_file.is_empty()
    }

    /// Is nothing here that a request may touch?
    fn has_nothing(&self) -> bool {
        self.is_empty() && self.direct.readers.is_empty()
    }

    /// Is the file leased, or about to be?
    pub fn is_leased(&self, ino: InodeNr) -> bool {
        self.of_file.contains_key(&ino)
    }

    /// Is there a lease of the file that ends before a session gets one?
    pub fn is_in_the_way(&self, session: SessionId, ino: InodeNr, now: u64) -> bool {
        let lease = self.of_file.get(&ino);
        lease.is_some_and(|lease| match lease.phase {
            Phase::Draining { .. } => false,
            Phase::Granted | Phase::Recalled => {
                lease.session != session || lease.is_over(self.term, now)
            }
        })
    }

    /// Whose lease of the file was granted?
    pub fn holder_of(&self, ino: InodeNr) -> Option<SessionId> {
        let lease = self.of_file.get(&ino)?;
        (!matches!(lease.phase, Phase::Draining { .. })).then_some(lease.session)
    }

    /// A request is about to touch the inode, which is noted.
    ///
    /// # Errors
    /// Stops if another session's lease of it has to end before, or what is granted of it.
    pub fn touch(&mut self, touch: Touch, ino: InodeNr) -> Step<()> {
        if touch.does.may_change() {
            self.direct.touch_readers(ino)?;
        }
        let Some(lease) = self.of_file.get_mut(&ino) else { return Ok(()) };
        let lends = || self.holders.get(&lease.session).is_some_and(|holding| holding.lends);
        if lease.session == touch.session {
            return match touch.does {
                // What it reads is looked at where it is known.
                Does::Asides | Does::Durable | Does::Reads => Ok(()),
                Does::Pages | Does::Anything => self.direct.touch(ino),
            };
        }
        if touch.does == Does::Asides && lends() {
            return Ok(());
        }
        match &mut lease.phase {
            Phase::Draining { touched, pages } => {
                *touched = true;
                *pages |= matches!(touch.does, Does::Pages | Does::Reads);
                Ok(())
            }
            Phase::Granted | Phase::Recalled => Err(Stop::Recall(ino)),
        }
    }

    /// Attributes of the inode are about to be told to a session. If another one has the lease,
    /// what its holder shows: the size that is told follows by [`Leases::note_told`].
    ///
    /// # Errors
    /// Stops if the lease has to end before: its holder shows nothing, or its term is over.
    pub fn look(&mut self, session: SessionId, ino: InodeNr, now: u64) -> Step<Option<Shown>> {
        let lease = self.of_file.get_mut(&ino).filter(|lease| lease.session != session);
        let Some(lease) = lease else { return Ok(None) };
        if let Phase::Draining { touched, .. } = &mut lease.phase {
            *touched = true;
            return Ok(None);
        }
        let holding = self.holders.get(&lease.session).filter(|_| !lease.is_over(self.term, now));
        let shown = holding.and_then(|holding| holding.holder.attributes(lease.id));
        shown.map(Some).ok_or(Stop::Recall(ino))
    }

    /// Others are told that the leased file has this size.
    pub fn note_told(&mut self, ino: InodeNr, size: u64) {
        if let Some(lease) = self.of_file.get_mut(&ino) {
            lease.told = (lease.told.0.min(size), lease.told.1.max(size));
        }
    }

    /// The holder uses its lease: the file, and its generation.
    ///
    /// # Errors
    /// `ESTALE` if the lease has ended, or its term is over, or it is another session's.
    pub fn used(&mut self, session: SessionId, id: LeaseId, now: u64) -> Result<(InodeNr, u32)> {
        let stale = || errno(libc::ESTALE);
        let ino = *self.files.get(&id).ok_or_else(stale)?;
        let lease = self.of_file.get_mut(&ino).filter(|lease| lease.session == session);
        let lease = lease.ok_or_else(stale)?;
        match lease.phase {
            Phase::Draining { .. } => return Err(stale()),
            _ if lease.is_over(self.term, now) => return Err(stale()),
            Phase::Granted => lease.until = now.saturating_add(ns(self.term)),
            Phase::Recalled => {}
        }
        Ok((ino, lease.generation))
    }

    /// The file's lease is to end; none if it has none that was granted.
    pub fn recall(&mut self, ino: InodeNr, now: u64) -> Option<Recalled> {
        let lease = self.of_file.get_mut(&ino)?;
        let id = lease.id;
        match lease.phase {
            Phase::Draining { .. } => None,
            _ if lease.is_over(self.term, now) => Some(Recalled { lease: id, holder: None }),
            Phase::Recalled => Some(Recalled { lease: id, holder: None }),
            Phase::Granted => {
                lease.phase = Phase::Recalled;
                lease.until = now.saturating_add(ns(self.term));
                let holding = self.holders.get(&lease.session);
                let holder = holding.map(|holding| holding.holder.clone());
                self.note_recall(ino, now);
                Some(Recalled { lease: id, holder })
            }
        }
    }

    fn note_recall(&mut self, ino: InodeNr, now: u64) {
        if self.recalls.len() >= self.recalls.capacity() / 2 {
            self.recalls.retain(|_, recalls| !recalls.is_old(now));
        }
        let recalls = self.recalls.entry(ino).or_default();
        if recalls.last[1].is_some_and(|at| now.abs_diff(at) < ns(OFTEN)) {
            recalls.alone_until = Some(now.saturating_add(ns(ALONE)));
        }
        recalls.last = [Some(now), recalls.last[0]];
    }

    /// The term of the file's lease is over. If its holder was told to give it back, nobody gets a
    /// lease of the file for a while, so that those who waited get the file.
    pub fn note_silence(&mut self, ino: InodeNr, now: u64) {
        if self.of_file.get(&ino).is_none_or(|lease| lease.phase != Phase::Recalled) {
            return;
        }
        let alone_until = Some(now.saturating_add(ns(ALONE)));
        self.recalls.entry(ino).or_default().alone_until = alone_until;
    }

    /// Does the daemon itself have the file's lease?
    pub fn is_lent(&self, ino: InodeNr) -> bool {
        self.of_file.get(&ino).is_some_and(|lease| lease.lends)
    }

    /// How long the lease lasts at most, if its session does not lend; nothing if it has ended.
    pub fn left(&self, ino: InodeNr, id: LeaseId, now: u64) -> Option<Duration> {
        let lease = self.of_file.get(&ino).filter(|lease| lease.id == id)?;
        let granted = !matches!(lease.phase, Phase::Draining { .. });
        match granted && is_over(lease.until, self.term, now) {
            true => Some(Duration::ZERO),
            false => Some(Duration::from_nanos(lease.until.saturating_sub(now))),
        }
    }

    /// The files whose leases are over at `now`; without `now` all that were granted.
    pub fn due(&self, now: Option<u64>) -> Vec<InodeNr> {
        let granted = |lease: &Lease| !matches!(lease.phase, Phase::Draining { .. });
        let due = self.of_file.iter().filter(|(_, lease)| match now {
            Some(now) => lease.is_over(self.term, now),
            None => granted(lease),
        });
        due.map(|(ino, _)| *ino).collect()
    }

    /// The file's lease has ended, for which this is owed. Nobody gets a lease of it before: the
    /// notices of that would have kernels drop what they are being told.
    pub fn settles(&mut self, ino: InodeNr, owed: Owed) {
        self.settling.retain(|_, owed| !owed.is_settled());
        if !owed.is_settled() {
            self.settling.insert(ino, owed);
        }
    }

    /// The file's lease, if it has one, is about to end: nothing more is granted by it.
    pub fn ends(&mut self, ino: InodeNr) -> Option<LeaseId> {
        let lease = self.of_file.get(&ino)?;
        self.direct.lease_ends(ino);
        Some(lease.id)
    }

    /// Is this the file's lease?
    pub fn is_of(&self, ino: InodeNr, id: LeaseId) -> bool {
        self.of_file.get(&ino).is_some_and(|lease| lease.id == id)
    }

    /// Is the lease, if it has not ended, to be given back?
    pub fn is_recalled(&self, ino: InodeNr) -> bool {
        self.of_file.get(&ino).is_some_and(|lease| lease.phase == Phase::Recalled)
    }

    /// The lease is not there any more.
    fn take(&mut self, ino: InodeNr) -> Option<Lease> {
        let lease = self.of_file.remove(&ino)?;
        self.direct.lease_ended(ino);
        self.live.store(self.of_file.len(), Ordering::SeqCst);
        self.files.remove(&lease.id);
        if let Some(holding) = self.holders.get_mut(&lease.session) {
            holding.leases -= 1;
        }
        give_back(&mut self.of_file);
        give_back(&mut self.files);
        Some(lease)
    }
}

/// What requests do with the files of a tree.
impl Leases {
    /// A request is about to touch the file that it names.
    ///
    /// # Errors
    /// Stops if another session's lease of it has to end before.
    pub fn touch_file(&mut self, tree: &Tree, touch: Touch, file: Target) -> Step<()> {
        if self.has_nothing() {
            return Ok(());
        }
        match file {
            Target::Inode(ino) => self.touch(touch, ino),
            Target::Open(handle) => {
                let opened = tree.inodes.references.opened(touch.session, handle.0);
                opened.map_or(Ok(()), |opened| self.touch(touch, opened.ino))
            }
        }
    }

    /// A request is about to touch what a directory's entry names, if there is one.
    ///
    /// # Errors
    /// As [`Leases::touch_file`], and those of the lookup.
    pub fn touch_name(
        &mut self,
        tree: &mut Tree,
        touch: Touch,
        (dir, name): (InodeNr, &[u8]),
    ) -> Step<()> {
        if self.has_nothing() {
            return Ok(());
        }
        let named = tree.lookup(dir, name)?;
        named.map_or(Ok(()), |ino| self.touch(touch, ino))
    }

    /// What a holder changes of a file while it has the lease, others are told when that has ended:
    /// until then they know nothing of the file, and a notice would make them ask.
    pub fn withhold(&self, session: SessionId, noted: &mut Noted) {
        if self.is_empty() {
            return;
        }
        let told = |ino: &InodeNr| self.holder_of(*ino) != Some(session);
        noted.attributes.retain(told);
        noted.data.retain(|ino, _| told(ino));
        noted.sizes.retain(|ino, _| told(ino));
    }

    /// The file's lease ends, if it has one, and refers to the file no more. Nothing, if it was not
    /// granted yet.
    pub fn end(&mut self, ino: InodeNr, inodes: &mut Inodes) -> Option<Ended> {
        let lease = self.take(ino)?;
        inodes.let_go(ino);
        let granted = !matches!(lease.phase, Phase::Draining { .. });
        granted.then_some(Ended { ino, session: lease.session, told: lease.told })
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
