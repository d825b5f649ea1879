//! How the C library's allocator serves a process that moves pages of 4 KiB all the time.
//!
//! By default glibc gives each thread a heap of its own and shrinks it as soon as 128 KiB at its
//! end are free. A page that one thread makes is dropped by another, so such heaps grow by single
//! pages (mprotect), shrink (madvise) and grow again: the kernel zeroed pages for two fifths of the
//! time that writing a stream took. One heap that keeps some free memory does none of this; what is
//! beyond that is given back by the Runtime. Only for processes of our own: a program that embeds
//! SiftFS decides for itself.
#![allow(unsafe_code)] // mallopt(3) has no safe wrapper

/// Free bytes at the heap's end from which on it is shrunk, and bytes by which it grows at least.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const SETTINGS: [(libc::c_int, libc::c_int); 3] =
    [(libc::M_ARENA_MAX, 1), (libc::M_TRIM_THRESHOLD, 32 << 20), (libc::M_TOP_PAD, 1 << 20)];

/// One heap for all threads, called before any is started. What the environment sets counts more
/// (`MALLOC_ARENA_MAX` and so on, mallopt(3)). Elsewhere than with glibc it does nothing.
pub fn one_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (what, value) in SETTINGS {
        if set_by_environment() {
            return;
        }
        // SAFETY: it sets a number of the allocator's, under the allocator's own lock.
        if unsafe { libc::mallopt(what, value) } != 1 {
            tracing::debug!(what, value, "the allocator does not take this");
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn set_by_environment() -> bool {
    std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("MALLOC_"))
}
