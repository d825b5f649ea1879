//! Which of the two logs' devices takes writes, what is on its way to either, and what the first
//! one lacks. Pure but for the clock: threads report what has ended, and ask what follows.

use super::store::{Part, Slot, Tail};
use siftfs_base::{BLOCK_BYTES, Error, Result};
use siftfs_device::{AlignedBuf, URGENT_MAX};
use siftfs_log::{MAX_SPARE_BATCH, SPARE_EXTENTS, SpareHeader};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where writes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// To the first one, by their callers' threads: nothing is watched.
    Off,
    /// To the first one, by the keeper's threads.
    First,
    /// To the spare one.
    Spare,
}

/// Does the spare log's writer wait, so that the first log can be gone back to?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    No,
    /// Since then. It may be ended by each caller that waits.
    Since(Instant),
    /// The header that ends the generation is on its way: the hold ends with it.
    Closing,
}

/// A write to the first log that is not durable there.
pub(super) struct Write {
    pub offset: u64,
    pub data: Arc<AlignedBuf>,
    /// It is durable itself when it has ended.
    pub durable: bool,
    /// When the first device was given it; `None` while it waits for a thread.
    pub since: Option<Instant>,
    /// It has ended, and owes a flush.
    pub answered: bool,
    /// Its caller has had its answer before the first log was left, and waits for nothing.
    pub told: bool,
}

/// What a thread of the keeper does next.
pub(super) enum Job {
    Write(u64),
    Flush(u64),
}

/// A write that is to go to the spare log. `done` bytes of it are in batches.
struct Queued {
    seq: u64,
    offset: u64,
    data: Arc<AlignedBuf>,
    done: usize,
    /// As [`Write::told`].
    told: bool,
}

/// What was counted since the log was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// How often the first log was left.
    pub stalls: u64,
    /// When its oldest call began that was given up the last time.
    pub left_at: Option<Instant>,
    /// The longest time from there until it was gone back to.
    pub longest: Duration,
    /// Batches on the spare log, and their bytes.
    pub batches: u64,
    pub bytes: u64,
}

/// Both logs' devices.
pub(super) struct State {
    pub mode: Mode,
    pub slot: Slot,
    pub bound: Duration,
    /// The first log is not to be left any more.
    pub closing: bool,
    /// Threads are to end.
    pub stop: bool,
    /// Why nothing is promised any more.
    pub failed: Option<Error>,
    /// Why the log's device is being given up: until the spare one is the log alone, nobody is
    /// answered.
    pub lost: Option<Error>,
    /// Number of the last call.
    last: u64,
    /// All calls up to this one are durable, on either device.
    settled: u64,
    writes: BTreeMap<u64, Write>,
    flushes: BTreeMap<u64, Option<Instant>>,
    /// Flushes of which the first device was asked nothing: they wait for all writes before them.
    waits: BTreeSet<u64>,
    /// What callers wait for that write little.
    jobs: VecDeque<Job>,
    /// Bulk, which goes behind that.
    bulk: VecDeque<Job>,
    /// Calls of the first device under way.
    pub running: usize,
    /// How calls of the first device have ended, until their callers look.
    results: BTreeMap<u64, Result<()>>,
    queue: VecDeque<Queued>,
    /// The oldest call that the batch has which is being written.
    appending: Option<u64>,
    /// Where each block is that the spare log has.
    held: BTreeMap<u64, u64>,
    /// Those of them that the first log may lack.
    lacking: BTreeSet<u64>,
    pub tail: Tail,
    /// There is no room for another batch.
    pub full: bool,
    pub hold: Hold,
    pub counts: Counts,
}

impl State {
    /// Nothing is under way, and the spare log has these blocks.
    pub fn new(slot: Slot, held: BTreeMap<u64, u64>, tail: Tail) -> Self {
        let lacking = held.keys().copied().collect();
        Self {
            mode: Mode::Off,
            slot,
            bound: Duration::from_secs(3600),
            closing: false,
            stop: false,
            failed: None,
            lost: None,
            last: 0,
            settled: 0,
            writes: BTreeMap::new(),
            flushes: BTreeMap::new(),
            waits: BTreeSet::new(),
            jobs: VecDeque::new(),
            bulk: VecDeque::new(),
            running: 0,
            results: BTreeMap::new(),
            queue: VecDeque::new(),
            appending: None,
            held,
            lacking,
            tail,
            full: false,
            hold: Hold::No,
            counts: Counts::default(),
        }
    }

    /// Nothing is promised from now on (rule R21).
    pub fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// The first device has failed. It is given up, if the spare one can be the log alone, and what
    /// is not durable goes there; else nothing is promised any more.
    pub fn lose(&mut self, error: Error) {
        if !self.can_lose_first() {
            return self.fail(error);
        }
        if self.mode == Mode::First {
            self.turn_to_spare();
        }
        self.hold = Hold::No;
        self.lost.get_or_insert(error);
    }

    /// Is there room for an image of the first device?
    pub fn can_lose_first(&self) -> bool {
        let SpareHeader { image, alone, .. } = self.slot.header;
        image > 0 && !alone && self.failed.is_none()
    }

