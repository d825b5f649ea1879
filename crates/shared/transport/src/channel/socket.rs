//! A connected stream socket, unix or TCP, that never blocks in a call; waiting is separate.

use crate::channel::Channel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};
use siftfs_codec::frame::Took;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Descriptors that one message hands over at most.
pub(crate) const MAX_FDS: usize = 5;

/// What the kernel takes of a vector in one call.
pub(crate) const MAX_SLICES: usize = 1024;

pub(crate) struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Takes over a connected stream socket.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { fd })
    }

    fn write_with(
        &self,
        from: &[IoSlice<'_>],
        control: &mut SendAncillaryBuffer<'_, '_, '_>,
    ) -> io::Result<usize> {
        let (from, _) = from.split_at(from.len().min(MAX_SLICES));
        loop {
            match sendmsg(&self.fd, from, control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                other => return Ok(other?),
            }
        }
    }

    /// Sends `bytes`, with `fds` along with the first of them.
    pub fn write_fds(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "few descriptors");
        self.write_with(&[IoSlice::new(bytes)], &mut control)
    }

    /// What is there now, and the descriptors that came along, appended to `fds`.
    pub fn read_fds(&self, into: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<Took> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(into)];
        let found = recvmsg(&self.fd, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        match found {
            Ok(message) if message.bytes == 0 => Ok(Took::End),
            Ok(message) => Ok(Took::Bytes(message.bytes)),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Took::Nothing),
            Err(Errno::CONNRESET) => Ok(Took::End),
            Err(e) => Err(e.into()),
        }
    }
}

impl Channel for Socket {
    /// A peer that was killed cannot be told from one that ended.
    fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<Took> {
        let mut nothing = RecvAncillaryBuffer::default();
        loop {
            return match recvmsg(&self.fd, into, &mut nothing, RecvFlags::CMSG_CLOEXEC) {
                Ok(message) if message.bytes == 0 => Ok(Took::End),
                Ok(message) => Ok(Took::Bytes(message.bytes)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(Took::Nothing),
                Err(Errno::CONNRESET) => Ok(Took::End),
                Err(e) => Err(e.into()),
            };
        }
    }

    fn write(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_with(from, &mut SendAncillaryBuffer::default())
    }

    fn flush(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn wait_readable(&self, timeout: Duration) -> io::Result<()> {
        wait(&mut [PollFd::new(&self.fd, PollFlags::IN)], timeout)
    }

    fn wait_writable(&self, timeout: Duration) -> io::Result<()> {
        wait(&mut [PollFd::new(&self.fd, PollFlags::OUT)], timeout)
    }

    fn has_room(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        wait(&mut fds, Duration::ZERO).is_ok() && fds[0].revents().contains(PollFlags::OUT)
    }

    fn cut(&self) {
        // Fails only where it is cut already.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }

    /// Takes what the peer has sent meanwhile: closing a socket with unread bytes can destroy what
    /// is on its way to the peer.
    fn end(&self, patience: Duration) {
        let _ = shutdown(&self.fd, Shutdown::Write);
        let deadline = Instant::now() + patience;
        let mut rest = [0; 4096];
        for _ in 0..256 {
            match self.read(&mut [IoSliceMut::new(&mut rest)]) {
                Ok(Took::Bytes(_)) => {}
                Ok(Took::Nothing) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() || self.wait_readable(left).is_err() {
                        return;
                    }
                }
                Ok(Took::End) | Err(_) => return,
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sleeps until one of `fds` is ready, the time is over or a signal came.
pub(crate) fn wait(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    let most = Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 };
    match poll(fds, Some(&Timespec::try_from(timeout).unwrap_or(most))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
