//! Transactions that are not reclaimed, and what they keep.

use siftfs_base::{BlockNr, BlockRun, InodeNr, Lsn, TxnSeq};
use siftfs_log::JournalData;
use std::collections::BTreeMap;

/// A transaction between its cut and its reclamation.
pub struct TxnInfo {
    /// Its images' destinations (dropped once journaled).
    pub images: Vec<BlockNr>,
    /// Inodes whose overlay it journaled.
    pub overlays: Vec<InodeNr>,
    /// Runs it freed: quarantined until it is reclaimed (rule R5).
    pub freed: Vec<BlockRun>,
    /// Inode numbers it freed.
    pub freed_inodes: Vec<InodeNr>,
    /// Its cut.
    pub ops_cut: Lsn,
    /// Journal bytes it took; an upper bound until journaled.
    pub journal_bytes: u64,
    /// Per lane, the position up to which its cut contains the records: credits to come.
    pub lane_upto: Vec<u64>,
    /// It was handed to the Service.
    pub submitted: bool,
    /// Its commit is durable.
    pub journaled: bool,
}

/// Transactions from their cut to their reclamation, the room in the journal, and what the Service
/// was asked.
pub struct Ledger {
    /// Transactions not reclaimed.
    pub txns: BTreeMap<TxnSeq, TxnInfo>,
    /// Sequence number of the last transaction cut.
    pub txn_seq: TxnSeq,
    /// Newest transaction reclaimed.
    pub reclaimed: TxnSeq,
    /// Bytes of the journal ring.
    pub journal_len: u64,
    /// What the journal holds of staged data.
    pub journal_data: JournalData,
    /// Checkpoint answers that have arrived, by request id.
    pub checkpoints_done: BTreeMap<u64, siftfs_wire::CheckpointReport>,
    /// Statistics answers that have arrived.
    pub service_statistics: Option<siftfs_wire::ServiceStatistics>,
    /// A background checkpoint has been asked for and not answered.
    pub background_checkpoint: bool,
    /// An emergency checkpoint has been asked for, for credits, and not answered: its number.
    pub credit_checkpoint: Option<u64>,
}
