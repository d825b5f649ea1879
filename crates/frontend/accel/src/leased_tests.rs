//! When a write was made.

use super::*;
use rustix::time::{ClockId, clock_gettime};

/// The daemon takes no time that is to come, by the clock that the kernel stamps files with. One
/// that it has cut off is less than what others were shown meanwhile.
///
/// Seen to fail with CLOCK_REALTIME, in the first turn.
#[test]
fn a_write_is_not_ahead_of_the_kernels_clock() {
    for turn in 0..1000 {
        let written = now();
        let kernel = clock_gettime(ClockId::RealtimeCoarse);
        let kernel = kernel.tv_sec * 1_000_000_000 + kernel.tv_nsec;
        assert!(written <= kernel, "turn {turn}: {written} is after {kernel}");
    }
}
