//! Memory that two processes share: where what lies in it, and the one way to touch it.
//!
//! The other process may write to it at any time, whatever was agreed on. So no reference to bytes
//! in it is ever made: it is seen as atomic words, and copied word by word to and from private
//! memory. What has to be checked is checked in the copy.
#![allow(unsafe_code)]

use crate::ring::{CONTROL_WORDS, Memory, Place, Word};
use memmap2::MmapRaw;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use siftfs_base::{BLOCK_SIZE, Error, Result};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const BLOCK_WORDS: usize = BLOCK_SIZE / 8;
/// Words of the ring of messages to the server: room for a few of them without blocks.
const TO_SERVER_WORDS: u64 = 32 << 10;
/// Words of the ring of messages from the server, which are small but for their blocks.
const FROM_SERVER_WORDS: u64 = 8 << 10;

/// Slots that one side lends to the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arena {
    /// Slots that come back. It has room for all of them, so it is never full.
    pub freed: Place,
    /// Its first word.
    first: usize,
}

/// Where everything lies, in words. Both sides compute it from the number of slots that they
/// agreed on; nothing in the memory says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub to_server: Place,
    pub from_server: Place,
    /// What the caller lends.
    pub callers: Arena,
    /// What the server lends, if it does.
    pub servers: Option<Arena>,
    slots: u32,
    words: usize,
}

impl Layout {
    /// For this number of slots of each side that lends: the caller, and with `both` the server.
    pub fn new(slots: u32, both: bool) -> Self {
        let (mut control, mut data) = (0, BLOCK_WORDS);
        let mut place = |capacity: u64| {
            let place = Place { control, data, capacity };
            control += CONTROL_WORDS;
            data += capacity as usize;
            place
        };
        let (to_server, from_server) = (place(TO_SERVER_WORDS), place(FROM_SERVER_WORDS));
        let mut freed = || place(u64::from(slots).next_power_of_two());
        let (freed, also_freed) = (freed(), both.then(freed));
        let first = data.next_multiple_of(BLOCK_WORDS);
        let arena = slots as usize * BLOCK_WORDS;
        let callers = Arena { freed, first };
        let servers = also_freed.map(|freed| Arena { freed, first: first + arena });
        let words = first + arena * if both { 2 } else { 1 };
        Self { to_server, from_server, callers, servers, slots, words }
    }

    /// Length of the whole in bytes.
    pub fn len(&self) -> u64 {
        self.words as u64 * 8
    }

    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The slot's words.
    fn slot(&self, arena: &Arena, slot: u32) -> Range<usize> {
        assert!(slot < self.slots, "slots are checked where they arrive");
        let start = arena.first + slot as usize * BLOCK_WORDS;
        start..start + BLOCK_WORDS
    }
}

/// The shared memory, mapped.
pub(crate) struct Mapping {
    map: MmapRaw,
    pub layout: Layout,
}

impl Mapping {
    /// New memory with this layout, sealed against any change of its size, and the descriptor to
    /// pass on. Its pages are taken now: a shortage is an error here, not a signal later.
    pub fn create(layout: Layout) -> Result<(Self, OwnedFd)> {
        let cannot = |e: io::Error| {
            Error::Refused(format!("cannot have {} bytes of shared memory: {e}", layout.len()))
        };
        let make = || -> rustix::io::Result<OwnedFd> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let fd = rustix::fs::memfd_create("siftfs-link", flags)?;
            rustix::fs::ftruncate(&fd, layout.len())?;
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, layout.len())?;
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(&fd, seals)?;
            Ok(fd)
        };
        let fd = make().map_err(|e| cannot(e.into()))?;
        let map = MmapRaw::map_raw(&fd).map_err(cannot)?;
        Ok((Self { map, layout }, fd))
    }

    /// Maps what the peer passed, if it is what was agreed on.
    ///
    /// # Errors
    /// It could be made smaller while it is used, which would end this process by a signal, or has
    /// another size.
    pub fn open(layout: Layout, fd: &OwnedFd) -> Result<Self> {
        let refused = |why: String| Error::Refused(format!("the shared memory passed {why}"));
        let seals = rustix::fs::fcntl_get_seals(fd)
            .map_err(|e| refused(format!("is not a memfd ({})", io::Error::from(e))))?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(refused("is not sealed against a change of its size".into()));
        }
        let size = rustix::fs::fstat(fd).map_err(|e| refused(io::Error::from(e).to_string()))?;
        if u64::try_from(size.st_size).ok() != Some(layout.len()) {
            let wanted = layout.len();
            return Err(refused(format!("has {} bytes instead of {wanted}", size.st_size)));
        }
        let map = MmapRaw::map_raw(fd).map_err(|e| refused(format!("cannot be mapped: {e}")))?;
        Ok(Self { map, layout })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is as long as the layout's words (made so, or checked, and sealed
        // against a change), lives as long as `self`, and begins at a page. An AtomicU64 has the
        // size and at least the alignment of the words, any bytes are a valid one, and all
        // access of this process goes through this function; what the other process does to
        // them at the same time is an atomic access as far as this one can tell.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.layout.words) }
    }

    fn slot(&self, arena: &Arena, slot: u32) -> &[AtomicU64] {
        self.words().get(self.layout.slot(arena, slot)).expect("the layout ends with its slots")
    }

    /// Copies a block into a slot.
    pub fn write_slot(&self, arena: &Arena, slot: u32, block: &[u8; BLOCK_SIZE]) {
        let words = self.slot(arena, slot);
        let (chunks, _) = block.as_chunks::<8>();
        for (word, bytes) in words.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Copies a block out of a slot, each of its words read once.
    pub fn read_slot(&self, arena: &Arena, slot: u32, block: &mut [u8; BLOCK_SIZE]) {
        let words = self.slot(arena, slot);
        let (chunks, _) = block.as_chunks_mut::<8>();
        for (word, bytes) in words.iter().zip(chunks) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
    }
}

impl Memory for Mapping {
    type Word = AtomicU64;
    fn word(&self, index: usize) -> &AtomicU64 {
        self.words().get(index).expect("a ring lies within its place in the layout")
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
}
