//! Durability that a program learns of later.

use crate::call::ioctl;
use siftfs_proto::commands::{BARRIER, NO_TIMEOUT, POLL, STAGE, WAIT};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A position in the order of what is staged on a mount: it is durable once everything up to there
/// is. What is durable stays so. It needs no end: forgotten, it becomes durable all the same.
///
/// It means something on the mount that gave it, until that is unmounted. Its calls are made on any
/// open file or directory of that mount, which need not be the one that was staged: keeping that
/// one open for as long as the ticket is of interest is not asked of the program.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use std::os::unix::fs::FileExt;
/// let orders = std::fs::File::options().write(true).open("/mnt/orders")?;
/// let mut last = siftfs_client::barrier(&orders)?;
/// for order in 0..64u64 {
///     orders.write_all_at(&[7; 4096], order * 4096)?;
///     last = siftfs_client::stage(&orders)?;
/// }
/// last.wait(&orders) // one write and one flush for all of them
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// Stages what fsync(2) of `file`, a file or directory, would make durable, without a wait for
/// storage. What is staged later never survives a crash without it.
///
/// # Errors
/// `ENOTTY` if it is not on a SiftFS mount; `EAGAIN` when 65,536 tickets are not durable; those of
/// fsync(2).
pub fn stage(file: impl AsFd) -> io::Result<Ticket> {
    drawn(file.as_fd(), STAGE)
}

/// A ticket of everything staged so far on the mount of `on`.
///
/// # Errors
/// `ENOTTY` if that is no SiftFS mount; `EAGAIN` when 65,536 tickets are not durable.
pub fn barrier(on: impl AsFd) -> io::Result<Ticket> {
    drawn(on.as_fd(), BARRIER)
}

fn drawn(on: BorrowedFd<'_>, command: u32) -> io::Result<Ticket> {
    let mut number = [0; 8];
    ioctl(on, command, &mut number)?;
    Ok(Ticket(u64::from_le_bytes(number)))
}

impl Ticket {
    /// The ticket of this number, as [`Ticket::number`] said, perhaps in another process.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// What to tell another program that is to ask for it.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Is it durable? If not, it will be within milliseconds, as fast as the storage takes it: a
    /// program may ask again and again.
    ///
    /// # Errors
    /// `EINVAL` if the mount of `on` did not give it; `EIO` if it never will be durable.
    pub fn is_durable(self, on: impl AsFd) -> io::Result<bool> {
        let mut argument = self.0.to_le_bytes();
        ioctl(on.as_fd(), POLL, &mut argument)?;
        Ok(u64::from_le_bytes(argument) != 0)
    }

    /// Returns when it is durable.
    ///
    /// # Errors
    /// As [`Ticket::is_durable`].
    pub fn wait(self, on: impl AsFd) -> io::Result<()> {
        self.wait_until(on.as_fd(), NO_TIMEOUT)
    }

    /// As [`Ticket::wait`], for `timeout` at most.
    ///
    /// # Errors
    /// As [`Ticket::is_durable`]; `ETIMEDOUT`; `EAGAIN` if 1,024 waits of this kind are under way.
    pub fn wait_timeout(self, on: impl AsFd, timeout: Duration) -> io::Result<()> {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(NO_TIMEOUT);
        self.wait_until(on.as_fd(), nanoseconds)
    }

    fn wait_until(self, on: BorrowedFd<'_>, nanoseconds: u64) -> io::Result<()> {
        let mut argument = [0; 16];
        let (ticket, time) = argument.split_at_mut(8);
        ticket.copy_from_slice(&self.0.to_le_bytes());
        time.copy_from_slice(&nanoseconds.to_le_bytes());
        ioctl(on, WAIT, &mut argument)
    }
}
