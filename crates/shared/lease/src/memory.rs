//! The two memories themselves: memfds that nobody can make smaller or larger.
//!
//! The other process may write to its memory at any time, whatever was agreed on. So no reference
//! to bytes in one is ever made: it is seen as atomic words.
#![allow(unsafe_code)]

use crate::layout::{ALIVE_AT, EPOCH_AT, FULL, LAYOUT_VERSION, MAGIC, MAGIC_AT, VERSION_AT};
use crate::words::{Own, Words};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::thread::futex;
use siftfs_base::{Error, Result};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Seals of both memories.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// Seals of the grantor's: a mapping that is made from now on may only be read.
const GRANTORS: SealFlags = SEALS.union(SealFlags::FUTURE_WRITE);

/// Memory that another process writes, mapped to be read.
pub struct View(Map);

/// Memory that this process writes, and no other one.
pub struct Memory(Map);

struct Map {
    map: MmapRaw,
    words: usize,
}

/// The memories of a new session.
pub struct Created {
    /// The grantor's own.
    pub grantor: Memory,
    /// The holder's, as the grantor sees it.
    pub holder: View,
    /// What the holder gets: the grantor's memory, which it can only read, and its own.
    pub passed: [OwnedFd; 2],
}

/// Makes the memories of a session. The pages of words and records are taken now, those of the data
/// when they are written first.
///
/// # Errors
/// There is no memory, or no descriptor.
pub fn create() -> Result<Created> {
    let cannot = |e: io::Error| Error::Refused(format!("cannot have memory for a session: {e}"));
    let (ours, theirs) = (FULL.grantor_bytes() as u64, FULL.holder_bytes() as u64);
    let words = theirs - FULL.data as u64;
    let make = |name: &str, len: u64, taken: u64| -> rustix::io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&fd, len)?;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, taken)?;
        Ok(fd)
    };
    let grantor = make("siftfs-grantor", ours, ours).map_err(|e| cannot(e.into()))?;
    let holder = make("siftfs-holder", theirs, words).map_err(|e| cannot(e.into()))?;
    // A mapping that may be written is there before the seal that rules out any other.
    let own = Memory(Map::writable(&grantor, FULL.grantor_words()).map_err(cannot)?);
    rustix::fs::fcntl_add_seals(&grantor, GRANTORS).map_err(|e| cannot(e.into()))?;
    rustix::fs::fcntl_add_seals(&holder, SEALS).map_err(|e| cannot(e.into()))?;
    let view = View(Map::readable(&holder, FULL.holder_words()).map_err(cannot)?);
    Ok(Created { grantor: own, holder: view, passed: [grantor, holder] })
}

/// Maps what the grantor passed, if it is what was agreed on.
///
/// # Errors
/// It could be made smaller while it is used, which would end this process by a signal, has another
/// size, or is no memory of a session of this number.
pub fn open(passed: &[OwnedFd; 2], epoch: u64) -> Result<(View, Memory)> {
    let refused = |e: io::Error| Error::Refused(format!("a session's memory cannot be used: {e}"));
    let [grantor, holder] = passed;
    sealed(grantor, FULL.grantor_bytes())?;
    sealed(holder, FULL.holder_bytes())?;
    let view = View(Map::readable(grantor, FULL.grantor_words()).map_err(refused)?);
    let own = Memory(Map::writable(holder, FULL.holder_words()).map_err(refused)?);
    let says = [MAGIC_AT, VERSION_AT, EPOCH_AT].map(|at| view.load(at, Ordering::Acquire));
    if says != [MAGIC, LAYOUT_VERSION, epoch] {
        return Err(Error::Refused("a session's memory is of another version".into()));
    }
    Ok((view, own))
}

fn sealed(fd: &OwnedFd, len: usize) -> Result<()> {
    let refused = |why: String| Error::Refused(format!("the memory passed {why}"));
    let seals = rustix::fs::fcntl_get_seals(fd)
        .map_err(|e| refused(format!("is not a memfd ({})", io::Error::from(e))))?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(refused("is not sealed against a change of its size".into()));
    }
    let size = rustix::fs::fstat(fd).map_err(|e| refused(io::Error::from(e).to_string()))?;
    match usize::try_from(size.st_size).ok() == Some(len) {
        true => Ok(()),
        false => Err(refused(format!("has {} bytes instead of {len}", size.st_size))),
    }
}

impl Map {
    fn writable(fd: impl AsFd, words: usize) -> io::Result<Self> {
        Self::of(fd, words, |options, fd| options.map_raw(fd))
    }

    fn readable(fd: impl AsFd, words: usize) -> io::Result<Self> {
        Self::of(fd, words, |options, fd| options.map_raw_read_only(fd))
    }

