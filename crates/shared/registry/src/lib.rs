//! The logs of programs, and the registry that says whose records in them count
//! (`docs/design/private-logs.md`, "The file log").
//!
//! A [`Directory`] is one registry and its logs. The daemon makes one with [`Directory::create`],
//! has the volume's host record name it ([`Directory::name`]), and makes a log for each program
//! that asks for one ([`Directory::new_log`]). A [`LogRow`] is such a log: the descriptor that the
//! program gets, and the row of the registry, which the daemon alone writes. Each change of a row
//! is durable when its call returns:
//!
//! | before | the daemon calls |
//! |---|---|
//! | fsync(2) by a lease's log counts | [`LogRow::register`] |
//! | the file of an ended lease is anybody else's | [`LogRow::end`] |
//! | it promises by another way than the log that bytes are durable | [`LogRow::begin`] |
//! | the session is over | [`LogRow::remove`] |
//!
//! A write of a row that fails leaves the older row or the newer one, so every later call on that
//! row fails: what is promised by it is neither more nor less than its last success.
//!
//! Recovery opens what a dead daemon left with [`Left::open`], reads each [`LeftLog`], and removes
//! all of it at last.
//!
//! Everything that is read is hostile: registry and logs are files that may have been put there by
//! anybody whose volume is recovered.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod counting;
mod directory;
mod folder;
mod head;
mod left;
mod log;
mod place;
mod process;
mod row;
mod turns;

pub use directory::Directory;
pub use left::{Left, LeftFile, LeftLog};
pub use log::LogRow;
pub use place::LogsPlace;
pub use row::{MOST_LEASES, RegisteredLease};

/// Most logs of a registry at a time.
pub const MOST_LOGS: u32 = 1024;

/// Bytes of a registry's blocks: of its head, and of each of the two slots of a row.
const SLOT: usize = 4096;
/// Such a block.
type Slot = [u8; SLOT];
/// Version of the registry's blocks, but for rows of mapped logs.
const VERSION: u32 = 1;

/// The checksum of a block, which its last four bytes hold.
fn seal(block: &mut Slot) {
    let (body, sum) = block.split_last_chunk_mut().expect("a block is longer than its checksum");
    *sum = siftfs_base::crc32c(body).to_le_bytes();
}

/// Does the block's checksum hold?
fn is_whole(block: &Slot) -> bool {
    let split = block.split_last_chunk();
    split.is_some_and(|(body, sum)| siftfs_base::crc32c(body).to_le_bytes() == *sum)
}
