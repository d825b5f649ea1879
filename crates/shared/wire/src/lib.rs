//! The block protocol between Runtime and Service: durable blocks and references to staged
//! data, never file names.
//!
//! One Runtime speaks to one Service over an ordered link. The Service answers every
//! [`ToService`], `Direct`, `ExpectUrgent` and `Objection` excepted, with one or more
//! [`FromService`]; sequence numbers and credits only grow. A Service that takes over from another
//! begins with what is durable: after `Welcome` one `Journaled` per transaction that is not
//! checkpointed and one `Reclaimed`, so that answers may come twice. A Runtime sends again what was
//! not answered. [`codec`] makes bytes of them, for transports that leave the process.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod codec;

#[cfg(test)]
extern crate self as siftfs_wire;

use siftfs_base::{BlockRun, Epoch, SharedBlock, TxnSeq};
use siftfs_log::Transaction;

/// Version of this message set. It goes up with every change of a message or of its bytes; a test
/// of the codec holds it to that.
pub const PROTOCOL_VERSION: u32 = 3;

/// Oldest version that this build still speaks: a message has one form, and no version is
/// translated into another.
pub const PROTOCOL_OLDEST: u32 = PROTOCOL_VERSION;

/// Blocks of data one [`ToService::Direct`] carries at most.
pub const DIRECT_MAX_BLOCKS: usize = 1024;

/// Longest time in milliseconds for which one [`ToService::ExpectUrgent`] counts; what a host says
/// beyond it is cut.
pub const EXPECT_URGENT_MAX_MS: u32 = 100;

/// Data that goes straight to its home in the area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectRun {
    /// Blocks of the area that the data goes to.
    pub run: BlockRun,
    /// The data, one element per block of `run`.
    pub data: Vec<SharedBlock>,
}

/// How urgent a checkpoint is; each kind has its own gate (SIFT §4.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    /// Low watermark: reclaim in the background.
    Background,
    /// A foreground reservation waits.
    Emergency,
}

/// Runtime to Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToService {
    /// First message of a connection.
    Hello {
        /// [`PROTOCOL_VERSION`] of the Runtime.
        version: u32,
        /// Volume identity; must match the Service's.
        volume: [u8; 16],
        /// The Runtime's epoch; uncommitted transactions of older epochs are dropped (rule R9).
        epoch: Epoch,
    },
    /// Instead of a Hello, before the host has written anything: would this volume be served? The
    /// Service answers [`FromService::Bye`] or [`FromService::Refused`], and the connection ends.
    Inquire {
        /// [`PROTOCOL_VERSION`] of the Runtime.
        version: u32,
        /// Volume identity; must match the Service's.
        volume: [u8; 16],
    },
    /// Write these runs to the area now: data of the transaction `seq`, which has not been
    /// submitted yet, in blocks that nothing durable refers to. No answer; an error latches.
    Direct {
        /// The transaction that will list the runs.
        seq: TxnSeq,
        /// What to write where.
        runs: Vec<DirectRun>,
        /// A foreground caller waits.
        waited: bool,
    },
    /// Journal this transaction. Every staged transaction it names is already flushed (rule R4).
    Submit {
        /// What to journal.
        txn: Box<Transaction>,
        /// A foreground caller waits: writes and flushes are counted as its own.
        waited: bool,
    },
    /// Checkpoint every transaction journaled up to `upto` and reclaim its space.
    Checkpoint {
        /// Echoed in [`FromService::CheckpointDone`].
        id: u64,
        /// Last transaction to include; a larger number than journaled means all.
        upto: TxnSeq,
        /// Background or emergency.
        urgency: Urgency,
    },
    /// Small durable steps are expected on the lanes' storage for so long: bulk shall give way to
    /// them there, which the Service's process does not see. The newest one counts; an emergency
    /// checkpoint ends it, because a caller that waits for credits takes no such step. A hint
    /// without an answer: lost, late or repeated it changes nothing but the pace.
    ExpectUrgent {
        /// From its arrival on, in milliseconds; [`EXPECT_URGENT_MAX_MS`] at most.
        ms: u32,
    },
    /// Ask for [`FromService::Statistics`].
    Statistics,
    /// The Runtime ends in order and will send nothing more: everything that it submitted is
    /// checkpointed. The Service gives area, journal and service record up, then answers
    /// [`FromService::Bye`].
    Goodbye,
    /// An answer was refused: it acknowledged what was not sent, or gave back more than there is.
    /// The connection ends; no answer.
    Objection {
        /// What was wrong with it.
        reason: String,
    },
}

