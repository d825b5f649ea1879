//! The system call in which a caller waits for our answer.

use siftfs_base::{Result, errno};
use std::path::Path;
use std::time::Duration;

/// How often we look whether the caller waits for us yet: it may still be on its way.
const LOOKS: u32 = 400;
/// The pause after each look, but for the first ones.
const PAUSE: Duration = Duration::from_millis(1);
/// This many first looks have no pause.
const AT_ONCE: u32 = 20;

/// An argument of the system call in which the thread of this folder in `/proc` waits for us, from
/// its registers (0: the first). No other thread can change them. The thread sends its request a
/// moment before it waits.
///
/// # Errors
/// EOPNOTSUPP if the call is not to be seen from here; EAGAIN if the thread does not come to wait
/// for the answer.
pub(crate) fn argument(thread: &Path, place: usize) -> Result<u32> {
    for look in 0..LOOKS {
        let text = std::fs::read_to_string(thread.join("syscall"));
        let text = text.map_err(|_| errno(libc::EOPNOTSUPP))?;
        if let Some(number) = shown(&text, place) {
            return number.ok_or(errno(libc::EOPNOTSUPP));
        }
        if look < AT_ONCE { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
    }
    Err(errno(libc::EAGAIN))
}

/// An argument of the system call that a line of `/proc/PID/syscall` shows; `None` if the thread
/// runs, and inside that if it is in no system call.
fn shown(line: &str, place: usize) -> Option<Option<u32>> {
    let mut words = line.split_whitespace();
    let call = words.next()?;
    if call == "running" {
        return None;
    }
    let number = || {
        call.parse::<u64>().ok()?;
        let value = u64::from_str_radix(words.nth(place)?.strip_prefix("0x")?, 16).ok()?;
        // The kernel takes the lower half of the register.
        u32::try_from(value & u64::from(u32::MAX)).ok()
    };
    Some({ number }())
}

#[cfg(test)]
#[path = "system_call_tests.rs"]
mod tests;
