//! A stream of bytes over a reliable connection of RDMA verbs.
//!
//! The two sides have met before, over a connection that says which end is which: each tells the
//! other its [`Terms`] there. From then on the bytes cross as messages of one queue pair, each into
//! a buffer that its receiver has posted before. [`Flow`] counts credits, so that no message is
//! sent that finds no buffer.
//!
//! Nothing here gives a peer the right to read or to write memory: it fills buffers that were
//! posted for its messages, and cannot change one of them once its completion was taken. What
//! crosses is not encrypted.
//!
//! The verbs themselves are behind the feature `verbs`, and their library is loaded when the first
//! queue pair is opened. Without the feature [`open`] refuses.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

#[cfg(not(feature = "verbs"))]
mod absent;
mod flow;
mod terms;
#[cfg(feature = "verbs")]
mod verbs;

#[cfg(not(feature = "verbs"))]
pub use absent::{QueuePair, open};
pub use flow::{Changed, Flow};
pub use terms::{TERMS_LEN, Terms};
#[cfg(feature = "verbs")]
pub use verbs::{QueuePair, open};

use std::io;
use std::os::fd::BorrowedFd;

/// Whether this program was built with the verbs.
pub const BUILT_IN: bool = cfg!(feature = "verbs");

/// Why a program without the verbs has no RDMA, and how to get it.
pub const NOT_BUILT_IN: &str = "this program was built without RDMA (its feature `rdma`, which \
                                `make build` turns on where libibverbs-dev is installed)";

/// Messages of bytes that a side takes before it gives a credit back.
pub const BUFFERS: u32 = 32;
/// Bytes of a buffer, and of a message at most.
pub const BUFFER_LEN: u32 = 32 << 10;
/// Messages without bytes, which return credits, that can be under way in one direction: each
/// returns at least half of all credits.
pub const CONTROLS: u32 = 2;

/// What a queue pair has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The message from this outgoing buffer is with the peer, and the buffer is free again.
    Sent(u32),
    /// A message without bytes is with the peer.
    SentControl,
    /// A message came.
    Received {
        /// The incoming buffer where it is; to be posted again.
        buffer: u32,
        /// Its bytes.
        len: u32,
        /// The number that came with it.
        carried: u32,
    },
}

/// A connected queue pair: messages arrive once, in order and whole, or an error says that no more
/// do. It has [`BUFFERS`] outgoing buffers, and [`BUFFERS`] and [`CONTROLS`] incoming ones, of
/// [`BUFFER_LEN`] bytes each. No call waits.
pub trait Queue: Send {
    /// The outgoing buffer of this number.
    ///
    /// # Panics
    /// There is no such buffer, or it was sent and is not done.
    fn outgoing(&mut self, buffer: u32) -> &mut [u8];

    /// The incoming buffer of this number.
    ///
    /// # Panics
    /// There is no such buffer, or it is posted.
    fn incoming(&self, buffer: u32) -> &[u8];

    /// Sends the first `len` bytes of an outgoing buffer, and a number with them.
    ///
    /// # Errors
    /// The connection is broken.
    ///
    /// # Panics
    /// As [`Queue::outgoing`]; or `len` is zero, or more than a buffer has.
    fn send(&mut self, buffer: u32, len: u32, carried: u32) -> io::Result<()>;

    /// Sends a message without bytes; at most [`CONTROLS`] of them are not done.
    ///
    /// # Errors
    /// The connection is broken.
    fn send_control(&mut self, carried: u32) -> io::Result<()>;

    /// Posts an incoming buffer for a message.
    ///
    /// # Errors
    /// The connection is broken.
    ///
    /// # Panics
    /// As [`Queue::incoming`].
    fn post(&mut self, buffer: u32) -> io::Result<()>;

    /// What was done next, if anything was.
    ///
    /// # Errors
    /// The connection is broken: the peer is gone, or one of the two sides has stopped.
    fn poll(&mut self) -> io::Result<Option<Done>>;

    /// Readable when something may have been done since [`Queue::take_events`].
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Makes the descriptor quiet until something is done. What was done before is to be polled
    /// after it.
    ///
    /// # Errors
    /// The device refuses.
    fn take_events(&mut self) -> io::Result<()>;

    /// Breaks the connection: nothing is sent or received from now on.
    fn stop(&mut self);
}