    /// What the caller of `seq` can be told; `None` if it has to wait.
    pub fn outcome(&mut self, seq: u64) -> Option<Result<()>> {
        if let Some(result) = self.results.remove(&seq) {
            return Some(result);
        }
        if self.lost.is_some() {
            return self.failed.as_ref().map(|error| Err(Error::Latched(error.to_string())));
        }
        // Behind the spare log's end, writes that it had no room for are durable by themselves.
        let home = self.mode != Mode::Spare && self.writes.range(..seq).next().is_none();
        if self.settled >= seq || home && self.waits.contains(&seq) {
            self.waits.remove(&seq);
            return Some(Ok(()));
        }
        self.failed.as_ref().map(|error| Err(Error::Latched(error.to_string())))
    }

    /// Bytes of writes that the first log has answered and not flushed.
    pub fn kept(&self) -> usize {
        self.writes.values().filter(|w| w.answered).map(|w| w.data.len()).sum()
    }
}

/// The first log.
impl State {
    /// A write begins. Returns its number.
    pub fn write(&mut self, offset: u64, data: Arc<AlignedBuf>, durable: bool) -> u64 {
        self.last += 1;
        let seq = self.last;
        match self.mode {
            Mode::First => self.begin(seq, offset, data, durable),
            _ => self.queue.push_back(Queued { seq, offset, data, done: 0, told: false }),
        }
        seq
    }

    fn begin(&mut self, seq: u64, offset: u64, data: Arc<AlignedBuf>, durable: bool) {
        let jobs = if data.len() > URGENT_MAX { &mut self.bulk } else { &mut self.jobs };
        jobs.push_back(Job::Write(seq));
        self.writes.insert(
            seq,
            Write { offset, data, durable, since: None, answered: false, told: false },
        );
    }

    /// What a thread of the keeper does now.
    pub fn next_job(&mut self, now: Instant) -> Option<Job> {
        let job = self.jobs.pop_front().or_else(|| self.bulk.pop_front())?;
        let since = match job {
            Job::Write(seq) => self.writes.get_mut(&seq).map(|write| &mut write.since),
            Job::Flush(seq) => self.flushes.get_mut(&seq),
        };
        if let Some(since) = since {
            *since = Some(now);
        }
        Some(job)
    }

    /// Does something wait for a thread of the keeper?
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty() || !self.bulk.is_empty()
    }

    /// A flush begins, of all writes that have ended. Returns its number.
    pub fn flush(&mut self) -> u64 {
        self.last += 1;
        let seq = self.last;
        if self.mode == Mode::First {
            self.flushes.insert(seq, None);
            self.jobs.push_back(Job::Flush(seq));
        } else {
            self.waits.insert(seq);
        }
        self.settle();
        seq
    }

    /// The write of this number, if the first log has still to carry it out.
    pub fn to_write(&self, seq: u64) -> Option<&Write> {
        self.writes.get(&seq)
    }

    /// A write has ended that the first log was given.
    pub fn written(&mut self, seq: u64, result: Result<()>) {
        let losing = result.is_err() && self.can_lose_first();
        let Some(write) = self.writes.get_mut(&seq) else { return };
        if losing && let Err(error) = result {
            write.since = None;
            return self.lose(error);
        }
        let told = write.told;
        if result.is_ok() && !write.durable {
            write.answered = true;
        } else {
            self.writes.remove(&seq);
        }
        match result {
            // It was promised before, and no caller is left to be told.
            Err(error) if told => self.fail(error),
            Ok(()) if told => {}
            result => drop(self.results.insert(seq, result)),
        }
    }

    /// The writes that a flush covers which begins now.
    pub fn answered(&self) -> Vec<u64> {
        self.writes.iter().filter(|(_, w)| w.answered).map(|(seq, _)| *seq).collect()
    }

    /// A flush has ended that covered these writes.
    pub fn flushed(&mut self, seq: u64, covered: &[u64], result: Result<()>) {
        if self.flushes.remove(&seq).is_none() {
            return;
        }
        if self.can_lose_first()
            && let Err(error) = result
        {
            self.waits.insert(seq);
            return self.lose(error);
        }
        match &result {
            Ok(()) => covered.iter().for_each(|write| drop(self.writes.remove(write))),
            Err(error) => self.fail(error.clone()),
        }
        self.results.insert(seq, result);
    }

    /// When the oldest call began that is inside the first device.
    pub fn oldest(&self) -> Option<Instant> {
        let writes = self.writes.values().filter(|w| !w.answered).filter_map(|w| w.since);
        writes.chain(self.flushes.values().copied().flatten()).min()
    }

    /// Is nothing on its way to the first log?
    pub fn is_idle(&self) -> bool {
        self.running == 0 && !self.has_jobs()
    }

    /// What the first log has answered is durable there by a flush of somebody else's.
    pub fn forget_answered(&mut self) {
        assert!(self.is_idle(), "nothing is on its way");
        self.writes.clear();
    }
}

