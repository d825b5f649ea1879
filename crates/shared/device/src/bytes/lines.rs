//! Cache lines: which instruction writes them back, and the fence behind it.

// Instructions without an intrinsic in the standard library.
#![allow(unsafe_code)]

use super::promise::LineFlush;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

#[cfg(target_arch = "x86_64")]
mod machine {
    use super::{LINE, LineFlush};
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    /// What CPUID says that the processor has.
    pub fn detect() -> Option<LineFlush> {
        // Newer compilers call these two safe.
        // SAFETY: every x86-64 processor has the instruction CPUID, and it only reads.
        #[allow(unused_unsafe)]
        let (basic, first, seventh) = unsafe {
            let basic = __cpuid(0).eax;
            let seventh = if basic >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
            (basic, if basic >= 1 { __cpuid(1).edx } else { 0 }, seventh)
        };
        tracing::trace!(basic, first, seventh, "cpuid");
        if seventh & 1 << 24 != 0 {
            Some(LineFlush::Clwb)
        } else if seventh & 1 << 23 != 0 {
            Some(LineFlush::Clflushopt)
        } else {
            (first & 1 << 19 != 0).then_some(LineFlush::Clflush)
        }
    }

    /// Starts to write back every line of the `len` bytes at `from`.
    ///
    /// # Safety
    /// The bytes are mapped, and `how` comes from [`detect`].
    pub unsafe fn write_back(how: LineFlush, from: *const u8, len: usize) {
        let skip = from.addr() % LINE;
        let mut line = from.wrapping_sub(skip);
        for _ in 0..(skip + len).div_ceil(LINE) {
            // SAFETY: the line holds a byte that the caller vouches for, and the processor has the
            // instruction; it changes no memory and no flags.
            unsafe {
                match how {
                    LineFlush::Clwb => {
                        asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    LineFlush::Clflushopt => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    LineFlush::Clflush => {
                        asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                }
            }
            line = line.wrapping_add(LINE);
        }
    }

    /// Waits until what this processor wrote back and streamed before is accepted.
    pub fn fence() {
        // SAFETY: the instruction has no operands and changes no flags.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// As [`fence`], and no later load begins before.
    pub fn full_fence() {
        // SAFETY: the instruction has no operands and changes no flags.
        unsafe { asm!("mfence", options(nostack, preserves_flags)) };
    }

    /// Stores a word past the caches.
    ///
    /// # Safety
    /// `to` is the place of a mapped, writable, aligned word.
    pub unsafe fn stream(to: *mut u64, word: u64) {
        // SAFETY: the caller vouches for the place.
        unsafe {
            asm!("movnti [{}], {}", in(reg) to, in(reg) word, options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use super::LineFlush;
    use std::sync::atomic::{AtomicU64, Ordering, fence as barrier};

    /// No way of writing lines back is known here: persistent places are refused.
    pub fn detect() -> Option<LineFlush> {
        None
    }

    /// Nothing to do: [`detect`] finds no instruction.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn write_back(_: LineFlush, _: *const u8, _: usize) {}

    /// Orders stores.
    pub fn fence() {
        barrier(Ordering::SeqCst);
    }

    /// Orders loads too.
    pub fn full_fence() {
        barrier(Ordering::SeqCst);
    }

    /// Stores a word.
    ///
    /// # Safety
    /// `to` is the place of a mapped, writable, aligned word.
    pub unsafe fn stream(to: *mut u64, word: u64) {
        // SAFETY: the caller vouches for the place.
        unsafe { AtomicU64::from_ptr(to) }.store(word, Ordering::Relaxed);
    }
}

pub(super) use machine::{detect, fence, full_fence, stream, write_back};
