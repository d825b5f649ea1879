//! The term for which a process knows that it still has a volume which another one may take over
//! (`docs/design/replicated.md`, "Takeover of a served volume").

use siftfs_base::{Error, Result};
use siftfs_device::{AlignedBuf, Device};
use siftfs_remote::Tenure;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

/// For how long a look at the device counts, from its begin.
const TERM: Duration = Duration::from_secs(1);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(300);
/// For how long a process that has taken a device over waits: the term of the one before, by a
/// clock that may run differently by a tenth.
const OTHERS_TERM: Duration = Duration::from_millis(1100);
/// How often a message that is held back looks whether its connection is over.
const HELD: Duration = Duration::from_millis(100);
/// Bytes that a look reads: the first block, which every successor reads behind its fence.
const BLOCK: usize = 4096;

/// What is known of this process's hold on its volume.
pub(crate) struct Term {
    device: Weak<dyn Device>,
    /// Nanoseconds of [`now`] up to which the last look counts.
    until: AtomicU64,
    ended: AtomicBool,
    turn: Mutex<()>,
    changed: Condvar,
}

impl std::fmt::Debug for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the term of a volume")
    }
}

impl Term {
    /// Has a thread look at the device from now on, if another process can take that; `None` where
    /// none can.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn of(device: &Arc<dyn Device>) -> Result<Option<Arc<Self>>> {
        if !device.can_be_taken() {
            return Ok(None);
        }
        let (until, ended, turn, changed) = Default::default();
        let device = Arc::downgrade(device);
        let term = Arc::new(Self { device, until, ended, turn, changed });
        let looks = term.clone();
        let thread = Builder::new().name("siftfs-term".into()).spawn(move || looks.run());
        let why = |e| Error::Refused(format!("cannot start a thread that looks at the image: {e}"));
        thread.map_err(why).map(|_| Some(term))
    }

    /// Looks until the volume is closed, or is another process's. A cluster that does not answer
    /// keeps the thread, which nobody waits for.
    fn run(&self) {
        while !self.ended.load(Ordering::Acquire) {
            let Some(device) = self.device.upgrade() else { return };
            let begun = now();
            let mut block = AlignedBuf::zeroed(BLOCK);
            match device.read(0, &mut block) {
                Ok(()) => self.counts_until(begun + TERM.as_nanos() as u64),
                Err(error) => tracing::debug!(%error, "a look at the volume"),
            }
            if device.was_taken().is_some() {
                return self.wake();
            }
            drop(device);
            thread::sleep(LOOK);
        }
    }

    fn counts_until(&self, until: u64) {
        self.until.fetch_max(until, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        drop(self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Why the volume is another process's by now.
    pub fn lost(&self) -> Option<String> {
        self.device.upgrade()?.was_taken()
    }

    /// The volume is about to be closed: no thread looks any more.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

impl Tenure for Term {
    fn counts_now(&self) -> bool {
        now() < self.until.load(Ordering::Acquire) && self.lost().is_none()
    }

    fn wait(&self, over: &dyn Fn() -> bool) -> bool {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.counts_now() {
                return true;
            }
            if over() || self.lost().is_some() || self.device.strong_count() == 0 {
                return false;
            }
            let waited = self.changed.wait_timeout(turn, HELD);
            turn = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Waits until no process that had the device before answers anybody by what it looked at, where
/// `read_at` is when this one had read the first block.
pub(crate) fn outlast_others(device: &dyn Device, read_at: Instant) {
    if device.can_be_taken() {
        thread::sleep(left_of_others(read_at, Instant::now()));
    }
}

/// What is left of the terms of all processes before this one.
fn left_of_others(read_at: Instant, now: Instant) -> Duration {
    (read_at + OTHERS_TERM).saturating_duration_since(now)
}

/// Nanoseconds since this machine was started, those of a suspension among them.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
#[path = "term_tests.rs"]
mod tests;
