//! The C library's heap: what the process has of it and does not use, and giving that back.
//!
//! glibc keeps freed memory for the next allocation, unless it happens to lie at the end of the
//! heap: after a burst of many small objects a process keeps the memory of the burst for good.
//! Elsewhere these do nothing.
#![allow(unsafe_code)] // mallinfo2(3) and malloc_trim(3) have no safe wrapper

/// Bytes of the heap: used and free.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn usage() -> (u64, u64) {
    // SAFETY: it takes no argument, and takes the allocator's own locks.
    let info = unsafe { libc::mallinfo2() };
    ((info.uordblks + info.hblkhd) as u64, info.fordblks as u64)
}

/// Bytes of the heap: not known here.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn usage() -> (u64, u64) {
    (0, 0)
}

/// Gives whole free pages back to the kernel.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it changes nothing that a program can see, and takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Nanoseconds between two questions to the heap.
const PACE: u64 = 2_000_000_000;

/// Free bytes of the heap that it keeps for the next burst.
const KEPT: u64 = 16 << 20;

/// When the heap was trimmed last.
#[derive(Default)]
pub struct Trimmer {
    /// When it was last asked, by the monotonic clock, in nanoseconds.
    at: u64,
    /// Free bytes when it was trimmed last, or the fewest since.
    free: u64,
}

impl Trimmer {
    /// Gives memory back, if there is enough of it and some time has passed.
    pub fn pace(&mut self, now: u64) {
        if now.saturating_sub(self.at) < PACE {
            return;
        }
        let (used, free) = usage();
        // What was given back still counts as free: only more of it is worth another walk.
        let wanted = free > KEPT.max(used / 4) && free > self.free + KEPT / 4;
        if wanted {
            trim();
        }
        *self = Self { at: now, free: if wanted { free } else { free.min(self.free) } };
    }
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
