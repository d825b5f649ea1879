//! The block protocol between Runtime and Service: durable blocks and references to staged
//! data, never file names.
//!
//! One Runtime speaks to one Service over an ordered link. The Service answers every
//! [`ToService`], `Direct`, `ExpectUrgent` and `Objection` excepted, with one or more
//! [`FromService`]; sequence numbers and credits only grow. A Service that takes over from another
//! begins with what is durable: after `Welcome` one `Journaled` per transaction that is not
//! checkpointed and one `Reclaimed`, so that answers may come twice. A Runtime sends again what was
//! not answered. `messages.rs` has their form in bytes, for transports that leave the process.
//!
//! A connection of another sort carries calls on the storage itself ([`StorageCall`]), for a host
//! whose storage is the Service's process, or for a program to which that host has granted blocks.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod messages;
mod storage;

#[cfg(test)]
mod samples;

#[cfg(test)]
extern crate self as siftfs_wire;

use siftfs_base::{BlockRun, Epoch, SharedBlock, TxnSeq};
use siftfs_codec::{Party, Protocol};
use siftfs_log::Transaction;
pub use siftfs_status::{
    CheckpointReport, DeviceStatistics, IoCounts, OriginCounts, ProgramStatistics, RegionCounts,
    ServiceStatistics, Urgency, WorkerStatistics,
};
pub use storage::{
    ATOMIC_MAX_RUNS, Access, AtomicRun, CONNECTION_MAX_QUEUES, Carried, FileRun, GRANT_ALL_RUNS,
    GRANT_MAX_FRESH, GRANT_MAX_RUNS, GrantRun, Place, QUEUE_WINDOW, SETTLED_MAX_RUNS,
    STORAGE_MAX_BLOCKS, STORAGE_MAX_DEVICES, StorageAnswer, StorageCall, StorageDevice, Token,
    UNORDERED,
};

/// The block protocol.
#[derive(Clone, Copy, Debug)]
pub struct BlockProtocol;

impl Protocol for BlockProtocol {
    const NAME: &'static str = "block protocol";
    const VERSION: u32 = PROTOCOL_VERSION;
    const OLDEST: u32 = PROTOCOL_OLDEST;
    const CALLER: Party = Party { number: 1, name: "Runtime", magic: *b"SFt>" };
    const SERVER: Party = Party { number: 2, name: "Service", magic: *b"SF<f" };
    const SERVER_LENDS: bool = true;
    type ToServer = ToService;
    type FromServer = FromService;
}

/// Version of this message set. It goes up with every change of a message or of its bytes; a test
/// of the codec holds it to that.
pub const PROTOCOL_VERSION: u32 = 13;

/// Oldest version that this build still speaks: a message has one form, and no version is
/// translated into another.
pub const PROTOCOL_OLDEST: u32 = PROTOCOL_VERSION;

/// Blocks of data one [`ToService::Direct`] carries at most.
pub const DIRECT_MAX_BLOCKS: usize = 1024;

/// Runs that one [`ToService::Discard`] names at most.
pub const DISCARD_MAX_RUNS: usize = 1024;

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
    /// Give the space of these blocks of the area back to what lies below. Every one is free in the
    /// durable state, no transaction that is not reclaimed names it, and the Runtime gives it to
    /// no file before [`FromService::Discarded`]. What is urgent goes first.
    Discard {
        /// Echoed in [`FromService::Discarded`].
        id: u64,
        /// Which blocks; [`DISCARD_MAX_RUNS`] runs at most.
        runs: Vec<BlockRun>,
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
    /// A call on the storage, by a host that reaches it through the Service's process alone, or by
    /// a program to which it has granted blocks. A connection whose first message is one,
    /// [`StorageCall::Open`] or [`StorageCall::Attach`], carries nothing else but, after the
    /// latter, `Queued`.
    Storage {
        /// Echoed in [`FromService::Storage`]: calls are answered in any order.
        id: u64,
        /// What is to be done.
        call: StorageCall,
    },
    /// A read, a write or a flush of a queue that this connection has attached. Answered as
    /// `Storage` is.
    Queued {
        /// Echoed in [`FromService::Storage`].
        id: u64,
        /// Its place in the queue.
        place: Place,
        /// What is to be done.
        call: StorageCall,
    },
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
    /// Answer to `Discard`: none of its runs is being discarded any more. Whether each was makes no
    /// difference to what may be done with its blocks.
    Discarded {
        /// The request's id.
        id: u64,
        /// Blocks given back.
        blocks: u64,
        /// Runs that could not be, because of an error.
        failed: u64,
        /// The storage says that it cannot give space back.
        unsupported: bool,
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
    /// Answer to `Storage`.
    Storage {
        /// The call's id.
        id: u64,
        /// What came of it.
        answer: StorageAnswer,
    },
}
