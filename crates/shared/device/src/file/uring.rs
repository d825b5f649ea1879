//! Batches through io_uring.
//!
//! Rings are pooled and not bound to a thread: a batch takes one, keeps up to `depth` requests
//! in flight, and returns it when nothing is in flight any more.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use siftfs_base::Result;

use crate::io_error;

/// Largest single request; the kernel does no more than 2 GiB at once.
const LARGEST: usize = 1 << 30;

/// A request of a batch, with what is left of it to do.
pub(super) struct Job<'a> {
    write: bool,
    offset: u64,
    at: *mut u8,
    left: usize,
    _buf: PhantomData<&'a mut [u8]>,
}

impl<'a> Job<'a> {
    pub fn read(offset: u64, buf: &'a mut [u8]) -> Self {
        let (at, left) = (buf.as_mut_ptr(), buf.len());
        Self { write: false, offset, at, left, _buf: PhantomData }
    }

    pub fn write(offset: u64, data: &'a [u8]) -> Self {
        // The kernel only reads through this pointer.
        let (at, left) = (data.as_ptr().cast_mut(), data.len());
        Self { write: true, offset, at, left, _buf: PhantomData }
    }

    fn entry(&self, fd: types::Fd) -> Entry {
        let len = u32::try_from(self.left.min(LARGEST)).expect("below 4 GiB");
        if self.write {
            opcode::Write::new(fd, self.at, len).offset(self.offset).build()
        } else {
            opcode::Read::new(fd, self.at, len).offset(self.offset).build()
        }
    }

    /// Takes note of a completion; true when the job is done, false when more is left.
    fn completed(&mut self, result: i32) -> std::result::Result<bool, i32> {
        match result {
            r if r == -libc::EINTR || r == -libc::EAGAIN => Ok(false),
            r if r < 0 => Err(-r),
            // No progress on a range inside the device: a read beyond a truncated file's end.
            0 => Err(libc::EIO),
            r => {
                let n = r.unsigned_abs() as usize;
                // A panic here would free buffers under requests in flight.
                if n > self.left {
                    return Err(libc::EIO);
                }
                self.at = self.at.wrapping_add(n);
                self.offset += n as u64;
                self.left -= n;
                Ok(self.left == 0)
            }
        }
    }
}

/// Rings that are not in use.
pub(super) struct RingPool {
    idle: Mutex<Vec<IoUring>>,
    depth: u32,
}

impl RingPool {
    /// A pool with one ring, or `None` where io_uring is not allowed.
    pub fn probe(depth: u32) -> Option<Self> {
        let depth = depth.clamp(1, 1024);
        match new_ring(depth) {
            Ok(ring) => Some(Self { idle: Mutex::new(vec![ring]), depth }),
            Err(e) => {
                tracing::info!("io_uring is not available ({e}): using pread and pwrite");
                None
            }
        }
    }

    fn take(&self) -> std::io::Result<IoUring> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| new_ring(self.depth), Ok)
    }

    fn put(&self, ring: IoUring) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // More rings than processors only hold memory.
        if idle.len() < 16 {
            idle.push(ring);
        }
    }

    /// Carries out all jobs, at most `depth` in flight, in no order. Nothing is in flight when
    /// it returns; after an error the remaining jobs may be undone.
    pub fn run(&self, fd: BorrowedFd<'_>, jobs: &mut [Job<'_>]) -> Result<()> {
        let mut todo: Vec<usize> = (0..jobs.len()).rev().filter(|i| jobs[*i].left > 0).collect();
        let mut ring = self.take().map_err(|e| setup_error(&e))?;
        let fd = types::Fd(fd.as_raw_fd());
        let mut in_flight = 0;
        let mut failure = None;
        loop {
            while in_flight < self.depth as usize && failure.is_none() {
                let Some(index) = todo.pop() else { break };
                let entry = jobs[index].entry(fd).user_data(index as u64);
                // SAFETY: the buffer is borrowed by the job, which outlives this call, and this
                // call returns only when no request is in flight; buffers of writes are only
                // read, those of reads are borrowed exclusively.
                unsafe { ring.submission().push(&entry) }.expect("never more than the ring holds");
                in_flight += 1;
            }
            if in_flight == 0 {
                break;
            }
            submit_and_wait(&ring, 1);
            for done in ring.completion() {
                in_flight -= 1;
                let index = usize::try_from(done.user_data()).expect("an index of ours");
                let job = &mut jobs[index];
                match job.completed(done.result()) {
                    Ok(true) => {}
                    Ok(false) => todo.push(index),
                    Err(errno) => {
                        let op = if job.write { "write" } else { "read" };
                        failure.get_or_insert(io_error(op, job.offset, job.left, errno));
                    }
                }
            }
        }
        self.put(ring);
        failure.map_or(Ok(()), Err)
    }

    /// Writes `data` and makes the file's data durable, in one submission; the errno on
    /// failure.
    pub fn write_and_sync(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        data: &[u8],
    ) -> std::result::Result<(), i32> {
        let mut ring = self.take().map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
        let fd = types::Fd(fd.as_raw_fd());
        let mut job = Job::write(offset, data);
        let mut result = Ok(());
        while result.is_ok() && job.left > 0 {
            let write = job.entry(fd).flags(Flags::IO_LINK).user_data(0);
            let sync = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
            // SAFETY: `data` is borrowed until this call returns, which is after both requests
            // completed; the kernel only reads it.
            unsafe { ring.submission().push_multiple(&[write, sync.user_data(1)]) }
                .expect("an idle ring holds two");
            let mut seen = 0;
            while seen < 2 {
                submit_and_wait(&ring, 2 - seen);
                for done in ring.completion() {
                    seen += 1;
                    match (done.user_data(), done.result()) {
                        (0, r) => result = result.and(job.completed(r).map(|_| ())),
                        // A short or failed write cancels what is linked to it.
                        (_, r) if r == -libc::ECANCELED => {}
                        (_, r) if r < 0 => result = result.and(Err(-r)),
                        _ => {}
                    }
                }
            }
        }
        self.put(ring);
        result
    }
}

fn setup_error(e: &std::io::Error) -> siftfs_base::Error {
    io_error("io_uring", 0, 0, e.raw_os_error().unwrap_or(libc::EIO))
}

pub(super) fn new_ring(depth: u32) -> std::io::Result<IoUring> {
    // Two entries at least, for a linked pair. Completions are only read when waiting, so that
    // interrupting the thread for them is wasted; kernels before 5.19 do not know this.
    let entries = depth.max(2);
    IoUring::builder()
        .setup_coop_taskrun()
        .build(entries)
        .or_else(|_| IoUring::builder().build(entries))
}

/// Submits what is queued and waits for `want` completions; may return early, with what is not
/// submitted still queued.
pub(super) fn submit_and_wait(ring: &IoUring, want: usize) {
    let result = ring.submit_and_wait(want).map_err(|e| e.raw_os_error());
    match result {
        Ok(_) | Err(Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
        Err(errno) => {
            // Requests may be in flight on buffers that the caller will reuse: going on could
            // corrupt memory or storage, stopping cannot.
            tracing::error!(?errno, "io_uring failed on a ring of ours");
            std::process::abort();
        }
    }
}
