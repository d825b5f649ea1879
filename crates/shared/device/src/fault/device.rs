//! The fault-injecting device itself.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use siftfs_base::Result;

use super::cache::{Cut, Event, Fate, PendingWrite, VolatileCache};
use super::history::{History, OpKind, OpRecord};
use super::rules::{Effects, Fault, FaultId, OpClass, Rules};
use super::stalls::{Stalling, Stalls};
use crate::{Device, Discards, Divisible, Image, Medium, WriteOp, check_bounds, io_error};
use siftfs_base::Rng;

/// What a fault device counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Reads begun.
    pub reads: u64,
    /// Writes begun.
    pub writes: u64,
    /// Writes begun with `fua`, counted in `writes` too.
    pub fua_writes: u64,
    /// Flushes begun.
    pub flushes: u64,
    /// Discards begun.
    pub discards: u64,
    /// Calls that met a stall ([`FaultDevice::set_stalls`]).
    pub stalled: u64,
    /// Most flushes that were under way at once.
    pub most_flushes_at_once: u64,
    /// Small steps that were said to be under way and have not ended.
    pub urgent: i64,
    /// For how long [`Device::expect_urgent`] announced some the last time.
    pub expected: Option<Duration>,
    /// Pauses that [`Device::give_way`] was asked for.
    pub pauses: u64,
}

/// Bytes that the device gives back at least.
const DISCARD_UNIT: u64 = 4096;

struct State {
    cache: VolatileCache,
    rules: Rules,
    rng: Rng,
    /// Number of the next write or flush.
    next_op: u64,
    cut_at: Option<u64>,
    cut: bool,
    write_delay: Duration,
    flush_delay: Duration,
    serial: bool,
    flushing: u64,
    stalling: Arc<Stalling>,
    discards: Option<Discards>,
    stats: FaultStats,
    log: Option<Vec<OpRecord>>,
    history: Option<History>,
}

/// A device in memory with a volatile cache that loses power, fails, lies and dawdles on
/// demand.
///
/// Writes and flushes are numbered from 0 in the order in which they begin; each is a boundary
/// at which power can be cut. All choices follow from seeds.
pub struct FaultDevice {
    state: Mutex<State>,
    /// Held while one of several flushes takes its time.
    flush: Mutex<()>,
    stalling: Arc<Stalling>,
    size: u64,
}

impl FaultDevice {
    /// `size` zero bytes, all durable; `size` is a multiple of the sector size.
    pub fn new(size: u64, seed: u64) -> Self {
        Self::from_image(Image::new(size), seed)
    }

    /// A device that starts with these contents, all durable: a new one, or what a power cut
    /// left of another.
    pub fn from_image(image: Image, seed: u64) -> Self {
        let size = image.size();
        let stalling = Arc::<Stalling>::default();
        let state = State {
            cache: VolatileCache::new(image),
            rules: Rules::default(),
            rng: Rng::new(seed),
            next_op: 0,
            cut_at: None,
            cut: false,
            write_delay: Duration::ZERO,
            flush_delay: Duration::ZERO,
            serial: false,
            flushing: 0,
            stalling: stalling.clone(),
            discards: None,
            stats: FaultStats::default(),
            log: None,
            history: None,
        };
        Self { state: Mutex::new(state), flush: Mutex::default(), stalling, size }
    }

