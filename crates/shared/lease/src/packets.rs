//! A connected unix socket of packets.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, connect, recvmsg, sendmsg, shutdown, socket_with,
};
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

/// Descriptors that a packet brings at most.
const MOST_FDS: usize = 2;

/// The lowest number of a descriptor that a program does not know of.
const HIGH: i32 = 512;

/// The same open file under a number that programs do not count on, if there is one: one that has
/// closed its standard input gets that number for the next file that it opens.
pub fn high(file: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&file, HIGH).unwrap_or(file)
}

/// One end of a connection.
pub struct Packets(OwnedFd);

/// What came.
pub struct Packet {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Descriptors that it brought, if they were wanted.
    pub descriptors: Vec<OwnedFd>,
}

impl From<OwnedFd> for Packets {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Packets {
    /// Connects to the socket of this name.
    ///
    /// # Errors
    /// Nobody listens there, or the caller may not.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = high(socket_with(kind.0, kind.1, kind.2, None)?);
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Sends a packet if that can be done at once.
    ///
    /// # Errors
    /// `EAGAIN` if the peer has not taken what was sent before; it has gone.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(bytes, descriptors, SendFlags::DONTWAIT)
    }

    /// Sends a packet, and waits while the peer has not taken what was sent before.
    ///
    /// # Errors
    /// It has gone.
    pub fn send_in_turn(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_with(bytes, &[], SendFlags::empty())
    }

    fn send_with(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        how: SendFlags,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL | how;
        loop {
            match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags) {
                Err(Errno::INTR) => {}
                other => return other.map(drop).map_err(io::Error::from),
            }
        }
    }

    /// Waits for a packet of `most` bytes. Descriptors that it brings are taken if they are
    /// `wanted`, else they are closed. None: the peer has gone, or the connection was cut.
    ///
    /// # Errors
    /// It is longer, or the connection failed.
    pub fn receive(&self, most: usize, wanted: bool) -> io::Result<Option<Packet>> {
        let mut bytes = vec![0; most];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut descriptors = Vec::new();
        let got = loop {
            let mut control = match wanted {
                true => RecvAncillaryBuffer::new(&mut space),
                // The kernel has no room for them, and closes them.
                false => RecvAncillaryBuffer::default(),
            };
            let into = &mut [IoSliceMut::new(&mut bytes)];
            let got = recvmsg(&self.0, into, &mut control, RecvFlags::CMSG_CLOEXEC);
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            match got {
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
                other => break other?,
            }
        };
        if got.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is too long"));
        }
        bytes.truncate(got.bytes);
        // An empty packet is no message, so this is an end even if one was sent.
        Ok((got.bytes > 0).then_some(Packet { bytes, descriptors }))
    }

    /// Is there something to be read, or an end, within this time?
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn wait(&self, most: Duration) -> io::Result<bool> {
        let most = Timespec::try_from(most).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut fds, Some(&most)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Has the connection ended? What is still to be read does not matter.
    pub fn is_over(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ends = PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&now)).is_ok() && fds.iter().any(|fd| fd.revents().intersects(ends))
    }

    /// Takes no more packets: a thread that waits for one here finds the end. The peer does not see
    /// that the connection ends before it is cut.
    pub fn stop_receiving(&self) {
        // Fails only where it is cut already.
        let _ = shutdown(&self.0, Shutdown::Read);
    }

    /// Ends the connection in both directions; wakes the threads that wait on it, here and there.
    pub fn cut(&self) {
        // Fails only where it is cut already.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

#[cfg(test)]
#[path = "packets_tests.rs"]
mod tests;
