//! Up to when a grantor's memory counts.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// How long a grantor's words count without being looked at again: so long recovery waits for
/// programs that have outlived their daemon.
pub const VOUCHED: Duration = Duration::from_secs(2);

/// Up to when they count if that is said now, by CLOCK_BOOTTIME in nanoseconds.
pub(crate) fn vouched() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    let until = ns.saturating_add_unsigned(VOUCHED.as_nanos());
    u64::try_from(until).unwrap_or(u64::MAX)
}
