//! An io_uring for one command at a time, in memory of our own.
//!
//! A ring that is mapped from its descriptor, as libraries do it, lives as long as that mapping: as
//! long as any thread of the process. A thread that waits in the kernel for a request of this very
//! mount, and cannot be interrupted, would so keep the ring of a killed daemon, with the request
//! that the kernel had just given to it: not even an aborted connection gets that one back, and the
//! thread and its request would wait for each other for ever. Memory that the kernel was given
//! (IORING_SETUP_NO_MMAP, older than FUSE's rings) holds nothing: the ring ends with its
//! descriptor.

#![allow(unsafe_code)]

use io_uring::squeue::Entry128;
use memmap2::{MmapMut, MmapRaw};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const SETUP_SQE128: u32 = 1 << 10;
const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const SETUP_NO_MMAP: u32 = 1 << 14;
const SETUP_NO_SQARRAY: u32 = 1 << 16;
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;

/// Submissions the ring has room for.
const ENTRIES: u32 = 2;
/// The first page has the heads, tails and completions, the second the submissions.
const PAGE: usize = 4096;

/// `struct io_sqring_offsets`, and `struct io_cqring_offsets` under other names.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    /// Flags of submissions; the overflow of completions.
    fifth: u32,
    /// Dropped submissions; where completions begin.
    sixth: u32,
    last: [u32; 2],
    address: u64,
}

/// `struct io_uring_params`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    unused: [u32; 7],
    sq: Offsets,
    cq: Offsets,
}

const _: () = assert!(size_of::<Params>() == 120, "as the kernel has it");

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct Limit {
    signals: u64,
    signals_len: u32,
    padding: u32,
    time: u64,
}

/// The ring. It must be made and used by one thread.
pub(super) struct Ring {
    fd: OwnedFd,
    memory: MmapRaw,
    sq_head: usize,
    sq_tail: usize,
    cq_head: usize,
    cq_tail: usize,
    completions: usize,
    cq_entries: u32,
}

impl Ring {
    /// A ring whose completions are delivered where its thread waits for them, and not by
    /// interrupting it.
    ///
    /// # Errors
    /// What io_uring_setup(2) says.
    pub(super) fn new() -> io::Result<Self> {
        let memory = MmapRaw::from(MmapMut::map_anon(2 * PAGE)?);
        let mut p = Params::new_zeroed();
        p.flags = SETUP_SQE128
            | SETUP_SINGLE_ISSUER
            | SETUP_DEFER_TASKRUN
            | SETUP_NO_MMAP
            | SETUP_NO_SQARRAY;
        p.cq.address = memory.as_mut_ptr() as u64;
        p.sq.address = memory.as_mut_ptr().wrapping_add(PAGE) as u64;
        // SAFETY: the structure is the kernel's, and both addresses are pages of ours, which
        // outlive the descriptor: fields are dropped in their order.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &raw mut p) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?) };
        let ring = Self {
            fd,
            memory,
            sq_head: p.sq.head as usize,
            sq_tail: p.sq.tail as usize,
            cq_head: p.cq.head as usize,
            cq_tail: p.cq.tail as usize,
            completions: p.cq.sixth as usize,
            cq_entries: p.cq_entries,
        };
        let end = ring.completions.saturating_add(ring.cq_entries as usize * 16);
        let words = [ring.sq_head, ring.sq_tail, ring.cq_head, ring.cq_tail];
        let fits = |at: usize| at.is_multiple_of(4) && at <= PAGE - 4;
        let whole = p.sq_entries == ENTRIES && p.cq_entries.is_power_of_two();
        if whole && end <= PAGE && words.into_iter().all(fits) {
            Ok(ring)
        } else {
            Err(io::Error::other("a ring that does not fit a page"))
        }
    }

    /// A word that the kernel reads or writes as well.
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at <= PAGE - 4, "words were checked");
        // SAFETY: aligned, in the mapping, which lives as long as `self`; both sides access it as
        // an atomic word only.
        unsafe { AtomicU32::from_ptr(self.memory.as_mut_ptr().wrapping_add(at).cast()) }
    }

    /// Puts a submission into the ring, which must be empty; [`Ring::enter`] submits it.
    pub(super) fn push(&mut self, submission: &Entry128) {
        assert_eq!(self.unsubmitted(), 0, "a ring holds one submission");
        let tail = self.word(self.sq_tail).load(Ordering::Relaxed);
        let at = PAGE + (tail % ENTRIES) as usize * size_of::<Entry128>();
        let to = self.memory.as_mut_ptr().wrapping_add(at).cast::<u8>();
        // SAFETY: both are so long; the kernel reads this place only after the tail says so, and no
        // other reference to it exists.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(submission).cast(),
                to,
                size_of::<Entry128>(),
            );
        }
        self.word(self.sq_tail).store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Submissions that the kernel has not taken yet.
    fn unsubmitted(&self) -> u32 {
        let head = self.word(self.sq_head).load(Ordering::Acquire);
        self.word(self.sq_tail).load(Ordering::Relaxed).wrapping_sub(head)
    }

    /// Submits what was pushed, and returns without waiting.
    ///
    /// # Errors
    /// What io_uring_enter(2) says; what it did not take is submitted by the next call.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.enter(0, 0, std::ptr::null(), 0)
    }

    /// As [`Ring::submit`], and waits for a completion, `limit` long at most.
    ///
    /// # Errors
    /// `ETIME` when the time is over, and as [`Ring::submit`].
    pub(super) fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let Some(limit) = limit else { return self.enter(1, ENTER_GETEVENTS, std::ptr::null(), 0) };
        let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
        let time = [seconds, i64::from(limit.subsec_nanos())];
        let time = &raw const time as u64;
        let arg = Limit { signals: 0, signals_len: 0, padding: 0, time };
        let flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
        self.enter(1, flags, (&raw const arg).cast(), size_of::<Limit>())
    }

    fn enter(
        &mut self,
        wanted: u32,
        flags: u32,
        arg: *const libc::c_void,
        len: usize,
    ) -> io::Result<()> {
        let (fd, submit) = (self.fd.as_raw_fd(), self.unsubmitted());
        // SAFETY: the argument is none or lives in the caller's frame. What submissions refer to is
        // the promise of [`Entry`](super::entry::Entry).
        let done =
            unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, submit, wanted, flags, arg, len) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next completion's result.
    pub(super) fn completion(&mut self) -> Option<i32> {
        let head = self.word(self.cq_head).load(Ordering::Relaxed);
        if head == self.word(self.cq_tail).load(Ordering::Acquire) {
            return None;
        }
        // The result follows eight bytes of the submitter's own.
        let at = self.completions + (head % self.cq_entries) as usize * 16 + 8;
        let result = self.word(at).load(Ordering::Relaxed);
        self.word(self.cq_head).store(head.wrapping_add(1), Ordering::Release);
        Some(result.cast_signed())
    }
}
