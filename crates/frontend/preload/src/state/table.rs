//! What is known of a descriptor by its number. A program's call looks here first, and most find
//! a zero: the descriptor is the kernel's.

use super::inode::Open;
use crate::below::renew::Renewable;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Descriptors with greater numbers are the kernel's.
pub const MOST: usize = 65_536;

/// What a descriptor is. Zero is the kernel's.
pub const NONE: u8 = 0;
/// Opened by this program to be read. It may be of a file that is leased by another descriptor.
pub const READER: u8 = 1;
/// Opened by this program to be written.
pub const WRITER: u8 = 2;
/// It has an [`Open`] in its slot.
pub const KNOWN: u8 = 3;
/// One of the library's own, which the program does not know.
pub const OWN: u8 = 4;
/// In addition: another process may have the same open file, and move its offset.
const SHARED: u8 = 0x80;

static TAGS: [AtomicU8; MOST] = [const { AtomicU8::new(NONE) }; MOST];
static SLOTS: [Slot; MOST] = [const { Slot::new() }; MOST];
/// Above the greatest descriptor that had a tag; that had an [`Open`].
static TAGGED: AtomicUsize = AtomicUsize::new(0);
static FILLED: AtomicUsize = AtomicUsize::new(0);

/// More of a descriptor that has a tag.
pub struct Slot {
    /// Which grant of a lease it was compared with; the mark of one of the library's own.
    pub seen: AtomicU32,
    /// Calls of fsync(2).
    pub syncs: AtomicU8,
    open: Renewable<RwLock<Option<Arc<Open>>>>,
}

impl Slot {
    const fn new() -> Self {
        let (seen, syncs) = (AtomicU32::new(0), AtomicU8::new(0));
        Self { seen, syncs, open: Renewable::new(RwLock::new(None)) }
    }

    /// The open file.
    pub fn open(&self) -> Option<Arc<Open>> {
        self.open.get().read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put(&self, open: Option<Arc<Open>>) -> Option<Arc<Open>> {
        let mut slot = self.open.get().write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *slot, open)
    }
}

fn index(fd: i32) -> Option<usize> {
    usize::try_from(fd).ok()
}

fn cell(fd: i32) -> Option<&'static AtomicU8> {
    TAGS.get(index(fd)?)
}

/// The slot of a descriptor.
pub fn slot(fd: i32) -> Option<&'static Slot> {
    SLOTS.get(index(fd)?)
}

/// What a descriptor is.
#[inline]
pub fn tag(fd: i32) -> u8 {
    cell(fd).map_or(NONE, |tag| tag.load(Ordering::Acquire) & !SHARED)
}

/// May another process have the same open file?
pub fn is_shared(fd: i32) -> bool {
    cell(fd).is_none_or(|tag| tag.load(Ordering::Acquire) & SHARED != 0)
}

/// Notes what a descriptor is that has no [`Open`].
pub fn set(fd: i32, tag: u8) {
    let (Some(cell), Some(slot), Some(at)) = (cell(fd), slot(fd), index(fd)) else { return };
    if tag != NONE {
        slot.seen.store(0, Ordering::Relaxed);
        slot.syncs.store(0, Ordering::Relaxed);
        TAGGED.fetch_max(at + 1, Ordering::AcqRel);
    }
    cell.store(tag, Ordering::Release);
}

/// Notes that a descriptor is the library's own; by the mark a child knows it again.
pub fn set_own(fd: i32, mark: u32) {
    set(fd, OWN);
    if let Some(slot) = slot(fd) {
        slot.seen.store(mark, Ordering::Release);
    }
}

/// Forgets a descriptor that has no [`Open`]. False: it has one.
pub fn forget(fd: i32) -> bool {
    let Some(cell) = cell(fd) else { return true };
    let forget = |tag: u8| (tag & !SHARED != KNOWN).then_some(NONE);
    cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, forget).is_ok()
}

/// Gives a descriptor that the program has opened its [`Open`]. False: it has been closed
/// meanwhile, or has one. Under the registry's lock.
pub fn fill(fd: i32, open: Arc<Open>) -> bool {
    let (Some(cell), Some(slot), Some(at)) = (cell(fd), slot(fd), index(fd)) else { return false };
    if tag(fd) == KNOWN {
        return false;
    }
    FILLED.fetch_max(at + 1, Ordering::AcqRel);
    slot.put(Some(open));
    let known = |tag: u8| matches!(tag & !SHARED, READER | WRITER).then_some(KNOWN | tag & SHARED);
    let filled = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, known).is_ok();
    if !filled {
        slot.put(None);
    }
    filled
}

/// Takes the [`Open`] of a descriptor away: it is the kernel's from now on. Under the registry's
/// lock.
pub fn empty(fd: i32) -> Option<Arc<Open>> {
    let (cell, slot) = (cell(fd)?, slot(fd)?);
    if tag(fd) != KNOWN {
        return None;
    }
    cell.store(NONE, Ordering::Release);
    slot.put(None)
}

/// The descriptors that have a tag.
pub fn tagged() -> impl Iterator<Item = i32> {
    let all = 0..TAGGED.load(Ordering::Acquire).min(MOST);
    all.filter_map(|at| i32::try_from(at).ok()).filter(|fd| tag(*fd) != NONE)
}

/// Another process may have the same open file from now on.
pub fn share(fd: i32) {
    if let Some(cell) = cell(fd) {
        let shared = |tag: u8| (tag != NONE).then_some(tag | SHARED);
        let _ = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, shared);
    }
}

/// In the child of a fork: every descriptor is the kernel's. Tells those of the library,
/// with their marks.
pub fn clear(own: impl Fn(i32, u32)) {
    for fd in tagged() {
        if tag(fd) == OWN {
            own(fd, slot(fd).map_or(0, |slot| slot.seen.load(Ordering::Acquire)));
        }
        if let Some(cell) = cell(fd) {
            cell.store(NONE, Ordering::Release);
        }
    }
}

/// As at first.
///
/// # Safety
/// There is no other thread, and this one is not in the library.
pub unsafe fn renew() {
    for slot in SLOTS.iter().take(FILLED.load(Ordering::Acquire)) {
        // SAFETY: the caller's promise.
        unsafe { slot.open.renew(RwLock::new(None)) };
    }
}
