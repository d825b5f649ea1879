//! Memory of a campaign stays with the process.
//!
//! A campaign makes and drops images of several MiB for each cut. The allocator of glibc maps each
//! of them anew, and so the kernel clears every page again: two thirds of the processor time of a
//! campaign were page faults. Kept, the same memory is used for the next image.

#![allow(unsafe_code)]

/// Lets this process keep the memory that it frees. It is for campaigns only: a test that measures
/// its own memory must not call it.
#[cfg(target_env = "gnu")]
pub fn keep() {
    // Bytes that the allocator keeps, and that it takes from the kernel at once.
    const LARGE: libc::c_int = 1 << 30;
    const AT_ONCE: libc::c_int = 64 << 20;
    let settings = [
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TRIM_THRESHOLD, LARGE),
        (libc::M_TOP_PAD, AT_ONCE),
    ];
    for (what, value) in settings {
        // SAFETY: mallopt takes two integers, and the allocator's own lock guards what it changes.
        let done = unsafe { libc::mallopt(what, value) };
        // A campaign is slower without it, and finds the same.
        if done != 1 {
            eprintln!("mallopt({what}, {value}) is refused");
        }
    }
}

/// Other allocators are left as they are.
#[cfg(not(target_env = "gnu"))]
pub fn keep() {}
