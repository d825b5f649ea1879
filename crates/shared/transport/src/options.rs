//! What a connection may cost and how patient it is.

use std::time::Duration;

/// Options of a transport. Each side has its own; where they must agree, the smaller wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportOptions {
    /// How long a receiver spins before it sleeps. Zero never spins. The time is adapted: a wait
    /// that lasted longer than this shortens the next one's spinning.
    pub spin: Duration,
    /// Bytes of the arena for blocks in shared memory; zero uses none, and the unix socket
    /// carries everything. The host makes the arena.
    pub shared_memory: u64,
    /// Messages that wait in a queue at most, per direction. In process these are all that are on
    /// their way; between processes they come on top of the socket's or the ring's bytes.
    pub queue: usize,
    /// Longest message in bytes, blocks included.
    pub max_message: u64,
    /// A side that has nothing to say says so this often.
    pub heartbeat: Duration,
    /// A peer from which nothing was heard for this long is given up. At least three times the
    /// peer's heartbeat.
    pub stall: Duration,
    /// How long a peer may take until both have agreed to talk, and a connection to be made.
    pub handshake: Duration,
    /// How long a connection may take to be made, out of [`TransportOptions::handshake`]. Of two
    /// servers one is tried after the other: a machine that is gone keeps a caller for this long.
    pub dial: Duration,
}

impl Default for TransportOptions {
    fn default() -> Self {
        Self {
            spin: Duration::from_micros(20),
            shared_memory: 16 << 20,
            queue: 8,
            max_message: 256 << 20,
            heartbeat: Duration::from_secs(1),
            stall: Duration::from_secs(10),
            handshake: Duration::from_secs(5),
            dial: Duration::from_secs(5),
        }
    }
}
