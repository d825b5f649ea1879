//! The clock of a mounted volume.

use rustix::time::{ClockId, clock_gettime};
use siftfs_base::{Clock, SystemClock, Timestamp};

/// Stamps files with the clock that the kernel stamps them with, which moves once per timer tick.
///
/// With the kernel's writeback cache some times of a file come from the kernel and others are made
/// here. By two clocks, a write soon after a creation would carry the earlier time.
#[derive(Default)]
pub(crate) struct FileClock(SystemClock);

impl Clock for FileClock {
    fn now(&self) -> Timestamp {
        let t = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp { sec: t.tv_sec, nsec: u32::try_from(t.tv_nsec).unwrap_or(0) }
    }

    fn mono_ns(&self) -> u64 {
        self.0.mono_ns()
    }

    fn boot_ns(&self) -> u64 {
        let t = clock_gettime(ClockId::Boottime);
        let (sec, nsec) = (u64::try_from(t.tv_sec), u64::try_from(t.tv_nsec));
        sec.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nsec.unwrap_or(0))
    }
}
