//! Connections of TLS 1.3 between keys (RFC 7250), over TCP.

mod client;
mod link;
mod server;
mod setup;

pub use client::ClientTls;
pub use server::{Peer, ServerTls};
pub use setup::ALPN;

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
