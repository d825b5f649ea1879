//! What a program has of one file: its lease, the way to what is granted, and what is not durable.

use crate::given::Given;
use crate::room::Appends;
use crate::session::{Shared, lock};
use crate::way::{After, Lost, Way};
use siftfs_base::{BLOCK_BYTES, Error, Result, errno};
use siftfs_device_target::RequestOrder;
use siftfs_proto::{Direct, DirectRun, Handle, LeaseId, Reply, Request};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Pauses before a lease, or a grant, is asked for again: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// Lives whose outcomes are kept, for calls that ask late.
const OUTCOMES: usize = 64;
/// Bytes of an early call that count as one more.
const EARLY_BYTES: u64 = 64 << 10;
/// Calls that go beside what is granted before more is asked for.
const BESIDE: u64 = 64;
/// Bytes kept of what the host has not heard of, from which on it hears of them: below what the
/// connection keeps at most.
pub(crate) const MOST_UNTOLD: u64 = 12 << 20;

/// What a file is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// To be read and written, by this program alone while it has a lease.
    Alone,
    /// To be read, beside other programs.
    Reads,
}

/// An open file.
pub(crate) struct Opened {
    pub shared: Arc<Shared>,
    pub handle: Handle,
    pub to: Use,
    order: RequestOrder,
    state: RwLock<State>,
    /// The file's size while there is a lease; without an end where others may have changed it.
    pub size: AtomicU64,
    used: AtomicBool,
    /// Calls since the last grant that went to the host.
    pub beside: AtomicU64,
    /// What was given to the host.
    pub given: Given,
    /// What was written to the target may be lost, which was not told.
    in_doubt: AtomicBool,
    /// Something was written for the first time under a grant that has ended since, and the host is
    /// not known to have made what the target tells it of that durable.
    untold: AtomicBool,
    appends: Mutex<Appends>,
    /// The first block of the file that calls have found not granted since more was asked for.
    missed: AtomicU64,
    /// The session's thread is to ask for room, or is at it.
    ahead: Mutex<bool>,
    /// It is not any more.
    asked_ahead: Condvar,
    /// Sections of the host, beside which no lease is asked for.
    sections: AtomicUsize,
    /// What the file's calls before its first grant have come to ([`Opened::goes_early`]).
    early: AtomicU64,
}

/// No lease is asked for until this is dropped.
pub(crate) struct WithoutLease<'a>(&'a Opened);