    /// From this byte on the device is memory that is addressed by bytes: stores that are not
    /// persisted are torn at words of 8 bytes, and no sector around them is rewritten. A
    /// [`crate::Part`] from there on stands for a record area, and one order of operations covers
    /// disk and area. `offset` is a multiple of the sector size; for a device that nothing has been
    /// done to yet.
    #[must_use]
    pub fn with_bytes_from(self, offset: u64) -> Self {
        let mut st = self.lock();
        st.cache = st.cache.clone().with_bytes_from(offset);
        drop(st);
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of writes and flushes begun so far, which is the number of the next.
    pub fn ops(&self) -> u64 {
        self.lock().next_op
    }

    /// Cuts the power at the operation with this number: it is in flight at the cut, and
    /// fails with EIO, as everything after it does. A number of the past cuts at the next
    /// operation.
    pub fn cut_at(&self, op: u64) {
        self.lock().cut_at = Some(op);
    }

    /// Cuts the power now.
    pub fn cut_now(&self) {
        self.lock().lose_power();
    }

    /// Was the power cut?
    pub fn is_cut(&self) -> bool {
        self.lock().cut
    }

    /// What is on the medium when power is lost now, or was lost at the cut. Writes that were
    /// not flushed, the ones in flight included, fare as `cut` says.
    pub fn image(&self, cut: Cut) -> Image {
        self.lock().cache.image(cut)
    }

    /// [`FaultDevice::image`] with each such write kept, lost or torn as the seed says.
    pub fn power_cut_image(&self, seed: u64) -> Image {
        self.image(Cut::Random(seed))
    }

    /// [`FaultDevice::image`] with `fate` deciding on each write of [`FaultDevice::pending`].
    pub fn image_with(&self, fate: impl FnMut(&PendingWrite) -> Fate) -> Image {
        self.lock().cache.image_with(fate)
    }

    /// Writes that a power cut may lose: those that returned, in that order, then those in
    /// flight.
    pub fn pending(&self) -> Vec<PendingWrite> {
        self.lock().cache.pending()
    }

    /// What is certain to survive.
    pub fn durable(&self) -> Image {
        self.lock().cache.durable().clone()
    }

    /// What reads see.
    pub fn contents(&self) -> Image {
        self.lock().cache.cached().clone()
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.lock().rules.add(fault)
    }

    /// Removes a fault; calls that it holds or delays stay held or delayed.
    pub fn remove(&self, id: FaultId) {
        self.lock().rules.remove(id);
    }

    /// Removes all faults.
    pub fn remove_all(&self) {
        self.lock().rules.clear();
    }

    /// How often a fault struck; 0 once it is removed.
    pub fn fired(&self, id: FaultId) -> u64 {
        self.lock().rules.fired(id)
    }

    /// Every write takes this long.
    pub fn set_write_delay(&self, time: Duration) {
        self.lock().write_delay = time;
    }

    /// Every flush takes this long, and so does a write with `fua` besides its time as a write.
    pub fn set_flush_delay(&self, time: Duration) {
        self.lock().flush_delay = time;
    }

    /// Flushes, and writes with `fua` as far as they are flushes, take their time one after the
    /// other, as on a disk that empties its cache for each; otherwise side by side.
    pub fn set_serial_flushes(&self, serial: bool) {
        self.lock().serial = serial;
    }

    /// The device stalls from now on, at once and then at each period, or not any more. A call that
    /// comes in a stall ends when the stall does, and its effect is at its end. A power cut ends
    /// all stalls.
    pub fn set_stalls(&self, stalls: Option<Stalls>) {
        self.stalling.set(stalls);
    }

    /// The device gives space back from now on, in pieces of 4096 bytes. What was discarded reads
    /// as zeros or as garbage, and a power cut decides for each sector by itself whether it still
    /// holds what was there before, until a flush.
    pub fn enable_discard(&self) {
        self.lock().discards = Some(Discards { unit: DISCARD_UNIT, usual: true });
    }

    /// Flips the bits of `mask` in the byte at `offset`, at rest: on the medium and in the
    /// cache.
    ///
    /// # Panics
    /// When the byte is not on the device.
    pub fn flip_bits(&self, offset: u64, mask: u8) {
        self.lock().event(Event::Rot { offset, mask: [mask].into() });
    }

    /// Changes every byte of the range at rest, as the seed says; panics as
    /// [`FaultDevice::flip_bits`].
    pub fn scribble(&self, offset: u64, len: usize, seed: u64) {
        let mut rng = Rng::new(seed);
        let mask: Arc<[u8]> = (0..len).map(|_| rng.below(255) as u8 + 1).collect();
        self.lock().event(Event::Rot { offset, mask });
    }

    /// Starts to keep a list of operations, empty now.
    pub fn record(&self) {
        self.lock().log = Some(Vec::new());
    }

    /// The operations since [`FaultDevice::record`] or the last call of this, in the order in
    /// which they began; empty when not recording.
    pub fn take_log(&self) -> Vec<OpRecord> {
        self.lock().log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Starts to keep everything that happens, with its data, in memory.
    pub fn record_history(&self) {
        let mut st = self.lock();
        st.history = Some(History::new(st.cache.clone()));
    }

    /// Ends [`FaultDevice::record_history`] and gives what it kept.
    pub fn take_history(&self) -> Option<History> {
        self.lock().history.take()
    }

    /// What was counted.
    pub fn stats(&self) -> FaultStats {
        FaultStats { stalled: self.stalling.calls(), ..self.lock().stats }
    }

    /// Waits out delays and gates, without the lock.
    fn dawdle(effects: &Effects, delay: Duration) {
        effects.gates.iter().for_each(super::Gate::pass);
        let delay = delay + effects.delay;
        if !delay.is_zero() {
            thread::sleep(delay);
        }
    }

    /// Takes as long as a flush does.
    fn dawdle_flushing(&self, delay: Duration, serial: bool) {
        if delay.is_zero() {
            return;
        }
        let _alone = serial.then(|| self.flush.lock().unwrap_or_else(PoisonError::into_inner));
        thread::sleep(delay);
    }

    fn write_all(&self, ops: &[WriteOp<'_>], fua: bool) -> Result<()> {
        for op in ops {
            check_bounds("write", self.size, op.offset, op.data.len())?;
        }
        let mut st = self.lock();
        let mut begun = Vec::with_capacity(ops.len());
        let mut waits = Effects::default();
        let mut result = Ok(());
        for op in ops {
            let (number, mut effects) = st.begin_write(op, fua)?;
            waits.delay = waits.delay.max(effects.delay);
            waits.gates.append(&mut effects.gates);
            begun.push(number);
            if let Some(errno) = effects.fail {
                result = Err(io_error("write", op.offset, op.data.len(), errno));
                break;
            }
        }
        let delay = st.write_delay;
        let flush = if fua { st.flush_delay } else { Duration::ZERO };
        let serial = st.serial;
        drop(st);
        self.stalling.pass(false);
        Self::dawdle(&waits, delay);
        self.dawdle_flushing(flush, serial);
        let mut st = self.lock();
        if let (true, Some(op)) = (st.cut, ops.first()) {
            return Err(io_error("write", op.offset, op.data.len(), libc::EIO));
        }
        begun.into_iter().for_each(|op| st.event(Event::FinishWrite { op }));
        result
    }
}

impl State {
    /// Carries out an event and remembers it.
    fn event(&mut self, event: Event) {
        self.cache.apply(&event);
        if let Some(history) = &mut self.history {
            history.push(event);
        }
    }

    fn note(&mut self, kind: OpKind, offset: u64, len: usize) {
        let op = self.next_op;
        if let Some(log) = &mut self.log {
            log.push(OpRecord { op, kind, offset, len });
        }
    }

    fn lose_power(&mut self) {
        self.cut = true;
        self.rules.open_gates();
        self.stalling.set(None);
    }

    /// Takes the next number; true when this is where the power goes.
    fn number(&mut self) -> (u64, bool) {
        let op = self.next_op;
        self.next_op += 1;
        (op, self.cut_at.is_some_and(|at| op >= at))
    }

    /// Puts a write in flight and says what else happens to it.
    fn begin_write(&mut self, op: &WriteOp<'_>, fua: bool) -> Result<(u64, Effects)> {
        let dead = || io_error("write", op.offset, op.data.len(), libc::EIO);
        if self.cut {
            return Err(dead());
        }
        let kind = if fua { OpKind::WriteFua } else { OpKind::Write };
        self.note(kind, op.offset, op.data.len());
        self.stats.writes += 1;
        self.stats.fua_writes += u64::from(fua);
        let effects = self.rules.effects(OpClass::Write, op.offset, op.data.len());
        let (number, last) = self.number();
        if effects.torn {
            self.tear(number, op);
        } else if effects.fail.is_none() && !effects.swallow {
            let offset = effects.misdirect.unwrap_or(op.offset);
            let size = self.cache.cached().size();
            if check_bounds("write", size, offset, op.data.len()).is_ok() {
                self.event(Event::StartWrite { op: number, offset, data: op.data.into(), fua });
            }
        }
        if last {
            self.lose_power();
            return Err(dead());
        }
        Ok((number, effects))
    }

    /// Puts some sectors of a write in flight, or words where the device is addressed by bytes.
    fn tear(&mut self, number: u64, op: &WriteOp<'_>) {
        let mut at = 0;
        while at < op.data.len() {
            let offset = op.offset + at as u64;
            let unit = self.cache.unit_at(offset);
            let part = ((unit - offset % unit) as usize).min(op.data.len() - at);
            if self.rng.below(2) == 0 {
                let data = op.data[at..at + part].into();
                self.event(Event::StartWrite { op: number, offset, data, fua: false });
            }
            at += part;
        }
    }

    /// Puts a discard in flight: a write of what nobody chose, zeros or garbage.
    fn begin_discard(&mut self, offset: u64, len: usize) -> Result<(u64, Effects)> {
        let failed = |errno| Err(io_error("discard", offset, len, errno));
        if self.cut {
            return failed(libc::EIO);
        }
        if self.discards.is_none() {
            return failed(libc::EOPNOTSUPP);
        }
        self.note(OpKind::Discard, offset, len);
        self.stats.discards += 1;
        let effects = self.rules.effects(OpClass::Discard, offset, len);
        let (number, last) = self.number();
        let garbage = self.rng.below(2) == 0;
        let mut at = 0;
        while at < len {
            let part = (len - at).min(DISCARD_UNIT as usize);
            let byte = if garbage { self.rng.below(256) as u8 } else { 0 };
            let data = vec![byte; part].into();
            let event =
                Event::StartWrite { op: number, offset: offset + at as u64, data, fua: false };
            self.event(event);
            at += part;
        }
        if last {
            self.lose_power();
            return failed(libc::EIO);
        }
        Ok((number, effects))
    }

    fn begin_flush(&mut self, range: Range<u64>) -> Result<(u64, Effects)> {
        let dead = || io_error("flush", 0, 0, libc::EIO);
        if self.cut {
            return Err(dead());
        }
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        // A flush of everything touches no range of its own.
        let len = if range.end == u64::MAX { 0 } else { len };
        self.note(OpKind::Flush, range.start, len);
        self.stats.flushes += 1;
        let effects = self.rules.effects(OpClass::Flush, range.start, len);
        let (number, last) = self.number();
        self.event(Event::StartFlush { op: number, range });
        if last {
            self.lose_power();
            return Err(dead());
        }
        self.flushing += 1;
        self.stats.most_flushes_at_once = self.stats.most_flushes_at_once.max(self.flushing);
        Ok((number, effects))
    }
}

impl Device for FaultDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds("read", self.size, offset, buf.len())?;
        let failed = |errno| Err(io_error("read", offset, buf.len(), errno));
        let mut st = self.lock();
        if st.cut {
            return failed(libc::EIO);
        }
        st.note(OpKind::Read, offset, buf.len());
        st.stats.reads += 1;
        let effects = st.rules.effects(OpClass::Read, offset, buf.len());
        drop(st);
        self.stalling.pass(true);
        Self::dawdle(&effects, Duration::ZERO);
        let st = self.lock();
        if let Some(errno) = effects.fail.or(st.cut.then_some(libc::EIO)) {
            return failed(errno);
        }
        st.cache.cached().read(offset, buf);
        for (at, mask) in effects.flips {
            let index = at.checked_sub(offset).and_then(|i| usize::try_from(i).ok());
            if let Some(byte) = index.and_then(|i| buf.get_mut(i)) {
                *byte ^= mask;
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.write_all(&[WriteOp { offset, data }], fua)
    }

    fn flush(&self) -> Result<()> {
        self.flush_range(0..u64::MAX)
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        self.write_all(ops, false)
    }

    fn discards(&self) -> Option<Discards> {
        self.lock().discards
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        check_bounds("discard", self.size, offset, bytes)?;
        let (op, effects) = self.lock().begin_discard(offset, bytes)?;
        self.stalling.pass(false);
        Self::dawdle(&effects, Duration::ZERO);
        let mut st = self.lock();
        if st.cut {
            return Err(io_error("discard", offset, bytes, libc::EIO));
        }
        st.event(Event::FinishWrite { op });
        effects.fail.map_or(Ok(()), |errno| Err(io_error("discard", offset, bytes, errno)))
    }

    fn urgent(&self, under_way: bool) {
        self.lock().stats.urgent += if under_way { 1 } else { -1 };
    }

    fn expect_urgent(&self, time: Duration) {
        self.lock().stats.expected = Some(time);
    }

    fn give_way(&self, _: Duration) {
        self.lock().stats.pauses += 1;
    }

    fn medium(&self) -> Medium {
        self.medium_at(0)
    }
}

impl Divisible for FaultDevice {
    fn medium_at(&self, offset: u64) -> Medium {
        self.lock().cache.medium_at(offset)
    }

    fn flush_range(&self, range: Range<u64>) -> Result<()> {
        let mut st = self.lock();
        let (op, effects) = st.begin_flush(range)?;
        let (delay, serial) = (st.flush_delay, st.serial);
        drop(st);
        self.stalling.pass(false);
        Self::dawdle(&effects, Duration::ZERO);
        self.dawdle_flushing(delay, serial);
        let mut st = self.lock();
        st.flushing -= 1;
        if st.cut {
            return Err(io_error("flush", 0, 0, libc::EIO));
        }
        match effects.fail {
            Some(errno) => {
                st.event(Event::FailFlush { op });
                Err(io_error("flush", 0, 0, errno))
            }
            None if effects.swallow => {
                st.event(Event::FailFlush { op });
                Ok(())
            }
            None => {
                st.event(Event::FinishFlush { op });
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
