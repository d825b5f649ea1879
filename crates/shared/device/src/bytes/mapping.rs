//! Memory that others may map too. It is touched through atomic words and bytes alone, never as a
//! slice: what another process changes meanwhile is then a wrong value at worst.

// Mapped memory has no safe access.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::lines::{self, LINE};
use super::promise::LineFlush;

/// Bytes that a store changes at once or not at all, if they are aligned.
const WORD: usize = 8;
/// From this many bytes on stores pass the caches by, which is the quicker way to the medium.
const STREAM: usize = 512;

/// How a file is mapped.
#[derive(Clone, Copy, Default)]
pub(super) struct Wish {
    /// For stores too.
    pub writable: bool,
    /// With `MAP_SYNC`: the kernel has made the blocks below a page durable before the first store.
    pub sync: bool,
    /// With its pages present, so that the first store to each waits for nothing.
    pub populated: bool,
}

/// A shared mapping of a file or device.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the memory is process-wide and stays mapped until the drop; all access is atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first `len` bytes of a file.
    pub fn of(file: &File, len: usize, wish: Wish) -> io::Result<Self> {
        let protection = libc::PROT_READ | if wish.writable { libc::PROT_WRITE } else { 0 };
        let mut flags = libc::MAP_SHARED;
        if wish.sync {
            flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        }
        if wish.populated {
            flags |= libc::MAP_POPULATE;
        }
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping where the kernel wants it touches no memory of ours.
        let base = unsafe { libc::mmap(null_mut(), len, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { base, len, writable: wish.writable })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The place of `len` bytes.
    ///
    /// # Panics
    /// If they are not all inside.
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "an access lies inside the mapping");
        self.base.as_ptr().wrapping_add(at)
    }

    /// Fills `buf` from `at`, in aligned words where it can.
    pub fn load(&self, at: usize, buf: &mut [u8]) {
        let mut from = self.place(at, buf.len());
        let (head, rest) = buf.split_at_mut(to_word(from).min(buf.len()));
        let (words, tail) = rest.as_chunks_mut::<WORD>();
        for byte in head {
            // SAFETY: inside the mapping, as `place` asserted.
            *byte = unsafe { load_byte(from) };
            from = from.wrapping_add(1);
        }
        for chunk in words {
            // SAFETY: the word is aligned, and inside the mapping as `place` asserted.
            let word = unsafe { AtomicU64::from_ptr(from.cast()) }.load(Ordering::Relaxed);
            *chunk = u64::from_le(word).to_le_bytes();
            from = from.wrapping_add(WORD);
        }
        for byte in tail {
            // SAFETY: inside the mapping, as `place` asserted.
            *byte = unsafe { load_byte(from) };
            from = from.wrapping_add(1);
        }
    }

    /// Stores `data` at `at`, in aligned words where it can, and starts to write the lines back.
    /// [`lines::fence`] waits for them.
    pub fn store(&self, at: usize, data: &[u8], how: Option<LineFlush>) {
        assert!(self.writable, "a store goes to a writable mapping");
        let to = self.place(at, data.len());
        let (head, rest) = data.split_at(to_line(to).min(data.len()));
        let streamed = if rest.len() >= STREAM { rest.len() - rest.len() % LINE } else { 0 };
        if streamed == 0 {
            // SAFETY: inside, as `place` asserted, and writable.
            unsafe { store_plain(to, data) };
            self.write_back(at, data.len(), how);
            return;
        }
        let (lines, tail) = rest.split_at(streamed);
        // SAFETY: as above.
        unsafe { store_plain(to, head) };
        self.write_back(at, head.len(), how);
        let mut place = to.wrapping_add(head.len());
        for word in lines.as_chunks::<WORD>().0 {
            // SAFETY: the word is aligned, as a line is, and inside as `place` asserted.
            unsafe { lines::stream(place.cast(), u64::from_le_bytes(*word).to_le()) };
            place = place.wrapping_add(WORD);
        }
        // SAFETY: as above.
        unsafe { store_plain(place, tail) };
        self.write_back(at + head.len() + streamed, tail.len(), how);
    }

    /// Starts to write back the lines of a range. [`lines::fence`] waits for them.
    pub fn write_back(&self, at: usize, len: usize, how: Option<LineFlush>) {
        let Some(how) = how.filter(|_| len > 0) else { return };
        // SAFETY: the bytes are mapped, and the code that made the `LineFlush` has asked the
        // processor for it.
        unsafe { lines::write_back(how, self.place(at, len), len) };
    }

    /// Reads the word that the byte at `at` belongs to, past all caches of a compiler.
    pub fn touch(&self, at: usize) -> u64 {
        let word = self.place(at - at % WORD, WORD);
        // SAFETY: the word is aligned, and inside as `place` asserted.
        unsafe { word.cast::<u64>().read_volatile() }
    }

    /// A register of 32 bits, little-endian, at a multiple of 4.
    pub fn register(&self, at: usize) -> u32 {
        assert!(at.is_multiple_of(4), "registers are aligned");
        let place = self.place(at, 4);
        // SAFETY: the place is aligned, as the mapping is, and inside.
        u32::from_le(unsafe { place.cast::<u32>().read_volatile() })
    }

    /// Sets a register.
    pub fn set_register(&self, at: usize, value: u32) {
        assert!(self.writable && at.is_multiple_of(4), "registers are aligned and writable");
        let place = self.place(at, 4);
        // SAFETY: the place is aligned, as the mapping is, and inside.
        unsafe { AtomicU32::from_ptr(place.cast()) }.store(value.to_le(), Ordering::SeqCst);
    }

    /// Has the kernel make the pages around a range writable, so that a store there is no fault.
    ///
    /// # Errors
    /// `EFAULT` where a store would end the process by a signal: the file was made shorter, or its
    /// file system has failed. `EINVAL` if the kernel does not know that call (Linux 5.14 does).
    pub fn populate(&self, at: usize, len: usize) -> io::Result<()> {
        let skip = at % rustix::param::page_size();
        let from = self.place(at - skip, skip + len);
        loop {
            // SAFETY: the pages are mapped, and the call changes no memory.
            match unsafe { libc::madvise(from.cast(), skip + len, libc::MADV_POPULATE_WRITE) } {
                0 => return Ok(()),
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }

    /// msync(2) of the pages around a range.
    pub fn sync(&self, at: usize, len: usize) -> io::Result<()> {
        let skip = at % rustix::param::page_size();
        let from = self.place(at - skip, skip + len);
        // SAFETY: the pages are mapped, and msync changes no memory.
        match unsafe { libc::msync(from.cast(), skip + len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Bytes up to the next aligned word.
fn to_word(place: *const u8) -> usize {
    place.addr().wrapping_neg() % WORD
}

/// Bytes up to the next line.
fn to_line(place: *const u8) -> usize {
    place.addr().wrapping_neg() % LINE
}

/// # Safety
/// The byte is inside a mapping.
unsafe fn load_byte(from: *mut u8) -> u8 {
    // SAFETY: the caller vouches for the place.
    unsafe { AtomicU8::from_ptr(from) }.load(Ordering::Relaxed)
}

/// # Safety
/// The byte is inside a writable mapping.
unsafe fn store_byte(to: *mut u8, byte: u8) {
    // SAFETY: the caller vouches for the place.
    unsafe { AtomicU8::from_ptr(to) }.store(byte, Ordering::Relaxed);
}

/// Stores `data` in aligned words where it can.
///
/// # Safety
/// All of its places are inside a writable mapping.
unsafe fn store_plain(mut to: *mut u8, data: &[u8]) {
    let (head, rest) = data.split_at(to_word(to).min(data.len()));
    let (words, tail) = rest.as_chunks::<WORD>();
    for byte in head {
        // SAFETY: the caller vouches for the place.
        unsafe { store_byte(to, *byte) };
        to = to.wrapping_add(1);
    }
    for word in words {
        let word = u64::from_le_bytes(*word).to_le();
        // SAFETY: the caller vouches for the place, and the word is aligned.
        unsafe { AtomicU64::from_ptr(to.cast()) }.store(word, Ordering::Relaxed);
        to = to.wrapping_add(WORD);
    }
    for byte in tail {
        // SAFETY: the caller vouches for the place.
        unsafe { store_byte(to, *byte) };
        to = to.wrapping_add(1);
    }
}
