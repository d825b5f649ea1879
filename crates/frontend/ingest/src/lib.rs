//! The back end of private logs: what programs have published becomes their files' bytes, by the
//! steps fetch, locate, merge, copy and patch (`docs/design/private-logs.md`, "The back end").
//!
//! | step | what it has | what it gives to the next one |
//! |---|---|---|
//! | `fetch` | [`Headers`](siftfs_lease::Headers) | records: headers that were copied and checked |
//! | `locate` | an [`Index`] and its cache | the same, and which blocks are cold |
//! | `merge` | the [`Index`] | for each file its newest time, and disjoint pieces |
//! | `copy` | [`Data`](siftfs_lease::Data) | the pieces' bytes, copied once |
//! | `patch` | [`Files`], and the ring's tail | |
//!
//! The first three have no access to data, by type. `pipeline` says which thread
//! carries out which step.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod copy;
mod counters;
mod fetch;
mod locate;
mod merge;
mod patch;
mod pipeline;

pub use counters::{Counters, Counts};
pub use locate::LINE_BLOCKS;
pub use pipeline::{BackEnd, Means, Pipelines, ingest};

use siftfs_base::{Error, Result};
use siftfs_lease::Held;
use siftfs_proto::WriteData;

/// Answers questions about blocks of leased files.
pub trait Index: Sync {
    /// Which of `count` blocks from `first` on, at most 64, are in storage and not in memory, so
    /// that a write of a part of one would have to read it first: bit `i` stands for block
    /// `first + i`. Those that `bring` names are in memory when this returns. May wait for storage.
    ///
    /// # Errors
    /// The lease has ended, or a block cannot be read.
    fn cold(&self, held: Held, blocks: (u64, u32), bring: u64) -> Result<u64>;
}

/// Writes to leased files.
pub trait Files: Sync {
    /// Writes all of the data at a byte of the file, which changed at `time`, in nanoseconds since
    /// 1970, as its program says.
    ///
    /// # Errors
    /// Nothing of it, or not all, could be written.
    fn write(&self, held: Held, offset: u64, data: WriteData, time: i64) -> Result<()>;

    /// A record of the file, or what is left of one, could not be written.
    fn lose(&self, held: Held, error: &Error);
}

/// What is known of cold blocks before a write needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locate {
    /// Nothing: a write finds out for itself.
    Off,
    /// The index is asked for each block that a record changes in part.
    Uncached,
    /// It is asked for a line of this number of blocks at a time, at most 64, and its answers are
    /// kept.
    Lines(u32),
}

/// How records are taken in. What becomes of the files is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Threads for an ingestion of more than one batch, with the caller's own: 1 to 4. With 1 the
    /// steps take turns, and there is no pipeline.
    pub threads: usize,
    /// With four threads: fetch has none of its own, and copy does; else it is the other way round.
    pub fold_fetch: bool,
    /// The records of a batch are merged. Else each is written for itself.
    pub merge: bool,
    /// The index, and its cache.
    pub locate: Locate,
    /// Most records of a batch, and bytes after which it takes no more of them, at most 512 KiB.
    pub batch: (usize, u64),
}

/// Most records of a batch.
const BATCH_RECORDS: usize = 256;
/// Bytes after which a batch takes no more records.
const BATCH_BYTES: u64 = 512 << 10;

/// What touches is cut once at most, and is of two records then: there are no more writes than
/// records, for which there is space.
const _: () = {
    use siftfs_proto::LENT_WRITE_BYTES;
    assert!(BATCH_BYTES + LENT_WRITE_BYTES <= 2 * (LENT_WRITE_BYTES - siftfs_base::BLOCK_BYTES));
};

impl Default for How {
    fn default() -> Self {
        Self {
            // As measured where program and back end share two processors.
            threads: 1,
            fold_fetch: true,
            merge: true,
            locate: Locate::Lines(LINE_BLOCKS),
            batch: (BATCH_RECORDS, BATCH_BYTES),
        }
    }
}
