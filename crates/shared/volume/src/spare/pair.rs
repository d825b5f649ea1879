//! The two devices as one.

use super::first::First;
use super::state::{Hold, Mode, State};
use super::work;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Epoch, Error, Result};
use siftfs_device::{AlignedBuf, Device, DeviceInfo, Medium, ReadOp, Role, WriteOp};
use siftfs_log::SpareHeader;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that the first device has answered and not flushed, at most. They are kept in memory.
const MOST_KEPT: usize = 32 << 20;
/// Bytes of one call of the first device, at most: a longer write is several.
const PIECE: usize = 1 << 20;

/// Where new writes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpareState {
    /// To the first log, which is not watched: the volume is being opened or closed, or not
    /// written.
    Off,
    /// To the first log.
    First,
    /// To the spare log.
    Spare,
    /// To the spare device, which is the log alone: the log's own device has failed, now or before.
    Alone,
}

impl SpareState {
    /// The state, in the status report.
    pub fn text(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::First => "first",
            Self::Spare => "spare",
            Self::Alone => "alone",
        }
    }
}

/// What a log with a spare one tells of itself. Counts are since it was opened.
#[derive(Clone, Copy, Debug)]
pub struct SpareReport {
    /// Where new writes go.
    pub state: SpareState,
    /// How often the first log was left.
    pub stalls: u64,
    /// The longest time that the first log did not have all writes, that under way included.
    pub longest: Duration,
    /// Batches written to the spare log.
    pub batches: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes that the first log may lack now.
    pub lacking: u64,
    /// Bytes of the spare log in use.
    pub used: u64,
    /// Bytes of the spare log that batches may take.
    pub len: u64,
    /// Whether there is room for an image of the log's device, so that its failure is survived.
    pub may_stand_alone: bool,
}

/// What the threads share.
pub(super) struct Shared {
    pub first: First,
    pub spare: Arc<dyn Device>,
    state: Mutex<State>,
    /// Something has ended, or changed: for callers, and for the thread that goes back.
    pub changed: Condvar,
    /// There are jobs for the first device.
    pub jobs: Condvar,
    /// There is something for the spare device.
    pub queued: Condvar,
}

