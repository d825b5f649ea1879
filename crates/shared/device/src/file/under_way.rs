//! Single accesses through io_uring, whose caller does not wait.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::squeue::Flags;
use io_uring::{IoUring, opcode, types};
use siftfs_base::{Inside, Result};

use super::uring::{new_ring, submit_and_wait};
use super::{DurableWrite, FileDevice};
use crate::{Device, Io, IoDone, IoKind, IoQueue, check_bounds, io_error};

/// Bit of an entry's user data: the sync that is linked to a write.
const SYNC: u64 = 1;

/// How an access is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    /// The write is durable by a flag of its own.
    Dsync,
    /// A sync is linked to the write.
    Linked,
}

/// What the kernel has, with all that it needs until then.
struct UnderWay {
    io: Io,
    device: Arc<FileDevice>,
    way: Way,
    /// Keeps those away that read, change and write a unit of the medium.
    _inside: Option<Inside>,
    /// Bytes that are done.
    done: usize,
    /// Completions that are to come.
    parts: u8,
    errno: Option<i32>,
}

/// A ring, and what it has under way: at most as much as it was made for.
pub(crate) struct Ring {
    ring: IoUring,
    places: Vec<Option<UnderWay>>,
    free: Vec<usize>,
}

impl Ring {
    /// `None` where io_uring is not allowed.
    pub fn new(depth: u32) -> Option<Self> {
        let depth = depth.clamp(1, 1024);
        // Two entries for a write with its sync.
        let ring = new_ring(2 * depth).inspect_err(|error| {
            tracing::info!(%error, "io_uring is not available for accesses beside each other");
        });
        let free: Vec<usize> = (0..depth as usize).rev().collect();
        let places = free.iter().map(|_| None).collect();
        Some(Self { ring: ring.ok()?, places, free })
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn under_way(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns its descriptor, which stays open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Has the kernel not taken what is to begin?
    pub fn is_held_up(&self) -> bool {
        // SAFETY: nothing else uses the submission queue while this is borrowed.
        !unsafe { self.ring.submission_shared() }.is_empty()
    }

    fn begin(&mut self, access: UnderWay) {
        let place = self.free.pop().expect("there is room");
        *self.places.get_mut(place).expect("a place of ours") = Some(access);
        self.push(place);
        self.submit();
    }

    /// Has the kernel do what is left of an access.
    fn push(&mut self, place: usize) {
        let access = self.places.get_mut(place).and_then(Option::as_mut).expect("one is there");
        let (fd, data) = (types::Fd(access.device.file.as_raw_fd()), place as u64 * 2);
        let offset = access.io.offset + access.done as u64;
        let rest = access.io.buf.get_mut(access.done..).expect("no more is done than there is");
        let len = u32::try_from(rest.len()).expect("an access is short");
        let write = opcode::Write::new(fd, rest.as_ptr(), len).offset(offset);
        access.parts = 1;
        let entries = match (access.io.kind, access.way) {
            (IoKind::Read, _) => {
                vec![opcode::Read::new(fd, rest.as_mut_ptr(), len).offset(offset).build()]
            }
            (IoKind::Write { .. }, Way::Plain) => vec![write.build()],
            (IoKind::Write { .. }, Way::Dsync) => vec![write.rw_flags(libc::RWF_DSYNC).build()],
            (IoKind::Write { .. }, Way::Linked) => {
                access.parts = 2;
                let sync = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
                vec![write.build().flags(Flags::IO_LINK), sync]
            }
        };
        let own = |at: usize| if at == 0 { data } else { data | SYNC };
        let entries: Vec<_> =
            entries.into_iter().enumerate().map(|(at, entry)| entry.user_data(own(at))).collect();
        // SAFETY: buffer and file belong to the access, which stays in its place, and does not move
        // its bytes, until the kernel has done with it; the ring is dropped after that.
        unsafe { self.ring.submission().push_multiple(&entries) }.expect("two for each place");
    }

    fn submit(&mut self) {
        match self.ring.submit().map_err(|error| error.raw_os_error()) {
            Ok(_) | Err(Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(errno) => {
                // Accesses may be under way on buffers of ours: going on could corrupt memory or
                // storage, stopping cannot.
                tracing::error!(?errno, "io_uring failed on a ring of ours");
                std::process::abort();
            }
        }
    }

    /// Takes what has ended.
    pub fn ended(&mut self, into: &mut Vec<IoDone>) {
        if self.is_held_up() {
            self.submit();
        }
        let came: Vec<(u64, i32)> =
            self.ring.completion().map(|done| (done.user_data(), done.result())).collect();
        for (data, result) in came {
            let place = usize::try_from(data / 2).expect("a place of ours");
            let taken = self.places.get_mut(place).and_then(Option::as_mut);
            let access = taken.expect("what completes is under way");
            access.completed(data & SYNC != 0, result);
            if access.parts > 0 {
                continue;
            }
            if access.errno.is_none() && access.done < access.io.buf.len() {
                self.push(place);
                self.submit();
            } else if let Some(access) = self.places.get_mut(place).and_then(Option::take) {
                self.free.push(place);
                into.push(access.end());
            }
        }
    }

    /// Sleeps until something has completed, if anything is under way.
    pub fn wait(&mut self) {
        if self.under_way() > 0 {
            submit_and_wait(&self.ring, 1);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut ended = Vec::new();
        while self.under_way() > 0 {
            self.wait();
            self.ended(&mut ended);
        }
    }
}

impl UnderWay {
    fn completed(&mut self, sync: bool, result: i32) {
        self.parts -= 1;
        let failed = match (sync, result) {
            // A short or failed write cancels what is linked to it.
            (true, r) if r == -libc::ECANCELED || r >= 0 => None,
            (false, r) if r == -libc::EINTR || r == -libc::EAGAIN => None,
            (_, r) if r < 0 => Some(-r),
            // No progress inside the device: a read beyond a truncated file's end.
            (_, 0) => Some(libc::EIO),
            (_, r) => {
                self.done += r.unsigned_abs() as usize;
                // A panic here would free buffers of accesses that are under way.
                (self.done > self.io.buf.len()).then_some(libc::EIO)
            }
        };
        self.errno = self.errno.or(failed);
    }

    fn end(self) -> IoDone {
        let Self { io: Io { id, kind, offset, buf }, device, errno, .. } = self;
        let durable = kind == IoKind::Write { durable: true };
        let op = if kind == IoKind::Read { "read" } else { "write" };
        let result = match errno {
            None if durable => device.check_whole(offset, buf.len()),
            None => Ok(()),
            Some(errno) => {
                if durable {
                    device.flush.note_failure(errno);
                }
                Err(io_error(op, offset, buf.len(), errno))
            }
        };
        IoDone { id, buf, result }
    }
}

impl FileDevice {
    /// Has the kernel begin an access that needs no more than one. Others come back.
    pub(super) fn begin_one(
        self: Arc<Self>,
        io: Io,
        queue: &mut IoQueue,
    ) -> std::result::Result<(), Io> {
        let Some(way) = self.way(&io).filter(|_| self.is_uring()) else { return Err(io) };
        let inside = match io.kind {
            IoKind::Read => None,
            IoKind::Write { .. } => match self.partial.try_enter() {
                Some(inside) => Some(inside),
                None => return Err(io),
            },
        };
        let Some(ring) = queue.ring() else { return Err(io) };
        let (device, _inside) = (self, inside);
        ring.begin(UnderWay { io, device, way, _inside, done: 0, parts: 0, errno: None });
        Ok(())
    }

    /// How an access is made; `None`: not by one request to the kernel, or it is to be refused.
    fn way(&self, io: &Io) -> Option<Way> {
        let short = !io.buf.is_empty() && u32::try_from(io.buf.len()).is_ok();
        check_bounds("access", self.size(), io.offset, io.buf.len()).ok()?;
        if !short || !self.fits(io.offset, &io.buf) {
            return None;
        }
        let may_write = || -> Result<()> { self.check_whole(io.offset, io.buf.len()) };
        match io.kind {
            IoKind::Read => Some(Way::Plain),
            IoKind::Write { .. } if may_write().is_err() => None,
            IoKind::Write { durable: false } => Some(Way::Plain),
            IoKind::Write { durable: true } => match self.durable.0 {
                _ if !self.is_direct() || self.flush.check().is_err() => None,
                DurableWrite::Dsync => Some(Way::Dsync),
                DurableWrite::Linked => Some(Way::Linked),
                _ => None,
            },
        }
    }
}
