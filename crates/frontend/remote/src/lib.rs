//! Both ends of the file protocol over a wire: a [`Server`] that gives clients sessions of a
//! volume, and a [`Client`] whose session is a [`FileService`](siftfs_proto::FileService) as one in
//! process is. `docs/design/network.md` is the page for all of it.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod client;
mod executors;
mod server;

pub use client::Client;
pub use executors::{Execution, Schedule};
pub use server::{Counts, Served, Server};
pub use siftfs_calls::{Claim, FileProtocol, Opening};
pub use siftfs_transport::{Address, TransportOptions};

/// Listens for clients.
pub type Listener = siftfs_transport::Listener<FileProtocol>;

/// Options of a transport for calls: messages as long as a call's.
pub fn transport() -> TransportOptions {
    TransportOptions { max_message: siftfs_calls::MAX_MESSAGE, ..TransportOptions::default() }
}
