//! The kernel's side of the mount: the FUSE protocol over `/dev/fuse`.
//!
//! `abi` has the structures, `request` turns one message into an [`request::Operation`], `reply`
//! turns an [`reply::Answer`] into one message, `session` agrees on the protocol and runs the
//! threads that read.
//!
//! The loop is ours because it is the door: every byte of a request is checked here once, by code
//! that knows what the file system accepts (all 64 bits of a time, for example), and every flag
//! of the protocol that POSIX semantics need reaches the server.

pub(crate) mod abi;
pub(crate) mod bounds;
pub(crate) mod convert;
pub(crate) mod counts;
mod device;
pub(crate) mod handler;
pub(crate) mod notify;
pub(crate) mod owing;
pub(crate) mod priority;
mod readers;
pub(crate) mod reply;
pub(crate) mod request;
mod ring;
pub(crate) mod session;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod transport;

/// Largest read or write that the kernel sends, in bytes.
pub(crate) const MAX_IO: u32 = 1 << 20;