impl Shared {
    pub fn new(first: First, spare: Arc<dyn Device>, state: State) -> Self {
        let (changed, jobs, queued) = Default::default();
        Self { first, spare, state: Mutex::new(state), changed, jobs, queued }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait<'a>(&self, on: &Condvar, st: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        on.wait(st).unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells every thread that the state is another one.
    pub fn tell_all(&self) {
        self.changed.notify_all();
        self.jobs.notify_all();
        self.queued.notify_all();
    }

    /// Waits until the call `seq` is durable on either device, or has failed. The first one is left
    /// by the caller that finds it silent for too long.
    fn wait_for(&self, mut st: MutexGuard<'_, State>, seq: u64) -> Result<()> {
        loop {
            if let Some(outcome) = st.outcome(seq) {
                return outcome;
            }
            if st.stop {
                return Err(Error::Latched("the log was given up".into()));
            }
            let since = match (st.mode, st.hold) {
                (Mode::First, _) if !st.closing && !st.slot.header.alone => {
                    // What waits for a thread begins later, and is looked at then.
                    Some((st.oldest().unwrap_or_else(Instant::now), st.bound))
                }
                // Without room there is no other way but back.
                (Mode::Spare, Hold::Since(since)) if !st.full => Some((since, st.bound / 2)),
                _ => None,
            };
            let Some((since, bound)) = since else {
                st = self.wait(&self.changed, st);
                continue;
            };
            let left = bound.saturating_sub(since.elapsed());
            if left.is_zero() {
                match st.mode {
                    Mode::First => st.leave(),
                    _ => st.hold = Hold::No,
                }
                self.tell_all();
                continue;
            }
            let waited = self.changed.wait_timeout(st, left);
            st = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The state, once no thread is about to stop watching; what failed before is told.
    fn enter(&self) -> Result<MutexGuard<'_, State>> {
        let mut st = self.lock();
        while st.closing && st.mode == Mode::First {
            st = self.wait(&self.changed, st);
        }
        match &st.failed {
            Some(error) => Err(Error::Latched(error.to_string())),
            None => Ok(st),
        }
    }

    /// Begins writes that are watched; `None` if they are not, and their caller makes them.
    fn begin(
        &self,
        ops: &[WriteOp<'_>],
        durable: bool,
    ) -> Result<Option<(MutexGuard<'_, State>, Vec<u64>)>> {
        let mut copies = Vec::new();
        let mut st = self.enter()?;
        if st.mode != Mode::Off {
            drop(st);
            copies.extend(ops.iter().flat_map(pieces));
            st = self.enter()?;
        }
        if st.mode == Mode::Off {
            return match st.holds_any() {
                true => Err(refused("write", ops, libc::EROFS)),
                false => Ok(None),
            };
        }
        if !ops.iter().all(|op| fits(op, st.slot.header.log_len)) {
            return Err(refused("write", ops, libc::EINVAL));
        }
        let begun = copies.into_iter().map(|(offset, data)| st.write(offset, data, durable));
        let begun = begun.collect();
        self.told(&st);
        Ok(Some((st, begun)))
    }

    /// Wakes the thread that has to do something next.
    fn told(&self, st: &State) {
        match st.mode {
            Mode::First => self.jobs.notify_one(),
            _ => self.queued.notify_one(),
        }
    }

    fn write(&self, ops: &[WriteOp<'_>], durable: bool) -> Result<bool> {
        let Some((st, begun)) = self.begin(ops, durable)? else { return Ok(false) };
        if begun.len() > 1 {
            self.jobs.notify_all();
        }
        drop(st);
        let mut result = Ok(());
        for seq in begun {
            result = result.and(self.wait_for(self.lock(), seq));
        }
        result?;
        if !durable && self.lock().kept() > MOST_KEPT {
            self.flush()?;
        }
        Ok(true)
    }

    /// Flushes, if that is watched; false if the caller has to.
    fn flush(&self) -> Result<bool> {
        let mut st = self.enter()?;
        if st.mode == Mode::Off {
            return Ok(false);
        }
        let seq = st.flush();
        self.told(&st);
        self.wait_for(st, seq).map(|()| true)
    }

    /// Reads what was written last, whichever device has it. A generation that ends meanwhile has
    /// its places given out again, and perhaps the first device was given up, so what was read may
    /// be something else.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        loop {
            let st = self.lock();
            let generation = st.slot.header.generation;
            let places = match st.holds_any() {
                true => places(&st, offset, buf.len() as u64),
                false => vec![Place { spare: false, at: offset, len: buf.len() }],
            };
            drop(st);
            let mut rest = &mut *buf;
            let result = places.iter().try_for_each(|place| {
                let to = rest.split_off_mut(..place.len).expect("places cover the buffer");
                match place.spare {
                    true => self.spare.read(place.at, to),
                    false => self.first.get().read(place.at, to),
                }
            });
            if self.lock().slot.header.generation == generation {
                return result;
            }
        }
    }
}

/// What the first device is given at once of a write, with its place: less than takes long.
fn pieces(op: &WriteOp<'_>) -> impl Iterator<Item = (u64, Arc<AlignedBuf>)> {
    let at = (op.offset..).step_by(PIECE);
    at.zip(op.data.chunks(PIECE)).map(|(at, data)| (at, Arc::new(AlignedBuf::copy_of(data))))
}

/// Is it of whole blocks of a log of `len` bytes?
fn fits(op: &WriteOp<'_>, len: u64) -> bool {
    let whole = op.offset.is_multiple_of(BLOCK_BYTES) && op.data.len().is_multiple_of(BLOCK_SIZE);
    let end = op.offset.checked_add(op.data.len() as u64);
    whole && !op.data.is_empty() && end.is_some_and(|end| end <= len)
}

fn refused(op: &'static str, ops: &[WriteOp<'_>], errno: i32) -> Error {
    let (offset, len) = ops.first().map_or((0, 0), |op| (op.offset, op.data.len() as u64));
    Error::Io { op, offset, len, errno }
}

/// Bytes that are read from one of the devices.
struct Place {
    spare: bool,
    at: u64,
    len: usize,
}

/// Where the bytes of a range are, in order; neighbours together.
fn places(st: &State, offset: u64, len: u64) -> Vec<Place> {
    let end = offset.saturating_add(len);
    let mut found: Vec<Place> = Vec::new();
    let mut at = offset;
    while at < end {
        let block = at / BLOCK_BYTES;
        let next = end.min((block + 1) * BLOCK_BYTES);
        let here = st.place_of(block);
        let from = here.map_or(at, |place| place + at % BLOCK_BYTES);
        let part = usize::try_from(next - at).expect("part of a block");
        let follows = |p: &&mut Place| p.spare == here.is_some() && p.at + p.len as u64 == from;
        match found.last_mut().filter(follows) {
            Some(last) => last.len += part,
            None => found.push(Place { spare: here.is_some(), at: from, len: part }),
        }
        at = next;
    }
    found
}

/// A log's device and a spare one, as one device. Nothing is watched before [`LogPair::arm`], and
/// calls go to the first device alone.
pub struct LogPair {
    pub(super) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl LogPair {
    pub(super) fn of(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// The spare device.
    pub fn spare(&self) -> &Arc<dyn Device> {
        &self.shared.spare
    }

    /// What the spare log says of itself.
    pub fn header(&self) -> SpareHeader {
        self.shared.lock().slot.header
    }

    /// Says that a mount of `epoch` is about to use the spare log, under the secret number `nonce`;
    /// durable when it returns. For a log that is not armed and of which the spare one has nothing.
    ///
    /// # Errors
    /// The spare device could not be written.
    ///
    /// # Panics
    /// If it is armed, or the spare log has something.
    pub fn begin_epoch(&self, epoch: Epoch, nonce: u64) -> Result<()> {
        let slot = self.shared.lock().slot;
        let next = slot.write_next(&*self.shared.spare, epoch, nonce)?;
        let mut st = self.shared.lock();
        assert!(
            st.mode == Mode::Off && !st.holds_any(),
            "an epoch begins with all on the first log"
        );
        st.slot = next;
        Ok(())
    }

    /// The first device is left when a call of it takes longer than this. It holds for calls that
    /// are under way, too.
    pub fn set_bound(&self, bound: Duration) {
        self.shared.lock().bound = bound;
        self.shared.tell_all();
    }

    /// From now on the first device is watched: see [`LogPair::set_bound`]. What was written before
    /// is made durable first.
    ///
    /// # Errors
    /// The flush failed, or no thread can be started.
    pub fn arm(&self) -> Result<()> {
        self.shared.first.get().flush()?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let mut st = self.shared.lock();
        assert!(st.mode == Mode::Off && !st.holds_any(), "it is armed once");
        (st.mode, st.closing, st.stop) = (Mode::First, false, false);
        drop(st);
        for (name, work) in work::THREADS {
            let shared = self.shared.clone();
            let started =
                std::thread::Builder::new().name(name.into()).spawn(move || work(&shared));
            threads.push(
                started.map_err(|e| {
                    Error::Refused(format!("cannot start a thread for the log: {e}"))
                })?,
            );
        }
        Ok(())
    }

    /// Ends the watch: waits until the first device has everything, durably, and then calls go
    /// there alone. Does nothing if it is not armed.
    ///
    /// # Errors
    /// A device has failed, before or now.
    pub fn disarm(&self) -> Result<()> {
        if self.shared.lock().mode == Mode::Off {
            return Ok(());
        }
        let flushed = loop {
            let home = self.wait_until_home();
            let flushed = home.and_then(|()| self.shared.first.get().flush());
            let mut st = self.shared.lock();
            match flushed {
                // What is not durable there is in memory still.
                Err(error) if st.can_lose_first() => st.lose(error),
                flushed => break flushed,
            }
            drop(st);
            self.shared.tell_all();
        };
        let mut st = self.shared.lock();
        st.stop = true;
        if flushed.is_ok() {
            st.forget_answered();
            st.mode = Mode::Off;
        }
        st.closing = false;
        drop(st);
        self.join();
        flushed
    }

    /// Has the first device everything? New calls wait from then on, and the first device is not
    /// left for being slow.
    fn wait_until_home(&self) -> Result<()> {
        let mut st = self.shared.lock();
        st.closing = true;
        self.shared.tell_all();
        while (st.mode == Mode::Spare || !st.is_idle()) && st.failed.is_none() && !st.stop {
            st = self.shared.wait(&self.shared.changed, st);
        }
        st.failed.as_ref().map_or(Ok(()), |error| Err(Error::Latched(error.to_string())))
    }

    /// Stops as the death of the process would, but for calls that are inside the devices: it waits
    /// for them. Every call after that fails.
    pub fn abandon(&self) {
        let mut st = self.shared.lock();
        if st.mode == Mode::Off {
            return;
        }
        st.stop = true;
        st.fail(Error::Latched("the log was given up".into()));
        drop(st);
        self.join();
    }

    fn join(&self) {
        self.shared.tell_all();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A failed assertion of a thread has told of itself.
            drop(thread.join());
        }
    }

    /// What it tells of itself. Does not wait for a device.
    pub fn report(&self) -> SpareReport {
        let st = self.shared.lock();
        let state = match st.mode {
            _ if st.slot.header.alone => SpareState::Alone,
            Mode::Off => SpareState::Off,
            Mode::First => SpareState::First,
            Mode::Spare => SpareState::Spare,
        };
        let now = st.counts.left_at.map_or(Duration::ZERO, |since| since.elapsed());
        SpareReport {
            state,
            stalls: st.counts.stalls,
            longest: st.counts.longest.max(now),
            batches: st.counts.batches,
            bytes: st.counts.bytes,
            lacking: st.lacking() as u64 * BLOCK_BYTES,
            used: st.tail.pos,
            len: st.slot.header.batches_end(),
            may_stand_alone: st.slot.header.image > 0,
        }
    }
}

impl Drop for LogPair {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Device for LogPair {
    fn size(&self) -> u64 {
        self.shared.first.get().size()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.shared.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        match self.shared.write(&[WriteOp { offset, data }], fua)? {
            true => Ok(()),
            false => self.shared.first.get().write(offset, data, fua),
        }
    }
    fn flush(&self) -> Result<()> {
        match self.shared.flush()? {
            true => Ok(()),
            false => self.shared.first.get().flush(),
        }
    }
    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        if !self.shared.lock().holds_any() {
            return self.shared.first.get().read_batch(ops);
        }
        ops.iter_mut().try_for_each(|op| self.read(op.offset, op.buf))
    }
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        match self.shared.write(ops, false)? {
            true => Ok(()),
            false => self.shared.first.get().write_batch(ops),
        }
    }
    fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        // The spare device has a claim of its own.
        self.shared.first.original().map_or(Ok(()), |first| first.claim(role, patience))
    }
    fn unclaim(&self, role: Role) -> Result<()> {
        self.shared.first.original().map_or(Ok(()), |first| first.unclaim(role))
    }
    fn finish(&self) {
        self.shared.first.original().into_iter().for_each(Device::finish);
        self.shared.spare.finish();
    }
    fn urgent(&self, under_way: bool) {
        self.shared.first.get().urgent(under_way);
    }
    fn expect_urgent(&self, time: Duration) {
        self.shared.first.get().expect_urgent(time);
    }
    fn give_way(&self, pause: Duration) {
        self.shared.first.get().give_way(pause);
    }
    fn medium(&self) -> Medium {
        self.shared.first.get().medium()
    }
    fn describe(&self) -> DeviceInfo {
        self.shared.first.get().describe()
    }
}

#[cfg(test)]
#[path = "pair_tests.rs"]
mod tests;
