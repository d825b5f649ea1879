//! The daemon's side of private logs: sessions of programs that hold write leases of a mount's
//! files, and keep what they write in memory that the daemon can read
//! (`docs/design/private-logs.md`).
//!
//! It works over sessions of the file protocol ([`Opens`]), and knows programs by the tokens that
//! the mount gave them ([`Redeems`]). What a program's memory and packets say is checked, and a
//! session that breaks a rule is ended, counted and told. No program is waited for.
//!
//! | thread | what it does | what it may wait for |
//! |---|---|---|
//! | `siftfs-enter` | accepts connections | |
//! | `siftfs-lease`, one per session | carries out what the program asks, one request at a time | storage, other users of a file |
//! | `siftfs-recall`, two | take the log of a recalled lease in | storage |
//! | `siftfs-keep` | uses each lease within its term | |
//! | `siftfs-age` | takes in what is old, gives back what is not used | storage |

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod counters;
mod direct;
mod file_log;
mod grantor;
mod holder;
mod ingestion;
mod log;
mod promise;
mod registered;
mod serve;
mod session;
mod table;
mod vouched;

pub use counters::{Counts, Program};
pub use grantor::Grantor;
pub use siftfs_ingest::{Counts as IngestCounts, How, Locate};
pub use siftfs_lease::{LogShape, Token};
pub use siftfs_registry::RegisteredLease;
pub use vouched::VOUCHED;

use siftfs_base::{InodeNr, Result};
use siftfs_proto::{Credentials, FileService, Holder};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Opens sessions of the file protocol.
pub trait Opens: Send + Sync {
    /// A session that lends: it may hold write leases, and may name any inode by its number. It
    /// ends when it is dropped.
    ///
    /// # Errors
    /// `ENFILE` if there are too many.
    fn open(&self, holder: Arc<dyn Holder>) -> Result<Arc<dyn FileService>>;
}

/// A process, as the kernel says of a connection's other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number; 0 for one of another namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// What a token stood for.
pub struct Redeemed {
    /// The file.
    pub ino: InodeNr,
    /// The process that has it open, by a number that stays its own while it lives.
    pub process: u32,
    /// For whom it was opened.
    pub credentials: Credentials,
    /// May it be read by the handle that the token stood for?
    pub reads: bool,
    /// How often the file is open to be written, through the mount, by the program itself. It is
    /// counted before the lease is granted and afterwards.
    pub writers: Box<dyn Fn() -> u64 + Send>,
}

/// Knows what tokens stand for, and which programs hold which files.
pub trait Redeems: Send + Sync {
    /// Takes a token back. It is of no use afterwards.
    ///
    /// # Errors
    /// `EACCES`: there is no such token, it is too old, or another process's.
    fn redeem(&self, token: &Token, peer: Peer) -> Result<Redeemed>;

    /// The process holds the lease of a file. Waits for nothing.
    fn leased(&self, ino: InodeNr, process: u32);

    /// The process does not hold it any more. Waits for nothing.
    fn returned(&self, ino: InodeNr, process: u32);
}

/// Makes file logs.
pub trait Logs: Send + Sync {
    /// A new log for a session of this process. It is known to the volume when this returns.
    ///
    /// # Errors
    /// There is no space, or there are too many.
    fn create(&self, process: u32) -> Result<Box<dyn LogFile>>;
}

/// A file log and what the registry says of it. What is said is durable when a call returns; after
/// one that failed, nothing is known of it.
pub trait LogFile: Send {
    /// What its program gets: an open file that is this log alone, and what the log is.
    fn passed(&self) -> (BorrowedFd<'_>, LogShape);

    /// How a batch becomes durable, and whether that outlives a power cut, for people.
    fn promise(&self) -> &str;

    /// Records of this lease count from now on. False: there are too many leases already.
    ///
    /// # Errors
    /// The registry cannot be written.
    fn register(&mut self, lease: RegisteredLease) -> Result<bool>;

    /// Records of the leases of these numbers do not count any more.
    ///
    /// # Errors
    /// As of [`LogFile::register`].
    fn end(&mut self, numbers: &[u64]) -> Result<()>;

    /// Batches before `end` do not count any more.
    ///
    /// # Errors
    /// As of [`LogFile::register`].
    fn forget(&mut self, end: u64) -> Result<()>;

    /// No batch of the log is left, whatever the registry says.
    ///
    /// # Errors
    /// The file cannot be changed.
    fn empty(&self) -> Result<()>;

    /// The log goes.
    ///
    /// # Errors
    /// As of [`LogFile::register`].
    fn remove(self: Box<Self>) -> Result<()>;
}

/// How much there may be, and how long things take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Sessions at a time. A user has half of what others leave at most.
    pub sessions: usize,
    /// How long a connection may take to become a session.
    pub patience: Duration,
    /// How old a record becomes before it is taken in (the mount's `commit=`).
    pub commit: Duration,
    /// How long a lease may go without a write.
    pub unused: Duration,
    /// How records are taken in.
    pub ingest: How,
}

impl Default for Bounds {
    /// Those of a mount.
    fn default() -> Self {
        let (patience, unused) = (Duration::from_secs(10), Duration::from_secs(10));
        let (commit, ingest) = (Duration::from_secs(5), How::default());
        Self { sessions: 1024, patience, commit, unused, ingest }
    }
}