    fn of(
        fd: impl AsFd,
        words: usize,
        map: impl FnOnce(&MmapOptions, i32) -> io::Result<MmapRaw>,
    ) -> io::Result<Self> {
        use rustix::fd::AsRawFd;
        let mut options = MmapOptions::new();
        options.len(words * 8);
        let map = map(&options, fd.as_fd().as_raw_fd())?;
        Ok(Self { map, words })
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is as long as its words (the memfd has that size, and is sealed
        // against a change), lives as long as `self`, and begins at a page. An AtomicU64 has the
        // size and at least the alignment of a word, and any bytes are a valid one. All access of
        // this process goes through here, and `Memory` alone, whose mapping may be written, stores.
        // What the other process does at the same time is an atomic access as far as this one can
        // tell.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.words) }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        self.all().get(index).expect("the layout lies within its memory")
    }

    /// The words that hold this many bytes: those of whole words, and the last one.
    fn words_of(&self, index: usize, bytes: usize) -> (&[AtomicU64], &[AtomicU64]) {
        let words = self.all().get(index..).and_then(|words| words.get(..bytes.div_ceil(8)));
        words.expect("the layout lies within its memory").split_at(bytes / 8)
    }

    /// As [`Words::copy_out`], without a look for each word at where the memory ends.
    fn copy_out(&self, index: usize, into: &mut [u8]) {
        let (whole, last) = self.words_of(index, into.len());
        let (chunks, rest) = into.as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(whole) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
        for word in last {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            rest.iter_mut().zip(bytes).for_each(|(byte, from)| *byte = from);
        }
    }

    /// As [`Own::copy_in`], likewise.
    fn copy_in(&self, index: usize, from: &[u8]) {
        let (whole, last) = self.words_of(index, from.len());
        let (chunks, rest) = from.as_chunks::<8>();
        for (chunk, word) in chunks.iter().zip(whole) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        for word in last {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(rest).for_each(|(byte, from)| *byte = *from);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }

    /// The half of a word that changes with the state of a lease.
    fn low(&self, index: usize) -> &AtomicU32 {
        let half = usize::from(cfg!(target_endian = "big"));
        let word: *const AtomicU64 = self.word(index);
        // SAFETY: both halves of a word lie within it and are aligned, and the word lives as long
        // as `self`. The reference is only handed to the kernel, which reads the half.
        unsafe { &*word.cast::<AtomicU32>().add(half) }
    }
}

impl View {
    /// Sleeps until the word is another one, somebody wakes those who wait for it, or the time is
    /// over. May return for no reason.
    pub fn sleep_while(&self, index: usize, value: u64, most: Duration) {
        let time = futex::Timespec {
            tv_sec: most.as_secs().cast_signed(),
            tv_nsec: most.subsec_nanos().into(),
        };
        // The mapping may only be read, which is enough to wait.
        let _ = futex::wait(self.0.low(index), futex::Flags::empty(), value as u32, Some(&time));
    }

    /// Does the grantor say that it is there?
    pub fn is_alive(&self) -> bool {
        self.load(ALIVE_AT, Ordering::Acquire) == 1
    }
}

impl Memory {
    /// Wakes those who wait for a word.
    pub fn wake(&self, index: usize) {
        let all = u32::try_from(i32::MAX).expect("positive");
        let _ = futex::wake(self.0.low(index), futex::Flags::empty(), all);
    }
}

impl Words for View {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0.word(index).load(order)
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
    fn copy_out(&self, index: usize, into: &mut [u8]) {
        self.0.copy_out(index, into);
    }
}

impl Words for Memory {
    fn load(&self, index: usize, order: Ordering) -> u64 {
        self.0.word(index).load(order)
    }
    fn fence() {
        fence(Ordering::SeqCst);
    }
    fn copy_out(&self, index: usize, into: &mut [u8]) {
        self.0.copy_out(index, into);
    }
}

impl Own for Memory {
    fn store(&self, index: usize, value: u64, order: Ordering) {
        self.0.word(index).store(value, order);
    }

    fn copy_in(&self, index: usize, from: &[u8]) {
        self.0.copy_in(index, from);
    }
}

/// Tells a process from its children: one reads of it that it is the child of a fork, without a
/// call of the kernel.
pub struct ForkMark(memmap2::MmapMut);

impl ForkMark {
    /// A mark of this process.
    ///
    /// # Errors
    /// There is no memory, or the kernel does not know such memory (Linux 4.14 does).
    pub fn new() -> io::Result<Self> {
        let mut map = MmapOptions::new().len(rustix::param::page_size()).map_anon()?;
        let advice = rustix::mm::Advice::LinuxWipeOnFork;
        // SAFETY: the range is the mapping, of which no reference is kept meanwhile. The advice
        // changes what a child gets, and nothing in this process.
        unsafe { rustix::mm::madvise(map.as_mut_ptr().cast(), map.len(), advice)? };
        if let Some(first) = map.first_mut() {
            *first = 1;
        }
        Ok(Self(map))
    }

    /// Is this the process that made the mark?
    pub fn is_own(&self) -> bool {
        self.0.first() == Some(&1)
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
