//! The lane in use: commits in batches, what they show, and checkpoints.

use crate::redo::home::{RedoParts, latched};
use crate::redo::index::{Held, Index, Live};
use crate::redo::log::{self, Cut};
use crate::redo::running::{Running, Writes};
use siftfs_base::{Error, Result};
use siftfs_device::{AlignedBuf, URGENT_MAX, WriteOp};
use siftfs_log::RedoSlot;
use siftfs_volume::RedoEnd;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// Bytes of the index with which a commit makes a checkpoint first.
const MOST_INDEX: usize = 64 << 20;
/// The part of lane and index from which on a checkpoint is made in the background.
const DUE: u64 = 2;

/// A redo lane that this process writes, and nobody else. All calls may be made from several
/// threads at once.
pub struct RedoLane {
    parts: RedoParts,
    running: Mutex<Running>,
    index: RwLock<Index>,
    state: Mutex<State>,
    /// A batch has ended, or a checkpoint is due.
    ended: Condvar,
    /// Held by the one checkpoint.
    checkpoint: Mutex<()>,
}

struct State {
    queued: VecDeque<Commit>,
    /// Commits that came, and those of them that are durable and visible.
    came: u64,
    done: u64,
    /// A thread writes a batch.
    writing: bool,
    /// Where the lane ends; durable.
    end: RedoEnd,
    slot: RedoSlot,
    failed: Option<Error>,
    /// Owners of what may be in the lane, and was not answered so.
    doubtful: HashSet<u64>,
    /// Bytes of the index, as of the last batch or checkpoint.
    memory: usize,
    /// None is made any more but by those who need it.
    ending: bool,
}

/// A transaction that is to be written.
struct Commit {
    owner: u64,
    cut: Cut,
    runs: Vec<(u64, usize)>,
    data: Arc<Vec<u8>>,
}

impl Commit {
    fn of(owner: u64, writes: Writes) -> Self {
        let cut = Cut::of(&writes);
        Self { owner, cut, runs: writes.runs, data: Arc::new(writes.data) }
    }
}

impl RedoLane {
    /// Opens the lane: what is committed in it is brought home and durable when this returns, and
    /// the number of those transactions said with it. From then on only what is written under
    /// `nonce` is a record; it is random, and never used twice.
    ///
    /// # Errors
    /// As [`crate::replay_redo`].
    pub fn open(parts: RedoParts, nonce: u64) -> Result<(Self, u64)> {
        let (slot, replayed) = parts.replay()?;
        let slot = RedoSlot { seq: slot.seq + 1, prev_crc: 0, nonce, ..slot };
        parts.medium.write_slot(&slot)?;
        let RedoSlot { tail: pos, number, prev_crc, .. } = slot;
        let end = RedoEnd { pos, number, prev_crc, transactions: 0 };
        let state = State {
            queued: VecDeque::new(),
            came: 0,
            done: 0,
            writing: false,
            end,
            slot,
            failed: None,
            doubtful: HashSet::new(),
            memory: 0,
            ending: false,
        };
        let (running, index, ended, checkpoint) = Default::default();
        let lane = Self { parts, running, index, state: Mutex::new(state), ended, checkpoint };
        Ok((lane, replayed))
    }

