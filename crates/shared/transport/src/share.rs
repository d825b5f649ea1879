//! How the shared memory and what wakes a sleeper get from the caller to the server: as
//! descriptors over the unix socket, after the greeting.

use crate::channel::Channel;
use crate::channel::socket::{MAX_FDS, Socket};
use crate::handshake::Greeting;
use crate::mapping::{Layout, Mapping};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use siftfs_base::{Error, Result, corrupt};
use siftfs_codec::frame::Took;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What the descriptors travel with.
const NOTE: [u8; 8] = *b"SiftFds1";

/// One end of a bell, a connected pair of sockets. A byte in it means: check again.
///
/// Not an eventfd: whether writing to one blocks is a flag that the peer can change at any time,
/// and one whose counter is full would then hold us. Sending to a socket can be told not to wait,
/// call by call.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    fn pair() -> rustix::io::Result<(Bell, Bell)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((Bell(a), Bell(b)))
    }

    /// Wakes the other end. If that fails the bell is full of rings, or the peer is gone, which
    /// the connection's socket tells.
    pub fn ring(&self) {
        let _ = send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Can be read when the bell has rung.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sleeps until the bell rings, something happens on `socket`, or the time is over.
    pub fn sleep(&self, socket: &Socket, timeout: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN), PollFd::new(socket, PollFlags::IN)];
        crate::channel::socket::wait(&mut fds, timeout)
    }

    /// Takes the rings that have come. False if the bell will never ring again: the other end is
    /// closed, or it never was a bell. Then [`Bell::sleep`] is of no use: it would not sleep.
    #[must_use]
    pub fn quiet(&self) -> bool {
        let mut rings = [0u8; 64];
        match recv(&self.0, &mut rings, RecvFlags::DONTWAIT) {
            Ok((_, n)) => n > 0,
            Err(e) => matches!(e, Errno::AGAIN | Errno::INTR),
        }
    }
}

/// The bells as one side has them. For each of the two directions of messages: one that says that
/// words are there, one that says that there is room.
pub(crate) struct Bells {
    pub to_server_words: Bell,
    pub to_server_room: Bell,
    pub from_server_words: Bell,
    pub from_server_room: Bell,
}

/// What both sides share.
pub(crate) struct Shared {
    pub memory: Arc<Mapping>,
    pub bells: Bells,
}

impl Bells {
    fn pair() -> rustix::io::Result<(Bells, Bells)> {
        let (a, b, c, d) = (Bell::pair()?, Bell::pair()?, Bell::pair()?, Bell::pair()?);
        let side = |a, b, c, d| Bells {
            to_server_words: a,
            to_server_room: b,
            from_server_words: c,
            from_server_room: d,
        };
        Ok((side(a.0, b.0, c.0, d.0), side(a.1, b.1, c.1, d.1)))
    }
}

impl Greeting<'_> {
    /// The caller's part: makes the memory and passes it on.
    ///
    /// # Errors
    /// No memory is shared, or the server does not accept it.
    pub fn give_memory(&self, layout: Layout) -> Result<Shared> {
        let made = Mapping::create(layout).and_then(|(memory, fd)| {
            let (ours, theirs) = Bells::pair().map_err(|e| self.failed(&e.into()))?;
            let shared = Shared { memory: Arc::new(memory), bells: ours };
            Ok((shared, fd, theirs))
        });
        // A side that has nothing to pass says so with its verdict, and the peer reads no note.
        let (shared, fd, theirs) = match made {
            Ok(made) => made,
            Err(e) => return self.conclude(Err(e)),
        };
        let fds = [
            fd.as_fd(),
            theirs.to_server_words.0.as_fd(),
            theirs.to_server_room.0.as_fd(),
            theirs.from_server_words.0.as_fd(),
            theirs.from_server_room.0.as_fd(),
        ];
        self.pass(&fds)?;
        self.conclude(Ok(shared))
    }

    fn pass(&self, fds: &[BorrowedFd<'_>; MAX_FDS]) -> Result<()> {
        loop {
            match self.channel.write_fds(&NOTE, fds).map_err(|e| self.failed(&e))? {
                0 => self.pause(|left| self.channel.wait_writable(left))?,
                n => return self.write(NOTE.get(n..).expect("no more is sent than there is")),
            }
        }
    }

    /// The server's part: takes the memory and checks that it is what was agreed on.
    ///
    /// # Errors
    /// The caller passed something else; it is told.
    pub fn take_memory(&self, layout: Layout) -> Result<Shared> {
        let taken = self.take_fds().and_then(|fds| {
            let [memory, a, b, c, d] = fds;
            let memory = Arc::new(Mapping::open(layout, &memory)?);
            let bells = Bells {
                to_server_words: Bell(a),
                to_server_room: Bell(b),
                from_server_words: Bell(c),
                from_server_room: Bell(d),
            };
            Ok(Shared { memory, bells })
        });
        let taken = taken.map_err(|e| match e {
            Error::Refused(why) => Error::Refused(format!("{}: {why}", self.peer)),
            other => other,
        });
        self.conclude(taken)
    }

    fn take_fds(&self) -> Result<[OwnedFd; MAX_FDS]> {
        let (mut note, mut fds) = ([0; NOTE.len()], Vec::new());
        let mut room = &mut note[..];
        while !room.is_empty() {
            match self.channel.read_fds(room, &mut fds).map_err(|e| self.failed(&e))? {
                Took::Bytes(n) => {
                    room.split_off_mut(..n).expect("no more is read than there is room for");
                }
                Took::Nothing => self.pause(|left| self.channel.wait_readable(left))?,
                Took::End => return Err(self.ended()),
            }
        }
        let what = || format!("greeting from {}", self.peer);
        if note != NOTE {
            return Err(corrupt(what(), "it passes no shared memory where it should"));
        }
        <[OwnedFd; MAX_FDS]>::try_from(fds).map_err(|fds| {
            corrupt(what(), format!("{} descriptors instead of {MAX_FDS}", fds.len()))
        })
    }
}

/// A failure of a wait, in words.
pub(crate) fn failed(peer: &str, e: &io::Error) -> Error {
    Error::Link(format!("{peer}: {e}"))
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
