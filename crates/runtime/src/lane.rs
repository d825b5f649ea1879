//! A staging lane as the Runtime fills it: a ring with head and tail that only grow, one sentinel
//! block that is never used (SIFT §4.2.1), and no record across the ring's end.

use siftfs_base::{BLOCK_BYTES, Lsn};
use siftfs_device::URGENT_MAX;
use std::collections::VecDeque;
use std::time::Duration;

/// Space of one lane.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Bytes in the ring.
    pub len: u64,
    /// Where the next record may start.
    pub head: u64,
    /// Oldest byte still needed.
    pub tail: u64,
    /// Header checksum of the record that ends at `head`; 0 at the start of an epoch.
    pub prev_crc: u32,
    /// Records not yet known durable: LSN and end.
    pub recent: VecDeque<(Lsn, u64)>,
    /// Position up to which records are known durable (rule R14).
    pub durable_pos: u64,
    /// Head at the last cut: nothing staged since means nothing to journal for this lane.
    pub cut_head: u64,
}

/// Is a record of so many bytes bulk? Then it leaves the lane's last quarter to small ones, and its
/// caller pauses for them.
pub fn is_bulk(len: u64) -> bool {
    len > URGENT_MAX as u64
}

/// Pauses of bulk callers in multiples of what their writes take: while half of the lane is free, and
/// at its last quarter.
const BULK_PAUSES: [f64; 2] = [2.0, 32.0];
/// The pause after a small fsync that takes the last of a lane.
const SMALL_PAUSE: Duration = Duration::from_millis(4);

/// How long a caller pauses once its record is durable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pause {
    /// So many times what that took.
    Times(f64),
    /// So long.
    Fixed(Duration),
}

impl Pause {
    /// After a record that took `took`.
    pub fn after(self, took: Duration) -> Duration {
        match self {
            Self::Times(n) => took.mul_f64(n),
            Self::Fixed(pause) => pause,
        }
    }
}

impl Lane {
    /// An empty lane whose next record goes to `head`.
    pub fn new(len: u64, head: u64) -> Self {
        Self {
            len,
            head,
            tail: head,
            prev_crc: 0,
            recent: VecDeque::new(),
            durable_pos: head,
            cut_head: head,
        }
    }

    /// Where a record of `len` bytes would lie, if there is room: the gap at the ring's end counts.
    pub fn place(&self, len: u64) -> Option<u64> {
        assert!(len > 0 && len.is_multiple_of(BLOCK_BYTES), "records are whole blocks");
        let pos = siftfs_log::place_record(self.head, len, self.len)?;
        (pos + len - self.tail <= self.len - BLOCK_BYTES).then_some(pos)
    }

    /// Would a record that ends at `end` take of the last quarter? That is kept for small fsyncs: bulk
    /// waits for credits before it is used.
    pub fn would_crowd(&self, end: u64) -> bool {
        end - self.tail > self.len / 4 * 3
    }

    /// The pause of a caller that has just taken `len` bytes: longer as credits get fewer, so that it
    /// slows down before it has to stop. Bulk always gives way to small fsyncs, and more beyond half
    /// of the lane; those slow down in the quarter that is theirs.
    pub fn pause(&self, len: u64) -> Pause {
        let beyond = |part: u64, of: u64| {
            let over = self.used().saturating_sub(part) as f64 / of.max(1) as f64;
            over.min(1.0).powi(2)
        };
        let (half, quarter) = (self.len / 2, self.len / 4);
        if is_bulk(len) {
            let [least, most] = BULK_PAUSES;
            Pause::Times(least + (most - least) * beyond(half, quarter))
        } else {
            Pause::Fixed(SMALL_PAUSE.mul_f64(beyond(half + quarter, quarter)))
        }
    }

    /// Is there hardly room for more that is pushed?
    pub fn is_crowded(&self) -> bool {
        self.would_crowd(self.head + self.max_record())
    }

    /// The record placed at `pos` is fixed.
    pub fn advance(&mut self, lsn: Lsn, pos: u64, len: u64, crc: u32) {
        assert!(pos >= self.head && pos + len - self.tail <= self.len - BLOCK_BYTES);
        self.head = pos + len;
        self.prev_crc = crc;
        self.recent.push_back((lsn, self.head));
    }

    /// Everything up to `durable` is durable.
    pub fn note_durable(&mut self, durable: Lsn) {
        while self.recent.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            self.durable_pos = self.recent.pop_front().expect("just seen").1;
        }
    }

    /// Credits came back: clamped, so that the tail never passes the head.
    pub fn reclaim(&mut self, tail: u64) {
        self.tail = self.tail.max(tail.min(self.head));
    }

    /// Bytes between tail and head.
    pub fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// The largest record it takes (rule R10).
    pub fn max_record(&self) -> u64 {
        siftfs_log::max_record_len(self.len)
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