/// What one checkpoint did (SIFT §4.5, §5.1.4). In totals, sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckpointReport {
    /// Which gate asked for it; none in totals.
    pub trigger: Option<Urgency>,
    /// Transactions checkpointed.
    pub batch: u64,
    /// Ready-prefix batches built with the interval map.
    pub coalesced_batches: u64,
    /// Ready-prefix batches built without it.
    pub light_batches: u64,
    /// Staged transactions named by the journal; each carries an inode's state.
    pub staged: u64,
    /// Tags and images read from the journal.
    pub raw_tags: u64,
    /// Tags and images replayed, or what was left of them.
    pub surviving_tags: u64,
    /// Data and metadata blocks named by raw tags.
    pub raw_blocks: u64,
    /// Blocks replayed.
    pub surviving_blocks: u64,
    /// Metadata images in the batch.
    pub raw_images: u64,
    /// Metadata images replayed.
    pub surviving_images: u64,
    /// Inode updates that the images of inode tables carry.
    pub raw_inodes: u64,
    /// Inodes updated by the images of inode tables that were replayed.
    pub surviving_inodes: u64,
    /// Reads issued.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes issued to the area.
    pub writes: u64,
    /// Bytes written to the area.
    pub write_bytes: u64,
    /// Flushes issued.
    pub flushes: u64,
    /// Read windows used.
    pub windows: u64,
    /// Journal bytes returned as credits.
    pub journal_credits: u64,
    /// Lane bytes returned as credits.
    pub staging_credits: u64,
    /// Time reading the journal and finding what survives, in nanoseconds.
    pub index_nanos: u64,
    /// Time reading and verifying staged data.
    pub read_nanos: u64,
    /// Time merging and writing to the area.
    pub write_nanos: u64,
    /// Time flushing and writing the service record.
    pub flush_nanos: u64,
    /// Time of all steps, in nanoseconds.
    pub nanos: u64,
}

impl CheckpointReport {
    /// Adds what `r` counts; the trigger stays.
    pub fn add(&mut self, r: &CheckpointReport) {
        self.batch += r.batch;
        self.coalesced_batches += r.coalesced_batches;
        self.light_batches += r.light_batches;
        self.staged += r.staged;
        self.raw_tags += r.raw_tags;
        self.surviving_tags += r.surviving_tags;
        self.raw_blocks += r.raw_blocks;
        self.surviving_blocks += r.surviving_blocks;
        self.raw_images += r.raw_images;
        self.surviving_images += r.surviving_images;
        self.raw_inodes += r.raw_inodes;
        self.surviving_inodes += r.surviving_inodes;
        self.reads += r.reads;
        self.read_bytes += r.read_bytes;
        self.writes += r.writes;
        self.write_bytes += r.write_bytes;
        self.flushes += r.flushes;
        self.windows += r.windows;
        self.journal_credits += r.journal_credits;
        self.staging_credits += r.staging_credits;
        self.index_nanos += r.index_nanos;
        self.read_nanos += r.read_nanos;
        self.write_nanos += r.write_nanos;
        self.flush_nanos += r.flush_nanos;
        self.nanos += r.nanos;
    }
}

/// I/O of one kind, as counted at the storage backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct IoTotals {
    /// Reads issued.
    pub reads: u64,
    /// Bytes asked for by them.
    pub read_bytes: u64,
    /// Writes issued.
    pub writes: u64,
    /// Bytes handed over by them.
    pub write_bytes: u64,
    /// Flushes issued.
    pub flushes: u64,
    /// Calls that failed.
    pub errors: u64,
}

