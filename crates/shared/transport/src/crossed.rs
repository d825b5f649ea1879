//! What crosses a connection, counted: bytes of messages, and blocks that did not have to cross
//! because they lie in memory that both sides share.

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What has crossed one connection, as one of its ends counts it. Bytes of greetings are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Bytes of the frames that this side has sent, with blocks that no slot was free for.
    pub sent: u64,
    /// Bytes of the blocks that this side has copied into shared memory instead.
    pub lent: u64,
    /// Bytes of the frames that came, with blocks that were not lent.
    pub received: u64,
}

impl std::ops::AddAssign for Crossed {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.lent += other.lent;
        self.received += other.received;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    sent: AtomicU64,
    lent: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    /// A frame is about to leave.
    pub fn sends(&self, bytes: usize, inline: usize, lent: usize) {
        self.sent.fetch_add((bytes + inline * BLOCK_SIZE) as u64, Relaxed);
        self.lent.fetch_add(lent as u64 * BLOCK_BYTES, Relaxed);
    }

    /// A frame has come.
    pub fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Relaxed);
    }

    pub fn so_far(&self) -> Crossed {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        Crossed { sent: of(&self.sent), lent: of(&self.lent), received: of(&self.received) }
    }
}