/// The spare log.
impl State {
    /// The first log is left until it answers: what is not durable there goes to the spare one, in
    /// the order of the calls. Calls that are inside it end there whenever they do.
    pub fn leave(&mut self) {
        assert_eq!(self.mode, Mode::First, "it is left once");
        self.counts.stalls += 1;
        self.counts.left_at = self.oldest();
        self.turn_to_spare();
    }

    fn turn_to_spare(&mut self) {
        self.mode = Mode::Spare;
        self.jobs.clear();
        self.bulk.clear();
        self.waits.extend(std::mem::take(&mut self.flushes).into_keys());
        for (seq, Write { offset, data, answered, told, .. }) in std::mem::take(&mut self.writes) {
            // A caller that has its answer is told nothing more, and the bytes go along.
            let told = answered || told;
            self.queue.push_back(Queued { seq, offset, data, done: 0, told });
        }
        self.settle();
    }

    /// On the spare log every call is durable whose bytes are, and so are all before it.
    fn settle(&mut self) {
        if self.mode != Mode::Spare {
            return;
        }
        let first = self.appending.or(self.queue.front().map(|queued| queued.seq));
        self.settled = self.settled.max(first.map_or(self.last, |first| first - 1));
    }

    /// Is there a batch to be written, and may it be?
    pub fn may_append(&self) -> bool {
        let wanted = self.mode == Mode::Spare && !self.queue.is_empty();
        let free = self.hold == Hold::No && !self.full;
        wanted && free && self.failed.is_none() && self.lost.is_none()
    }

    /// What the next batch has, and where it goes; `None` if there is no room for it.
    pub fn next_batch(&mut self) -> Option<(Tail, Vec<Part>)> {
        let room = self.slot.header.batches_end().saturating_sub(self.tail.pos + BLOCK_BYTES);
        let mut room = usize::try_from(room.min(MAX_SPARE_BATCH - BLOCK_BYTES)).unwrap_or(0);
        let mut parts = Vec::new();
        while parts.len() < SPARE_EXTENTS
            && let Some(queued) = self.queue.front_mut().filter(|_| room > 0)
        {
            let len = (queued.data.len() - queued.done).min(room);
            let (offset, from) = (queued.offset + queued.done as u64, queued.done);
            parts.push(Part { offset, data: queued.data.clone(), from, len });
            self.appending.get_or_insert(queued.seq);
            queued.done += len;
            room -= len;
            if queued.done == queued.data.len() {
                self.queue.pop_front();
            }
        }
        self.full = parts.is_empty();
        (!parts.is_empty()).then_some((self.tail, parts))
    }

    /// The batch is durable.
    pub fn appended(&mut self, parts: &[Part]) {
        let mut pos = self.tail.pos + BLOCK_BYTES;
        for part in parts {
            for at in (0..part.len as u64).step_by(4096) {
                let block = (part.offset + at) / BLOCK_BYTES;
                self.held.insert(block, pos + at);
                self.lacking.insert(block);
            }
            pos += part.len as u64;
        }
        self.counts.batches += 1;
        self.counts.bytes += pos - self.tail.pos;
        self.tail = Tail { pos, index: self.tail.index + 1 };
        self.appending = None;
        self.settle();
    }

    /// Is a batch being written?
    pub fn is_appending(&self) -> bool {
        self.appending.is_some()
    }

    /// Has the spare log anything?
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Where the spare log has this block of the log's device.
    pub fn place_of(&self, block: u64) -> Option<u64> {
        self.held.get(&block).copied()
    }

    /// Blocks that the first log may lack.
    pub fn lacking(&self) -> usize {
        self.lacking.len()
    }

    /// Takes up to `most` of them, with their places: the caller writes them to the first log, and
    /// nobody else does meanwhile.
    pub fn take_lacking(&mut self, most: usize) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(block) = self.lacking.pop_first()
        {
            taken.push((block, *self.held.get(&block).expect("the spare log has it")));
        }
        taken
    }

    /// Everything is on the first log, and the generation has ended: what waits goes there.
    pub fn go_back(&mut self, slot: Slot, now: Instant) {
        assert!(self.lacking.is_empty() && self.appending.is_none() && self.running == 0);
        self.settle();
        (self.slot, self.tail, self.full, self.hold) = (slot, Tail::FIRST, false, Hold::No);
        self.held.clear();
        self.mode = Mode::First;
        let since = self.counts.left_at.take();
        let lasted = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.counts.longest = self.counts.longest.max(lasted);
        for Queued { seq, offset, data, told, .. } in std::mem::take(&mut self.queue) {
            self.begin(seq, offset, data, true);
            if let Some(write) = self.writes.get_mut(&seq) {
                write.told = told;
            }
        }
    }

    /// The image on the spare device has everything, and the header says so: it is the first device
    /// from now on, and is not left.
    pub fn stand_alone(&mut self, slot: Slot, now: Instant) {
        assert!(slot.header.alone, "the header says so first");
        self.lacking.clear();
        self.lost = None;
        self.go_back(slot, now);
    }

    /// As [`State::go_back`], where nothing runs and nothing waits: the log is being opened.
    pub fn forget_held(&mut self, slot: Slot) {
        (self.slot, self.tail) = (slot, Tail::FIRST);
        self.held.clear();
        self.lacking.clear();
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