    /// Commits that wait for a batch.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).queued.len()
    }

    /// Bytes of a transaction's records at most.
    fn most(&self) -> u64 {
        self.parts.medium.ring_len() / 4
    }

    /// Adds bytes, at byte `offset` of the area, to an owner's transaction, which begins with this
    /// if it was not there. Nothing is durable, and nothing shows it, before it is committed.
    ///
    /// # Errors
    /// `EFBIG`: the transaction would be too large. `EAGAIN`: the owner has too many, or there is
    /// no room. Refused: not in the area.
    pub fn append(&self, owner: u64, id: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.append_all(owner, id, &[(offset, bytes)])
    }

    /// As [`RedoLane::append`], of several ranges, in this order.
    ///
    /// # Errors
    /// As [`RedoLane::append`]; some of the ranges may be added then.
    pub fn append_all(&self, owner: u64, id: u64, parts: &[(u64, &[u8])]) -> Result<()> {
        for (offset, bytes) in parts {
            if !self.parts.holds(*offset, bytes.len() as u64) {
                let what =
                    format!("{} bytes at byte {offset} of {}", bytes.len(), self.parts.area_len());
                return Err(Error::Refused(what));
            }
        }
        let most = usize::try_from(self.most()).unwrap_or(usize::MAX);
        let mut to_come: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut running = lock(&self.running);
        for (offset, bytes) in parts.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            running.append((owner, id), (*offset, bytes), most)?;
            to_come -= bytes.len();
            // The memory of all ranges is had with the first one.
            running.expect((owner, id), to_come, most);
        }
        Ok(())
    }

    /// Drops a transaction.
    pub fn abort(&self, owner: u64, id: u64) {
        lock(&self.running).take(owner, id);
    }

    /// Drops all of an owner's transactions that run.
    pub fn abort_all(&self, owner: u64) {
        lock(&self.running).drop_all(owner);
    }

    /// Commits a transaction: when this returns it is durable, and reads show it, as a whole. Of
    /// one in which nothing was written, that is so already.
    ///
    /// # Errors
    /// `EFBIG`: it is too large, and dropped. Any other: whether it is there is known after the
    /// next opening, and nothing more is committed before that.
    pub fn commit(&self, owner: u64, id: u64) -> Result<()> {
        let Some(writes) = lock(&self.running).take(owner, id) else { return Ok(()) };
        let commit = Commit::of(owner, writes);
        if commit.cut.len() > self.most() {
            return Err(Error::Posix(libc::EFBIG));
        }
        let mut state = lock(&self.state);
        check(&state)?;
        state.queued.push_back(commit);
        state.came += 1;
        let ticket = state.came;
        loop {
            if state.done >= ticket {
                return Ok(());
            }
            check(&state)?;
            if state.writing {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.writing = true;
            let batch = take_batch(&mut state.queued, self.most());
            let end = state.end;
            drop(state);
            let written = self.write(&batch, end);
            let memory = self.hold().0.memory();
            state = lock(&self.state);
            state.writing = false;
            match written {
                Ok(end) => {
                    state.end = end;
                    state.done += batch.len() as u64;
                    state.memory = memory;
                }
                Err(error) => fail(&mut state, &error, batch.iter().map(|commit| commit.owner)),
            }
            self.ended.notify_all();
        }
    }

    /// Writes a batch behind `end`, and shows it when it is durable.
    fn write(&self, batch: &[Commit], end: RedoEnd) -> Result<RedoEnd> {
        let ring = self.parts.medium.ring_len();
        let cuts: Vec<&Cut> = batch.iter().map(|commit| &commit.cut).collect();
        let behind = log::end_of(&cuts, end.pos, ring);
        let full = |slot: &RedoSlot| behind > slot.tail + ring;
        let slot = lock(&self.state).slot;
        if full(&slot) || self.hold().0.memory() > MOST_INDEX {
            self.checkpoint()?;
        }
        let slot = lock(&self.state).slot;
        assert!(!full(&slot), "a batch has room in an empty lane");
        let parts: Vec<(&Cut, &[u8])> = batch.iter().map(|c| (&c.cut, c.data.as_slice())).collect();
        let encoded = log::encode(&parts, end, &slot.key(), ring);
        self.write_durably(&encoded.extents)?;
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        for (commit, end) in batch.iter().zip(&encoded.ends) {
            let (number, memory) = (end.number - 1, commit.data.len() + commit.runs.len() * 64);
            let live =
                Live { number, owner: commit.owner, end: end.pos, crc: end.prev_crc, memory };
            index.commit(live, &commit.runs, &commit.data);
        }
        Ok(encoded.ends.last().copied().unwrap_or(end))
    }

    /// One piece is one durable write.
    fn write_durably(&self, extents: &[(u64, AlignedBuf)]) -> Result<()> {
        let (device, medium) = (self.parts.medium.device(), &self.parts.medium);
        let small = extents.iter().all(|(_, bytes)| bytes.len() <= URGENT_MAX);
        let urgent = |under_way| {
            if small {
                device.urgent(under_way)
            }
        };
        urgent(true);
        let written = match extents {
            [(pos, bytes)] => device.write(medium.place(*pos), bytes, true),
            extents => {
                let ops = extents
                    .iter()
                    .map(|(pos, bytes)| WriteOp { offset: medium.place(*pos), data: bytes });
                let ops: Vec<WriteOp<'_>> = ops.collect();
                device.write_batch(&ops).and_then(|()| device.flush())
            }
        };
        urgent(false);
        written
    }

    /// What is committed and not checkpointed. It stays as it is while this is held, so nothing is
    /// committed meanwhile: not for long, and one at a time in a thread.
    pub fn hold(&self) -> Held<'_> {
        Held(self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does a plain write of these bytes of the area, when no block of it is in the index, and what
    /// was there is behind the durable tail (rule R33).
    ///
    /// # Errors
    /// A checkpoint failed, and `write` was not done; or its own.
    pub fn write_beside<T>(
        &self,
        bytes: &Range<u64>,
        write: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        loop {
            let held = self.hold();
            if !held.meets(bytes) {
                return write();
            }
            drop(held);
            self.checkpoint()?;
        }
    }

    /// Brings home everything that is committed when this begins. When this returns it is durable
    /// in its blocks, and the tail behind it is durable.
    ///
    /// # Errors
    /// The devices', which are latched: nothing more is committed, and this fails from then on.
    pub fn checkpoint(&self) -> Result<()> {
        let _one = lock(&self.checkpoint);
        let (newest, pieces) = {
            let Held(index) = self.hold();
            (index.newest(), index.pieces())
        };
        let Some(newest) = newest else { return Ok(()) };
        let slot = {
            let state = lock(&self.state);
            check(&state)?;
            state.slot
        };
        let Live { number, end: tail, crc: prev_crc, .. } = newest;
        let next = RedoSlot { seq: slot.seq + 1, tail, number: number + 1, prev_crc, ..slot };
        let done = self.parts.write_home(&pieces);
        let done = done.and_then(|()| self.parts.flush_area());
        let done = done.and_then(|()| self.parts.medium.write_slot(&next));
        if let Err(error) = done {
            fail(&mut lock(&self.state), &error, []);
            self.ended.notify_all();
            return Err(error);
        }
        let memory = {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.forget(number);
            index.memory()
        };
        let mut state = lock(&self.state);
        (state.slot, state.memory) = (next, memory);
        Ok(())
    }

    /// Waits until a checkpoint is due, or until none is to be made in the background any more:
    /// then false.
    pub(super) fn await_due(&self) -> bool {
        let mut state = lock(&self.state);
        while !self.is_due(&state) && !state.ending && state.failed.is_none() {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.ending && state.failed.is_none()
    }

    fn is_due(&self, state: &State) -> bool {
        let used = state.end.pos.saturating_sub(state.slot.tail);
        used * DUE > self.parts.medium.ring_len() || state.memory as u64 * DUE > MOST_INDEX as u64
    }

    /// None is made in the background any more. One that is under way ends.
    pub fn end_checkpoints(&self) {
        lock(&self.state).ending = true;
        self.ended.notify_all();
    }

    /// Nothing more comes of this owner: what it has running is dropped, and what it has committed
    /// is durable in its blocks, behind the durable tail, when this returns (rules R29, R45). No
    /// call for it is under way.
    ///
    /// # Errors
    /// That is not so, and will not be before the next opening.
    pub fn drain(&self, owner: u64) -> Result<()> {
        lock(&self.running).drop_all(owner);
        if self.hold().0.has(owner) {
            self.checkpoint()?;
        }
        let state = lock(&self.state);
        if state.doubtful.contains(&owner) { check(&state) } else { Ok(()) }
    }
}

/// Commits that are written together, the first one at least.
fn take_batch(queued: &mut VecDeque<Commit>, most: u64) -> Vec<Commit> {
    let mut bytes = 0;
    let fits = |next: &&Commit| {
        bytes += next.cut.len();
        bytes <= most
    };
    let count = queued.iter().take_while(fits).count().max(1);
    queued.drain(..count.min(queued.len())).collect()
}

fn fail(state: &mut State, error: &Error, owners: impl IntoIterator<Item = u64>) {
    state.failed.get_or_insert_with(|| error.clone());
    state.doubtful.extend(owners);
    // Their callers find that it has failed.
    state.queued.clear();
}

fn check(state: &State) -> Result<()> {
    state.failed.as_ref().map_or(Ok(()), |error| Err(latched(error)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