/// I/O of one region, by whether a caller waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct OriginTotals {
    /// A caller waited.
    pub foreground: IoTotals,
    /// No caller waited.
    pub background: IoTotals,
    /// Takeover.
    pub admin: IoTotals,
}

/// I/O of a Service's process on the volume it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RegionTotals {
    /// The file-system area.
    pub area: OriginTotals,
    /// All lanes.
    pub staging: OriginTotals,
    /// The journal.
    pub journal: OriginTotals,
    /// The header.
    pub header: OriginTotals,
}

/// A process that runs the Service apart from the Runtime. Times and counts are since its start,
/// I/O since it took the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeviceStatistics {
    /// Id of the process, on its machine.
    pub pid: u32,
    /// Processor time in microseconds, of all its threads.
    pub cpu_us: u64,
    /// Messages received.
    pub messages: u64,
    /// Hosts and messages refused.
    pub refusals: u64,
    /// Hosts greeted, the present one included.
    pub hosts: u64,
    /// Hints received that small durable steps are expected.
    pub hints: u64,
    /// I/O.
    pub io: RegionTotals,
}

/// Totals of the Service since it took the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ServiceStatistics {
    /// Transactions journaled.
    pub journaled_transactions: u64,
    /// Bytes appended to the journal.
    pub journaled_bytes: u64,
    /// Tags journaled.
    pub journaled_tags: u64,
    /// Metadata images journaled.
    pub journaled_images: u64,
    /// Bytes written straight to the area before a commit.
    pub direct_bytes: u64,
    /// Area ranges listed as dropped.
    pub drops: u64,
    /// Checkpoints done, by urgency.
    pub checkpoints_background: u64,
    /// Checkpoints done because a foreground reservation waited.
    pub checkpoints_emergency: u64,
    /// Sum of all checkpoint reports.
    pub checkpoint_total: CheckpointReport,
    /// The last checkpoint's report.
    pub checkpoint_last: CheckpointReport,
    /// When it was done, in seconds since 1970; 0 before the first.
    pub checkpoint_last_s: i64,
    /// The Service's process, if it is another one than the Runtime's.
    pub device: Option<DeviceStatistics>,
}

/// Service to Runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromService {
    /// Answer to `Hello`.
    Welcome {
        /// [`PROTOCOL_VERSION`] of the Service.
        version: u32,
        /// Sequence number of the newest durable transaction.
        journaled: TxnSeq,
        /// Sequence number of the newest checkpointed transaction.
        checkpointed: TxnSeq,
    },
    /// The transaction's commit is durable; `bytes` is the journal space it took, wrap gap
    /// included.
    Journaled {
        /// Sequence number of the transaction.
        seq: TxnSeq,
        /// Journal bytes taken.
        bytes: u64,
        /// Position of its first image in the journal ring (64-bit, only grows); image `i` lies
        /// at `image_pos + i * BLOCK_SIZE`.
        image_pos: u64,
    },
    /// Credits: everything up to `seq` is in the area, flushed, and the tails are durable.
    Reclaimed {
        /// Newest checkpointed transaction.
        seq: TxnSeq,
        /// Journal tail position (64-bit, only grows).
        journal_tail: u64,
        /// Lane tail positions (64-bit, only grow).
        lane_tails: Vec<u64>,
    },
    /// Answer to `Checkpoint`, after its last `Reclaimed`.
    CheckpointDone {
        /// The request's id.
        id: u64,
        /// The request's urgency.
        urgency: Urgency,
        /// What was done.
        report: CheckpointReport,
    },
    /// Answer to `Statistics`.
    Statistics(Box<ServiceStatistics>),
    /// The Service failed and has latched the error; nothing after it will be journaled.
    Failed {
        /// First cause.
        error: siftfs_base::Error,
    },
    /// Answer to a `Hello` or `Inquire` that is not served: of another version, volume or epoch, or
    /// while the volume is another process's. Nothing was written; the connection ends.
    Refused {
        /// Why, for the administrator.
        reason: String,
    },
    /// The Service has given the volume up, and sends nothing more: answer to `Goodbye`, or of a
    /// Service that ends by itself. To an `Inquire`: nothing speaks against a Hello.
    Bye,
}
