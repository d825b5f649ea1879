//! The caller's memory. It may not be there: then the kernel says so, and not a signal. What is
//! written is copied before anything is locked, so that a fault's handler meets no lock.

use rustix::mm::{Advice, madvise};
use std::ffi::c_void;
use std::slice;

/// Most pieces of one call, as the kernel has it.
const MOST_PIECES: usize = 1024;

/// The memory that a call names.
pub struct User {
    pieces: Pieces,
    /// All bytes of it.
    pub len: usize,
}

enum Pieces {
    One(libc::iovec),
    Several(Vec<libc::iovec>),
}

impl User {
    /// One piece.
    pub fn one(base: *const c_void, len: usize) -> Self {
        Self { pieces: Pieces::One(libc::iovec { iov_base: base.cast_mut(), iov_len: len }), len }
    }

    /// As readv(2) and writev(2) take it. None if the kernel is to say what is wrong.
    pub fn several(iov: *const libc::iovec, count: i32) -> Option<Self> {
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST_PIECES)?;
        let bytes = count * size_of::<libc::iovec>();
        if !iov.is_aligned() || !is_there(iov.cast(), bytes, Advice::LinuxPopulateRead) {
            return None;
        }
        let mut pieces = Vec::with_capacity(count);
        for at in 0..count {
            // SAFETY: the kernel has just had the page there, to be read, and it is aligned.
            pieces.push(unsafe { iov.add(at).read() });
        }
        let len = pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.iov_len))?;
        Some(Self { pieces: Pieces::Several(pieces), len })
    }

    /// The pieces, for the kernel.
    pub fn pieces(&self) -> &[libc::iovec] {
        match &self.pieces {
            Pieces::One(one) => slice::from_ref(one),
            Pieces::Several(several) => several,
        }
    }

    /// A copy of all bytes. None if some are not there to be read.
    pub fn gather(&self) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        all.try_reserve_exact(self.len).ok()?;
        for piece in self.pieces().iter().filter(|piece| piece.iov_len > 0) {
            let base = piece.iov_base.cast::<u8>();
            if !is_there(base, piece.iov_len, Advice::LinuxPopulateRead) {
                return None;
            }
            // SAFETY: the kernel has just had all of it, to be read. A program that takes it away
            // or changes it meanwhile by another thread gets what it would get for its own copy.
            all.extend_from_slice(unsafe { slice::from_raw_parts(base, piece.iov_len) });
        }
        Some(all)
    }

    /// Is all of it there to be written?
    pub fn takes(&self, len: usize) -> bool {
        let mut left = len;
        self.pieces().iter().all(|piece| {
            let part = piece.iov_len.min(left);
            left -= part;
            part == 0 || is_there(piece.iov_base.cast(), part, Advice::LinuxPopulateWrite)
        })
    }

    /// Copies these bytes to it, which [`User::takes`] was asked for.
    pub fn scatter(&self, mut bytes: &[u8]) {
        for piece in self.pieces() {
            let (part, rest) = bytes.split_at(piece.iov_len.min(bytes.len()));
            bytes = rest;
            if !part.is_empty() {
                // SAFETY: the kernel has just had it there to be written, and it is the caller's,
                // for this call to write to. Both are apart: `bytes` are the library's own.
                unsafe {
                    piece.iov_base.cast::<u8>().copy_from_nonoverlapping(part.as_ptr(), part.len())
                };
            }
        }
    }
}

/// Has the kernel look whether all of this memory is there, for reading or for writing.
fn is_there(base: *const u8, len: usize, how: Advice) -> bool {
    let page = rustix::param::page_size();
    let before = base.addr() & (page - 1);
    let Some(len) = len.checked_add(before).and_then(|len| len.checked_next_multiple_of(page))
    else {
        return false;
    };
    let begin = base.wrapping_sub(before).cast_mut();
    // SAFETY: the advice changes nothing but which pages are in memory.
    len == 0 || unsafe { madvise(begin.cast(), len, how) }.is_ok()
}

#[cfg(test)]
#[path = "user_tests.rs"]
mod tests;