impl Drop for WithoutLease<'_> {
    fn drop(&mut self) {
        self.0.sections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How the file is reached. Calls hold it to read.
#[derive(Default)]
pub(crate) struct State {
    /// Nobody else uses the file.
    pub lease: Option<LeaseId>,
    /// Of a file with a lease.
    pub way: Option<Way>,
    /// Counts the ways.
    pub life: u64,
    /// What came of the writes that were not answered, of the lives that ended last.
    outcomes: BTreeMap<u64, Result<()>>,
    next: Option<Instant>,
    pause: Option<Duration>,
    /// The host has said that nothing is ever granted of it.
    never: bool,
    /// Until then there is no room behind the file's end.
    no_room: Option<Instant>,
}

impl Opened {
    pub fn new(shared: Arc<Shared>, handle: Handle, (to, order): (Use, RequestOrder)) -> Arc<Self> {
        let (state, used, beside, given, in_doubt, untold, appends) = Default::default();
        let (missed, ahead, asked_ahead) =
            (AtomicU64::new(u64::MAX), Mutex::default(), Condvar::new());
        let size = match to {
            Use::Alone => 0,
            Use::Reads => u64::MAX,
        };
        let size = AtomicU64::new(size);
        Arc::new(Self {
            shared,
            handle,
            to,
            order,
            state,
            size,
            used,
            beside,
            given,
            in_doubt,
            untold,
            appends,
            missed,
            ahead,
            asked_ahead,
            sections: AtomicUsize::new(0),
            early: AtomicU64::new(0),
        })
    }

    /// How the file is reached now, which does not change as long as this is held. Asks for a
    /// lease, or for more, where that is due.
    pub fn reach(self: &Arc<Self>) -> RwLockReadGuard<'_, State> {
        self.used.store(true, Ordering::Relaxed);
        let state = self.read();
        if !self.is_due(&state) {
            return state;
        }
        drop(state);
        self.ask();
        self.read()
    }

    /// As [`Opened::reach`], for what is of use with a grant alone: one is asked for at once.
    pub fn reach_now(self: &Arc<Self>) -> RwLockReadGuard<'_, State> {
        self.early.store(u64::MAX, Ordering::Relaxed);
        self.reach()
    }

    /// A call of this many bytes goes by the host because nothing was asked for yet.
    pub fn goes_early(&self, bytes: u64) {
        let more = 1 + bytes / EARLY_BYTES;
        let add = |early: u64| Some(early.saturating_add(more));
        let _ = self.early.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Is it time to ask for a lease, or for more?
    fn is_due(&self, state: &State) -> bool {
        let wants = match state.way.as_ref().map(Way::blocks) {
            None if state.lease.is_none() => {
                self.early.load(Ordering::Relaxed) >= self.shared.patience()
            }
            None => true,
            // What the file has may not have been home.
            Some(0) => self.size.load(Ordering::Relaxed) >= BLOCK_BYTES,
            Some(_) => self.beside.load(Ordering::Relaxed) >= BESIDE,
        };
        let may = !state.never && self.sections.load(Ordering::Acquire) == 0;
        wants && may && state.next.is_none_or(|next| Instant::now() >= next)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Was it used since this was asked last, or is something of it not flushed?
    pub fn was_used(&self) -> bool {
        let used = self.used.swap(false, Ordering::Relaxed);
        let flushed = |state: &State| state.way.as_ref().is_none_or(|w| w.queue().is_flushed());
        // A thread that changes the state uses the file.
        used || !self.state.try_read().is_ok_and(|state| flushed(&state))
    }

    /// May something be lost that was not told? It is from here on.
    pub fn take_doubt(&self) -> bool {
        self.in_doubt.swap(false, Ordering::AcqRel)
    }

    /// Has the host to say that it has made durable what a grant that has ended told it?
    pub fn owes(&self) -> bool {
        self.untold.load(Ordering::Acquire)
    }

    /// The host has said that, or that it is lost.
    pub fn settled(&self) {
        self.untold.store(false, Ordering::Release);
    }

    fn ask(self: &Arc<Self>) {
        let mut state = self.write();
        if !self.is_due(&state) {
            return;
        }
        // Room that there is stays.
        let room = state.way.as_ref().map_or(0, |way| way.fresh().end());
        let room = room.saturating_sub(self.size.load(Ordering::Acquire));
        let missed = self.missed.swap(u64::MAX, Ordering::Relaxed);
        self.ask_for(&mut state, (if missed == u64::MAX { 0 } else { missed }, room));
    }

    /// A call goes by the host because this block of the file is not granted.
    pub fn goes_beside(&self, block: u64) {
        self.missed.fetch_min(block, Ordering::Relaxed);
        self.beside.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks for a lease, or for more from this block of the file on, with this many bytes of room.
    fn ask_for(self: &Arc<Self>, state: &mut State, (first, room): (u64, u64)) {
        self.recover(state);
        let before = state.way.as_ref().map_or(0, Way::blocks);
        let more = self.extended(state, (first, room));
        match more.unwrap_or_else(|| self.granted(state, room)) {
            Ok(()) if state.way.as_ref().is_some_and(|way| way.blocks() > before) => {
                (state.next, state.pause) = (None, None);
            }
            Ok(()) => state.wait(),
            Err(Error::Posix(libc::EOPNOTSUPP)) => state.never = true,
            Err(error) => {
                tracing::debug!(%error, "nothing is granted");
                state.wait();
            }
        }
        self.beside.store(0, Ordering::Relaxed);
    }

    /// Adds to what is granted. `None`: nothing is, or it cannot grow, or room is to go.
    fn extended(&self, state: &mut State, (first, room): (u64, u64)) -> Option<Result<()>> {
        let size = self.size.load(Ordering::Acquire);
        let way = state.way.as_mut().filter(|_| self.to == Use::Alone)?;
        if room == 0 && way.fresh().end() > size {
            return None;
        }
        match self.ask_more(state.lease?, (first, size.saturating_add(room))) {
            Ok(runs) => {
                way.extend(runs);
                Some(Ok(()))
            }
            Err(Error::Posix(libc::ESTALE | libc::EAGAIN)) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn ask_more(&self, lease: LeaseId, (first, end): (u64, u64)) -> Result<Vec<DirectRun>> {
        let asks = Request::LeaseExtend { lease, file: self.handle.into(), first, end };
        self.shared.call(asks)?.extended()
    }

    fn granted(self: &Arc<Self>, state: &mut State, room: u64) -> Result<()> {
        let file = self.handle.into();
        let direct = match (self.to, state.lease) {
            (Use::Alone, None) => self.leased(state, room)?,
            (Use::Alone, Some(lease)) => {
                self.ask_grant(state, Request::LeaseDirect { lease, file, room })?
            }
            (Use::Reads, _) => self.ask_grant(state, Request::ReadDirect { file })?,
        };
        let lines = self.shared.lines(&direct.target)?;
        state.ends(Ok(()));
        state.way = None;
        state.way = Some(Way::open(lines, direct, self.order)?);
        Ok(())
    }

    /// The last grant ends with this, which makes durable what was written under it; what may be
    /// lost nevertheless is kept until the answer.
    fn ask_grant(&self, state: &mut State, asks: Request) -> Result<Direct> {
        let direct = self.shared.call(asks).and_then(Reply::direct);
        match direct.as_ref().err().map(Error::errno) {
            Some(libc::ESTALE) => self.end_lease(state),
            Some(libc::EIO) => {
                self.repeat_way(state);
                self.is_lost();
            }
            Some(_) => {}
            None => self.settled(),
        }
        direct
    }

    /// What a grant that has ended told the host is lost, if anything is.
    pub fn is_lost(&self) {
        if self.untold.swap(false, Ordering::AcqRel) {
            self.in_doubt.store(true, Ordering::Release);
        }
    }

    /// A lease, and what is granted with it. What keeps the host from granting is asked for.
    fn leased(self: &Arc<Self>, state: &mut State, room: u64) -> Result<Direct> {
        let file = self.handle.into();
        let asks = Request::Lease { file, writers: None, direct: Some(room) };
        let (lease, term, size, granted) = match self.shared.call(asks)? {
            Reply::Leased { lease, term, size, granted } => (lease, term, size, granted),
            other => return Err(other.leased().err().unwrap_or_else(|| errno(libc::EIO))),
        };
        self.shared.note(lease, term, self);
        state.lease = Some(lease);
        self.size.store(size, Ordering::Release);
        match granted {
            Some(granted) => Ok(*granted),
            None => self.ask_grant(state, Request::LeaseDirect { lease, file, room }),
        }
    }

    /// The way of this `life` did not do: the connection is lost, or the grant has ended. The
    /// caller holds nothing. What came of the writes of that life that were not answered; `ESTALE`:
    /// nothing, and they are to be done again.
    pub fn lost_way(&self, life: u64) -> Result<()> {
        let mut state = self.write();
        if state.life == life {
            self.next_life(&mut state);
            state.wait();
        }
        // Otherwise another thread found it first.
        state.outcomes.get(&life).cloned().unwrap_or_else(|| Err(errno(libc::EIO)))
    }

    /// The grant of this `life` is lost, as the host says, and what was written under it may be.
    /// The caller holds nothing.
    pub fn lost_grant(&self, life: u64) {
        let mut state = self.write();
        if state.life == life {
            self.repeat_way(&mut state);
            state.wait();
        }
    }

    /// The way of this `life` is of no use, though its queue lives. The caller holds nothing.
    pub fn give_way_up(&self, life: u64) {
        let mut state = self.write();
        if state.life == life {
            self.settle(&mut state);
            state.wait();
        }
    }

    /// The lease is over, as the host says. The caller holds nothing.
    pub fn lost_lease(&self, lease: LeaseId) {
        let mut state = self.write();
        if state.lease == Some(lease) {
            self.end_lease(&mut state);
            state.wait();
        }
    }

    fn end_lease(&self, state: &mut State) {
        lock(&self.appends).begin_anew();
        self.settle(state);
        if let Some(lease) = state.lease.take() {
            self.shared.forget(lease);
        }
    }

    /// Sees to writes that were not answered before anything else is done with the way.
    fn recover(&self, state: &mut State) {
        if state.way.as_ref().is_some_and(|way| way.queue().has_unanswered()) {
            self.next_life(state);
        }
    }

    fn next_life(&self, state: &mut State) {
        let done = match state.way.take().map(Way::again) {
            Some(After::Way(way, done)) => {
                state.way = Some(*way);
                done
            }
            Some(After::Lost(lost)) => self.repeat(state.lease, lost),
            None => Ok(()),
        };
        state.ends(done);
    }

    /// Gives the way up, while the lease lasts.
    fn settle(&self, state: &mut State) {
        if let Some(way) = state.way.take() {
            let done = self.repeat(state.lease, way.settle());
            state.ends(done);
        }
    }

    /// The host hears of what was written for the first time, as long as there is a lease under
    /// which it can be written again.
    fn tell(&self, state: &mut State) {
        self.recover(state);
        let Some(way) = state.way.as_ref().filter(|way| way.fresh().owes()) else { return };
        let (telling, covered) = (way.fresh().tells(), way.queue().covers());
        let file = self.handle.into();
        match self.shared.call(Request::Fsync { file, datasync: true }) {
            Ok(_) => {
                way.fresh().told(&telling);
                way.queue().covered(&covered);
            }
            Err(Error::Posix(libc::EIO)) => self.repeat_way(state),
            Err(error) => tracing::debug!(%error, "the host did not hear what was written"),
        }
    }

    /// The way's grant is lost, as the host says: what is kept is given to the host.
    fn repeat_way(&self, state: &mut State) {
        if let Some(way) = state.way.take() {
            let done = self.repeat(state.lease, way.abandon());
            state.ends(done);
        }
    }

    /// Sees to it that there is room at the target for what is about to be appended, if that is a
    /// stream. If it is a little between two syncs, no room stays: the host makes that durable in
    /// one step.
    pub fn make_room(self: &Arc<Self>, bytes: &Range<u64>) {
        if self.to != Use::Alone || bytes.is_empty() {
            return;
        }
        {
            let state = self.reach();
            if state.lease.is_none() || bytes.end <= self.size.load(Ordering::Acquire) {
                return;
            }
            lock(&self.appends).note(bytes.end - bytes.start);
            if self.room(&state, bytes).is_none() {
                return self.ask_ahead(&state, bytes);
            }
        }
        self.await_ahead();
        let mut state = self.write();
        let Some(room) = self.room(&state, bytes) else { return };
        let first = self.behind(&state);
        self.ask_for(&mut state, (first, room));
        if room > 0 {
            lock(&self.appends).asked();
        }
        let reaches = state.way.as_ref().is_some_and(|way| way.fresh().end() >= bytes.end);
        state.no_room = (room > 0 && !reaches).then(|| Instant::now() + PAUSES[1]);
    }

    /// The room to be asked for before these bytes are appended, if it is another one than there
    /// is.
    fn room(&self, state: &State, bytes: &Range<u64>) -> Option<u64> {
        let size = self.size.load(Ordering::Acquire);
        let waits = state.no_room.is_some_and(|until| Instant::now() < until);
        if state.lease.is_none() || state.never || waits || !(..=size).contains(&bytes.start) {
            return None;
        }
        let way = state.way.as_ref();
        let end = way.map_or(0, |way| way.fresh().end());
        let appends = lock(&self.appends);
        if !appends.is_stream() {
            return (end > size).then_some(0);
        }
        (end < bytes.end).then(|| appends.room(bytes.end - size))
    }

    /// The first block of the file behind what is granted as room, or the one that has the end.
    fn behind(&self, state: &State) -> u64 {
        let end = state.way.as_ref().map_or(0, |way| way.fresh().end());
        end.max(self.size.load(Ordering::Acquire)) / BLOCK_BYTES
    }

    /// Has the session's thread ask for room if little is left behind these bytes of a stream.
    fn ask_ahead(self: &Arc<Self>, state: &State, bytes: &Range<u64>) {
        let waits = state.no_room.is_some_and(|until| Instant::now() < until);
        let end = state.way.as_ref().map_or(0, |way| way.fresh().end());
        let short = |appends: &Appends| {
            let left = end.saturating_sub(bytes.end);
            appends.is_stream() && appends.is_short(left)
        };
        if end >= bytes.end && !waits && short(&lock(&self.appends)) {
            let mut ahead = lock(&self.ahead);
            if !*ahead {
                *ahead = self.shared.make_room_for(self);
            }
        }
    }

    /// Waits for the room that the session's thread asks for, if it does: what it is given is not
    /// given twice.
    fn await_ahead(&self) {
        let asks = |ahead: &mut bool| *ahead;
        // A session that ends in between asks for nothing more.
        let waited = self.asked_ahead.wait_timeout_while(lock(&self.ahead), PAUSES[1], asks);
        drop(waited);
    }

    /// Asks for room behind what there is, while calls go on. For the session's thread.
    pub fn make_room_ahead(&self) {
        let (lease, life, first) = {
            let state = self.read();
            (state.lease, state.life, self.behind(&state))
        };
        let room = lock(&self.appends).room(0);
        let end = first.saturating_mul(BLOCK_BYTES).saturating_add(room);
        let more = lease.map(|lease| self.ask_more(lease, (first, end)));
        let mut state = self.write();
        match more {
            // Of a grant that is not there any more; the host has ended it, or will.
            _ if state.life != life || state.lease != lease => {}
            Some(Ok(runs)) if !runs.is_empty() => {
                if let Some(way) = &mut state.way {
                    way.extend(runs);
                    lock(&self.appends).asked();
                }
            }
            _ => state.no_room = Some(Instant::now() + PAUSES[1]),
        }
        *lock(&self.ahead) = false;
        self.asked_ahead.notify_all();
    }

    /// What was written is about to be made durable.
    pub fn syncs(&self) {
        lock(&self.appends).synced();
    }

    /// What may be lost is given to the host. The lease says that nobody else has written
    /// meanwhile: without it, what is lost is in doubt.
    fn repeat(&self, lease: Option<LeaseId>, lost: Lost) -> Result<()> {
        let Lost { writes, in_doubt, untold, done, mut undone } = lost;
        self.in_doubt.fetch_or(in_doubt, Ordering::AcqRel);
        self.untold.fetch_or(untold, Ordering::AcqRel);
        for (offset, bytes) in writes {
            let again = lease.ok_or_else(|| errno(libc::EIO)).and_then(|lease| {
                let data = bytes.into();
                self.shared.call(Request::LeaseWrite {
                    lease,
                    offset,
                    data,
                    time: None,
                    durable: false,
                })
            });
            if again.is_ok() || !self.shared.gives_records() {
                self.given.note();
            }
            match again {
                Ok(_) => undone = false,
                // The lease has ended, too. Their callers do them again by another way.
                Err(Error::Posix(libc::ESTALE)) if undone => return Err(errno(libc::ESTALE)),
                Err(error) => {
                    self.in_doubt.store(true, Ordering::Release);
                    return Err(error);
                }
            }
        }
        done
    }

    /// Returns a lease that others want, once the calls under way have ended.
    pub fn give_back(&self, lease: LeaseId) {
        let mut state = self.write();
        if state.lease == Some(lease) {
            self.return_lease(&mut state);
            state.wait();
        }
        self.shared.forget(lease);
    }

    /// Returns the lease, if there is one, and has none asked for.
    pub fn without_lease(&self) -> WithoutLease<'_> {
        self.sections.fetch_add(1, Ordering::AcqRel);
        let without = WithoutLease(self);
        self.give_up();
        without
    }

    /// Returns the lease, if there is one.
    pub fn give_up(&self) {
        self.return_lease(&mut self.write());
    }

    fn return_lease(&self, state: &mut State) {
        self.tell(state);
        let lease = state.lease;
        self.end_lease(state);
        self.ask_untold();
        if let Some(lease) = lease {
            // Where this fails, the host has ended it.
            let _ = self.shared.call(Request::LeaseReturn { lease });
        }
    }

    /// Has the host say what became of what a grant that has ended told it.
    fn ask_untold(&self) {
        if !self.owes() {
            return;
        }
        let file = self.handle.into();
        match self.shared.call(Request::Fsync { file, datasync: true }) {
            // A lease that has ended in order has had all of it journaled.
            Ok(_) | Err(Error::Posix(libc::ESTALE)) => self.settled(),
            Err(error) => {
                tracing::debug!(%error, "nobody says that what was written is there");
                self.is_lost();
            }
        }
    }

    /// Gives everything up, as close(2) does.
    fn close(&self) {
        self.give_up();
        let _ = self.shared.call(Request::Release { handle: self.handle });
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    /// A life has ended, and this came of its writes that were not answered.
    fn ends(&mut self, done: Result<()>) {
        self.outcomes.insert(self.life, done);
        if self.outcomes.len() > OUTCOMES {
            self.outcomes.pop_first();
        }
        self.life += 1;
    }

    /// Nothing is asked for until a while has gone by, twice as long as the last time.
    fn wait(&mut self) {
        let pause = self.pause.map_or(PAUSES[0], |pause| (pause * 2).min(PAUSES[1]));
        (self.pause, self.next) = (Some(pause), Some(Instant::now() + pause));
    }
}
