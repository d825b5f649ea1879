//! Transports of a [`Protocol`]: in process, over shared memory between two processes of one
//! machine, over a unix socket, over TCP, over TCP with TLS and keys, over RDMA. One side, the
//! *caller*, connects; the other, the *server*, listens.
//!
//! All of them have the same two halves, [`Sender`] and [`Receiver`], and the same promises:
//!
//! * Messages arrive in the order sent, each once and whole, or the connection is broken: there is
//!   no loss that goes unnoticed. A broken connection stays broken, in both directions, and every
//!   later call on it answers the first cause.
//! * What is on its way is bounded. A sender whose peer does not receive waits.
//! * A peer that dies is noticed at once, one that falls silent within
//!   [`TransportOptions::stall`].
//! * Nothing that a peer sends causes a panic or an allocation larger than what it sent.
//!
//! A transport promises nothing about durability: a message that was sent may never arrive.
//! `docs/design/block-protocol.md` is the page for all of it.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod address;
mod addresses;
mod attend;
mod channel;
mod crossed;
mod handshake;
mod in_process;
mod link;
mod mapping;
mod meeting;
mod options;
mod processors;
mod ring;
mod share;
mod shm;
mod watch;

pub use address::Address;
pub use addresses::{Addresses, served_by_hosts};
pub use crossed::Crossed;
pub use in_process::in_process;
pub use meeting::{
    Listener, Repeats, Secured, Trust, connect, connect_over, dial_unix, nobody_listens, reach,
};
pub use options::TransportOptions;
pub use siftfs_keys::ServerTls;

use siftfs_base::Result;
use siftfs_codec::Protocol;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The half that sends. Shared freely: concurrent senders take turns, message by message.
pub trait Sender<M>: Send + Sync {
    /// Sends `message` after those sent before it; waits while the bounded queue is full.
    ///
    /// Success means that the message is on its way, not that the peer has it.
    ///
    /// # Errors
    /// [`siftfs_base::Error::Link`] if this side has closed, or the peer is gone, silent for too
    /// long or broke the protocol. [`siftfs_base::Error::Refused`] for a message longer than both
    /// sides agreed on: nothing of it was sent and the connection goes on.
    fn send(&self, message: M) -> Result<()>;

    /// Sends a small message, 1 KiB at most and without blocks, if that can be done at once: no
    /// other thread is sending, and there is room. Never waits. False: it did not leave, for
    /// whatever reason; the connection is as it was, or broken as the next call will say.
    fn try_send(&self, message: M) -> bool;

    /// Sends what fits now of `message`, behind what was kept before, keeps the rest, and answers
    /// how many bytes are kept. Never waits. For connections that are attended
    /// ([`Receiver::attend`]); others may wait, as [`Sender::send`] does.
    ///
    /// # Errors
    /// As of [`Sender::send`].
    fn post(&self, message: M) -> Result<usize> {
        self.send(message).map(|()| 0)
    }

    /// Sends on what was kept, as much as fits now, and answers how many bytes are kept still.
    ///
    /// # Errors
    /// As of [`Sender::send`].
    fn push(&self) -> Result<usize> {
        Ok(0)
    }

    /// Says that nothing more will be sent. What was sent before arrives, then the peer's
    /// receiver answers [`Received::Closed`]. Nothing happens the second time, or on a connection
    /// that is broken.
    fn close(&self);

    /// Ends the connection at once, in both directions: threads that wait for the peer go on with
    /// an error, and what was sent may not arrive.
    fn cut(&self) {
        self.close();
    }

    /// What has crossed so far. In process nothing does.
    fn crossed(&self) -> Crossed {
        Crossed::default()
    }
}

/// The half that receives.
pub trait Receiver<M>: Send {
    /// The next message. Waits at most `timeout`; without one, until something happens. A
    /// timeout of zero asks whether something is there.
    ///
    /// # Errors
    /// [`siftfs_base::Error::Link`] if the peer ended without closing, fell silent or was
    /// refused, [`siftfs_base::Error::Corrupt`] for bytes that are no message; the same again on
    /// every later call. Messages that arrived whole before come first.
    fn recv(&mut self, timeout: Option<Duration>) -> Result<Received<M>>;

    /// The caller takes over the care for the connection, whose own thread ends, so that one
    /// thread can have several. From now on it calls [`Receiver::tend`] at least four times a
    /// second, receives with a timeout of zero, and sleeps by [`Receiver::arm`]. `None`: this kind
    /// of connection cannot be waited for together with others, and is as it was.
    ///
    /// # Errors
    /// There are no descriptors; the connection is as it was.
    fn attend(&mut self) -> Result<Option<Awaited>> {
        Ok(None)
    }

    /// Gets ready to sleep: true if nothing is there, and one of the descriptors can be read when
    /// something is.
    ///
    /// # Errors
    /// As of [`Receiver::recv`].
    fn arm(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// A descriptor could be read. To be called before what is there is received.
    ///
    /// # Errors
    /// As of [`Receiver::recv`].
    fn woken(&mut self) -> Result<()> {
        Ok(())
    }

    /// Says that this side is there, if nothing was said for a while, and sends on what was kept.
    /// Never waits.
    fn tend(&mut self) {}
}

/// What one waits for who attends a connection.
#[derive(Debug)]
pub struct Awaited {
    /// Can be read when something is there, or the peer has ended.
    pub descriptors: Vec<OwnedFd>,
    /// The first one can be written when there is room. Otherwise nothing tells of room.
    pub tells_room: bool,
}

/// What [`Receiver::recv`] found.
#[derive(Debug)]
pub enum Received<M> {
    /// The next message.
    Message(M),
    /// Nothing came in time.
    Timeout,
    /// The peer has closed in order, and everything it sent was received.
    Closed,
}

/// One end of a connection. Its threads, if any, end when both halves are dropped.
pub struct Connection<Out, In> {
    /// Sends to the peer.
    pub sender: Arc<dyn Sender<Out>>,
    /// Receives from the peer.
    pub receiver: Box<dyn Receiver<In>>,
    /// The peer, in words for messages: transport, address, and process where known.
    pub peer: String,
    /// Whose process it is, over a unix socket and the shared memory that came by one.
    pub process: Option<Peer>,
    /// Blocks travel in memory that both processes share.
    pub shares_memory: bool,
    /// Whose key the caller has, at the server's end of a connection with keys.
    pub key: Option<siftfs_keys::Peer>,
}

impl<Out, In> std::fmt::Debug for Connection<Out, In> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a connection to {}", self.peer)
    }
}

/// The end of the side that connects.
pub type CallerEnd<P> = Connection<<P as Protocol>::ToServer, <P as Protocol>::FromServer>;
/// The end of the side that listens.
pub type ServerEnd<P> = Connection<<P as Protocol>::FromServer, <P as Protocol>::ToServer>;

/// Whose process is at the other end of a unix socket, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Process id; 0 for a process of another PID namespace.
    pub pid: u32,
}
