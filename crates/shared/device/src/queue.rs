//! Accesses that are carried out while their caller does other things.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use siftfs_base::Result;

use crate::AlignedBuf;
use crate::file::Ring;

/// What an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Fills the buffer.
    Read,
    /// Writes the buffer; `durable` as [`crate::Device::write`] has `fua`.
    Write {
        /// It is durable itself when it has ended.
        durable: bool,
    },
}

/// One access.
pub struct Io {
    /// Whatever the caller knows it by.
    pub id: u64,
    /// What is done.
    pub kind: IoKind,
    /// Byte of the device.
    pub offset: u64,
    /// What is written, or filled.
    pub buf: AlignedBuf,
}

/// An access that has ended.
pub struct IoDone {
    /// As of [`Io`].
    pub id: u64,
    /// The buffer; undefined after a read that failed.
    pub buf: AlignedBuf,
    /// As [`crate::Device::read`] and [`crate::Device::write`] have it.
    pub result: Result<()>,
}

/// Accesses under way, of any devices, begun by [`crate::Device::begin`]. Used by one thread at a
/// time. One that has ended keeps nothing of its device.
///
/// When it is dropped, it waits for those that the kernel has.
pub struct IoQueue {
    ring: Option<Ring>,
    told: Vec<IoDone>,
    /// Those that are told later, and when.
    later: Vec<(Instant, IoDone)>,
}

impl IoQueue {
    /// With room for `depth` accesses that the kernel has at once. Where it allows no io_uring,
    /// devices that need one begin nothing.
    pub fn new(depth: u32) -> Self {
        Self { ring: Ring::new(depth), told: Vec::new(), later: Vec::new() }
    }

    /// The kernel's, if it is there and has room.
    pub(crate) fn ring(&mut self) -> Option<&mut Ring> {
        self.ring.as_mut().filter(|ring| ring.has_room())
    }

    /// How many have begun and were not taken by [`IoQueue::ended`].
    pub fn under_way(&self) -> usize {
        let kernel = self.ring.as_ref().map_or(0, Ring::under_way);
        kernel + self.told.len() + self.later.len()
    }

    /// An access has ended. For devices that carry it out at once.
    pub fn tell(&mut self, done: IoDone) {
        self.told.push(done);
    }

    /// An access ends at this time. For models of devices.
    pub fn tell_at(&mut self, due: Instant, done: IoDone) {
        self.later.push((due, done));
    }

    /// Takes those that have ended, in no order, and never waits.
    pub fn ended(&mut self, into: &mut Vec<IoDone>) {
        into.append(&mut self.told);
        if !self.later.is_empty() {
            let now = Instant::now();
            into.extend(self.later.extract_if(.., |(due, _)| *due <= now).map(|(_, done)| done));
        }
        if let Some(ring) = &mut self.ring {
            ring.ended(into);
        }
    }

    /// Can be read when an access has ended that the kernel had. `None` without io_uring.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(Ring::descriptor)
    }

    /// How long a caller may sleep that waits for the descriptor: zero if something has ended. It
    /// says nothing of what the kernel has taken.
    pub fn patience(&self) -> Option<Duration> {
        if !self.told.is_empty() {
            return Some(Duration::ZERO);
        }
        let next = self.later.iter().map(|(due, _)| *due).min();
        let due = next.map(|due| due.saturating_duration_since(Instant::now()));
        // The kernel had no room for what is to begin.
        let held_up = self.ring.as_ref().is_some_and(Ring::is_held_up);
        let again = held_up.then_some(Duration::from_millis(1));
        due.into_iter().chain(again).min()
    }

    /// Waits until nothing is under way, and takes all of it.
    pub fn drain(&mut self, into: &mut Vec<IoDone>) {
        loop {
            self.ended(into);
            if self.under_way() == 0 {
                return;
            }
            match self.patience() {
                Some(patience) => std::thread::sleep(patience),
                None => self.ring.iter_mut().for_each(Ring::wait),
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
