//! Buffers that direct I/O takes without a bounce.

use std::ops::{Deref, DerefMut};

use siftfs_base::BLOCK_SIZE;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_SIZE]);

/// An owned buffer whose first byte lies on a 4096-byte boundary.
///
/// The length is exact; the allocation behind it is whole pages, and may be longer.
#[derive(Clone, Default)]
pub struct AlignedBuf {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// When the memory cannot be allocated; the caller bounds `len`.
    pub fn zeroed(len: usize) -> Self {
        let pages = Page::new_vec_zeroed(len.div_ceil(BLOCK_SIZE))
            .unwrap_or_else(|_| panic!("cannot allocate a buffer of {len} bytes"));
        Self { pages, len }
    }

    /// A copy of `data`.
    pub fn copy_of(data: &[u8]) -> Self {
        let mut buf = Self::zeroed(data.len());
        buf.copy_from_slice(data);
        buf
    }

    /// Changes the length, for a caller that writes all of the buffer: its bytes are any that it
    /// ever held. The allocation only grows.
    pub fn reuse(&mut self, len: usize) {
        let pages = len.div_ceil(BLOCK_SIZE);
        if pages > self.pages.len() {
            self.pages.resize(pages, Page([0; BLOCK_SIZE]));
        }
        self.len = len;
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages.as_slice().as_bytes()[..self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_slice().as_mut_bytes()[..self.len]
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
#[path = "buf_tests.rs"]
mod tests;
