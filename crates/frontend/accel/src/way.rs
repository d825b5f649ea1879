//! How one batch of a program's own log becomes durable.
#![allow(unsafe_code)] // a descriptor that may be another's by now is not closed

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, fstat, makedev, statx};
use rustix::io::{Errno, IoSlice, ReadWriteFlags, pwritev2};
use siftfs_device::LogMemory;
use siftfs_lease::{Batch, LogMedium, LogShape, high};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The way to a log's medium.
pub(crate) enum Way {
    /// One write.
    Write(Written),
    /// Stores, and what their medium needs. No descriptor is kept.
    Store(LogMemory),
}

impl Way {
    /// To the log in this file.
    ///
    /// # Errors
    /// `InvalidData`: it is no file, or not as long as it should be. Others: it cannot be mapped as
    /// its medium needs.
    pub fn new(file: OwnedFd, shape: &LogShape) -> io::Result<Self> {
        let len = usize::try_from(shape.len).map_err(|_| odd())?;
        let mapped = match shape.medium {
            LogMedium::File => return Written::new(file, shape.len).map(Self::Write),
            LogMedium::Byte => LogMemory::persistent(&File::from(file), len),
            LogMedium::Volatile => LogMemory::volatile(&File::from(file), len),
        };
        mapped.map(Self::Store).map_err(io::Error::other)
    }

    /// Writes a batch, and returns when it is durable.
    ///
    /// # Errors
    /// Nothing is known of it, and the log is of no use any more.
    pub fn persist(&self, Batch { place, bytes }: &Batch<'_>) -> io::Result<()> {
        match self {
            Self::Write(file) => file.write(*place, bytes),
            Self::Store(memory) => {
                let at = usize::try_from(*place).map_err(|_| odd())?;
                memory.persist(at, bytes)
            }
        }
    }

    /// The number of the descriptor that it keeps.
    pub fn descriptor(&self) -> Option<RawFd> {
        match self {
            Self::Write(Written { file, .. }) => Some(file.as_raw_fd()),
            Self::Store(_) => None,
        }
    }
}

/// What was passed is not what was agreed on.
pub(crate) fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what was passed is no log")
}

/// A log's file, open past the system's cache.
pub(crate) struct Written {
    file: ManuallyDrop<OwnedFd>,
    /// Device and inode of the log. A program may close any descriptor, and get its number for
    /// another file: nothing is ever written there.
    identity: (u64, u64),
}

impl Written {
    fn new(file: OwnedFd, len: u64) -> io::Result<Self> {
        let stat = fstat(&file)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file()
            || u64::try_from(stat.st_size).ok() != Some(len)
        {
            return Err(odd());
        }
        Ok(Self { file: ManuallyDrop::new(high(file)), identity: (stat.st_dev, stat.st_ino) })
    }

    fn write(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.is_own() {
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
        Ok(())
    }

    /// Is the open file still this one? It is not asked for its times: from Linux 6.13 on a file
    /// whose times somebody has looked at gets finer ones by its next write, and the inode is
    /// written with each batch, which costs as much as another write of the disk.
    fn is_own(&self) -> bool {
        let stat = statx(&*self.file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO);
        let of = |s: Statx| (makedev(s.stx_dev_major, s.stx_dev_minor), s.stx_ino);
        stat.is_ok_and(|stat| of(stat) == self.identity)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // What has the number now may be the program's.
        if self.is_own() {
            // SAFETY: it is not used again.
            drop(unsafe { ManuallyDrop::take(&mut self.file) });
        }
    }
}
