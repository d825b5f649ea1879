//! Transactions that are not reclaimed, and what each of them keeps until then.

use siftfs_base::{BlockNr, BlockRun, InodeNr, Lsn, TxnSeq};
use siftfs_log::JournalData;
use std::collections::BTreeMap;

/// A transaction between its cut and its reclamation.
///
/// 1. *Cut.* `State::cut` takes the snapshot and enters the transaction, neither `submitted` nor
///    `journaled`. What it frees is in quarantine from here on.
/// 2. *Submitted.* Once everything staged up to the cut is durable (rule R4), `submitted` is set
///    and the transaction is sent to the Service.
/// 3. *Journaled.* The Service says that the commit is durable: `journaled` is set, `journal_bytes`
///    becomes exact, and `images` is emptied. If that message was lost with the Service, the
///    credits of step 4 stand for it.
/// 4. *Reclaimed.* Credits come for this transaction or a later one: everything is in the area. The
///    overlays of `overlays` lose what this transaction journaled, `freed` and `freed_inodes` can
///    be allocated again, and the entry is removed.
pub struct TxnInfo {
    /// Destinations of the transaction's images; emptied once it is journaled.
    pub images: Vec<BlockNr>,
    /// Inodes whose overlay the transaction journaled.
    pub overlays: Vec<InodeNr>,
    /// Runs the transaction freed: quarantined until it is reclaimed (rule R5).
    pub freed: Vec<BlockRun>,
    /// Inode numbers the transaction freed, quarantined likewise.
    pub freed_inodes: Vec<InodeNr>,
    /// The name operations up to this LSN are in the transaction.
    pub ops_cut: Lsn,
    /// Journal bytes the transaction took; an upper bound until it is journaled.
    pub journal_bytes: u64,
    /// Per lane, the position up to which the transaction contains the records. Its reclamation
    /// returns the lane up to there as credits.
    pub lane_upto: Vec<u64>,
    /// The transaction was handed to the Service.
    pub submitted: bool,
    /// The transaction's commit is durable.
    pub journaled: bool,
}

/// Transactions from their cut to their reclamation, the room in the journal, and what the Service
/// was asked.
pub struct Ledger {
    /// Transactions that are not reclaimed.
    pub txns: BTreeMap<TxnSeq, TxnInfo>,
    /// Sequence number of the last transaction cut.
    pub txn_seq: TxnSeq,
    /// Newest transaction that is reclaimed.
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
