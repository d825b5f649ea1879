//! What makes a session's files durable: the daemon, or a file log that this program writes.
#![allow(unsafe_code)] // a descriptor that may be another's by now is not closed

use rustix::fs::{AtFlags, FileType, StatxFlags, fstat, makedev, statx};
use rustix::io::{Errno, IoSlice, ReadWriteFlags, pwritev2};
use rustix::time::{ClockId, clock_gettime};
use siftfs_lease::{Batch, Batches, LogShape, View, forgotten, high};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// How a session's files become durable.
pub(crate) enum Medium {
    /// It was not asked for a file log yet.
    Unknown,
    /// By the daemon alone. A log that was written before, and failed, ends here.
    Daemon(u64),
    /// By one write of this program.
    File(FileLog),
}

impl Medium {
    /// Up to where the log is to be forgotten when the daemon makes all durable.
    pub fn end(&self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Daemon(end) => *end,
            Self::File(log) => log.batches.position(),
        }
    }
}

/// A file log, which one thread at a time writes.
pub(crate) struct FileLog {
    file: ManuallyDrop<OwnedFd>,
    /// Device and inode of the log. A program may close any descriptor, and get its number for
    /// another file: nothing is ever written there.
    identity: (u64, u64),
    shape: LogShape,
    pub batches: Batches,
    /// Records below this one are durable.
    pub durable: u64,
    /// Up to where the daemon was asked to forget it.
    asked: u64,
}

impl FileLog {
    /// A new log.
    ///
    /// # Errors
    /// It is no file, or not as long as it should be.
    pub fn new(file: OwnedFd, shape: LogShape) -> io::Result<Self> {
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "what was passed is no file log");
        let stat = fstat(&file)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file()
            || u64::try_from(stat.st_size).ok() != Some(shape.len)
        {
            return Err(odd());
        }
        let batches = Batches::new(shape).ok_or_else(odd)?;
        let identity = (stat.st_dev, stat.st_ino);
        let file = ManuallyDrop::new(high(file));
        Ok(Self { file, identity, shape, batches, durable: 0, asked: 0 })
    }

    /// Writes the batch in the making, and returns when it is durable. False: there is no room
    /// before the daemon has forgotten more, and nothing was written.
    ///
    /// # Errors
    /// Nothing is known of the batch, and the log is of no use any more.
    pub fn write(&mut self, grantor: &View) -> io::Result<bool> {
        if self.batches.is_empty() {
            return Ok(true);
        }
        let Some(Batch { place, bytes }) = self.batches.seal(forgotten(grantor)) else {
            return Ok(false);
        };
        if !is(&self.file, self.identity) {
            return Err(Errno::BADF.into());
        }
        let mut done = 0;
        while done < bytes.len() {
            let rest = bytes.get(done..).unwrap_or_default();
            let at = place + done as u64;
            match pwritev2(&*self.file, &[IoSlice::new(rest)], at, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                // The rest of a short write is not aligned any more, and the kernel says so.
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    /// The number of its descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Half of the log is used, and the daemon was not asked to forget that: up to where it is to.
    pub fn half(&mut self, grantor: &View) -> Option<u64> {
        let (end, begin) = (self.batches.position(), forgotten(grantor).max(self.asked));
        (end.saturating_sub(begin) >= self.shape.len / 2).then(|| {
            self.asked = end;
            end
        })
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        // What has the number now may be the program's.
        if is(&self.file, self.identity) {
            // SAFETY: it is not used again.
            drop(unsafe { ManuallyDrop::take(&mut self.file) });
        }
    }
}

/// Is the open file still this one? It is not asked for its times: from Linux 6.13 on a file whose
/// times somebody has looked at gets finer ones by its next write, and the inode is written with
/// each batch, which costs as much as another write of the disk.
fn is(file: &OwnedFd, identity: (u64, u64)) -> bool {
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO);
    stat.is_ok_and(|s| (makedev(s.stx_dev_major, s.stx_dev_minor), s.stx_ino) == identity)
}

/// CLOCK_BOOTTIME, in nanoseconds.
pub(crate) fn boot_time() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(ns).unwrap_or(u64::MAX)
}
