//! The library's own memory. A signal's handler may call write(2) while its thread has the
//! program's allocator locked, so that one is never called. Nothing is allocated but inside
//! ([`super::guard`]), so no handler comes upon this one at work.

use super::renew::Renewable;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{self, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks are of powers of two: of 16 bytes up to a mebibyte.
const SMALLEST: u32 = 4;
const LARGEST: u32 = 20;
const CLASSES: usize = (LARGEST - SMALLEST + 1) as usize;
/// Blocks of up to 8 KiB are cut from pieces of this length; larger ones are mapped one by one.
const PIECE: usize = 128 << 10;
const CUT: u32 = 13;
/// As aligned as a page is at least.
const MOST_ALIGN: usize = 4096;

struct State {
    /// The first free block of each class, in which the address of the next one stands.
    free: [*mut u8; CLASSES],
    /// What is left of the newest piece.
    begin: *mut u8,
    left: usize,
}

// SAFETY: the pointers are to memory of the whole process, which is given out under a lock.
unsafe impl Send for State {}

pub struct Heap(Renewable<Mutex<State>>);

#[cfg_attr(not(test), global_allocator)]
pub static HEAP: Heap = Heap::new();

impl State {
    const fn new() -> Self {
        Self { free: [null_mut(); CLASSES], begin: null_mut(), left: 0 }
    }
}

impl Heap {
    const fn new() -> Self {
        Self(Renewable::new(Mutex::new(State::new())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew in the child of a fork: another thread may have had the lock.
    ///
    /// # Safety
    /// There is no other thread, and this one is not in here.
    pub unsafe fn renew(&self) {
        // SAFETY: the caller's promise. What was given out stays as it is.
        unsafe { self.0.renew(Mutex::new(State::new())) };
    }
}

/// The class of a block: the power of two of its length. None: it is mapped by itself.
fn class(layout: Layout) -> Option<u32> {
    let len = layout.size().max(layout.align()).max(1 << SMALLEST).checked_next_power_of_two()?;
    let class = len.trailing_zeros();
    (class <= LARGEST).then_some(class)
}

fn map(len: usize) -> *mut u8 {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at a place that the kernel chooses.
    let mapped = unsafe { mmap_anonymous(null_mut(), len, prot, flags) };
    mapped.map_or(null_mut(), <*mut _>::cast)
}

impl State {
    fn take(&mut self, class: u32) -> *mut u8 {
        let len = 1_usize << class;
        let Some(first) = self.free.get_mut((class - SMALLEST) as usize) else { return null_mut() };
        if !first.is_null() {
            let block = *first;
            // SAFETY: a free block is long enough for a pointer, aligned for it, and has the next.
            *first = unsafe { block.cast::<*mut u8>().read() };
            return block;
        }
        if class > CUT {
            return map(len);
        }
        // A piece begins at a page, so that what is a multiple of its length is aligned to it.
        let skip = self.begin.align_offset(len);
        if self.begin.is_null() || self.left < skip.saturating_add(len) {
            let piece = map(PIECE);
            if piece.is_null() {
                return piece;
            }
            (self.begin, self.left) = (piece, PIECE);
            return self.cut(0, len);
        }
        self.cut(skip, len)
    }

    fn cut(&mut self, skip: usize, len: usize) -> *mut u8 {
        // SAFETY: the caller has seen that as much is left of the piece.
        let block = unsafe { self.begin.add(skip) };
        // SAFETY: as above.
        self.begin = unsafe { block.add(len) };
        self.left -= skip + len;
        block
    }

    fn give(&mut self, block: *mut u8, class: u32) {
        if let Some(first) = self.free.get_mut((class - SMALLEST) as usize) {
            // SAFETY: the block is free, long enough for a pointer and aligned for it.
            unsafe { block.cast::<*mut u8>().write(*first) };
            *first = block;
        }
    }
}

// SAFETY: a block is as long as its class, which is at least the layout's size, and aligned to its
// length or to a page, which is at least the layout's alignment; it is given out once until it
// comes back. What is mapped by itself is unmapped with the length it was mapped with.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            _ if layout.align() > MOST_ALIGN => null_mut(),
            Some(class) => self.lock().take(class),
            None => map(layout.size()),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(layout) {
            Some(class) => self.lock().give(block, class),
            // SAFETY: it was mapped by itself, with this length.
            None => drop(unsafe { munmap(block.cast(), layout.size()) }),
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        if class(layout).is_some() && class(layout) == class(new) {
            return block;
        }
        // SAFETY: the caller's promise about `block` and `layout`.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
