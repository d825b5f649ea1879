//! Transactions that are not reclaimed, and what each of them keeps until then.

use crate::state::log::questions::Questions;
use siftfs_base::{BLOCK_BYTES, BlockNr, BlockRun, Error, InodeNr, Lsn, Result, TxnSeq};
use siftfs_log::JournalData;
use std::collections::BTreeMap;

/// What a transaction keeps between its cut and its reclamation.
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
}

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
struct Entry {
    info: TxnInfo,
    /// The transaction was handed to the Service.
    submitted: bool,
    /// The transaction's commit is durable.
    journaled: bool,
}

/// Transactions from their cut to their reclamation, the room in the journal, and what the Service
/// was asked.
pub struct Ledger {
    /// What the Service was asked, and what it has answered.
    pub questions: Questions,
    /// Transactions that are not reclaimed.
    txns: BTreeMap<TxnSeq, Entry>,
    /// Sequence number of the last transaction cut.
    txn_seq: TxnSeq,
    /// Newest transaction that is reclaimed.
    reclaimed: TxnSeq,
    /// Everything up to this LSN is in a durable transaction.
    journaled_cut: Lsn,
    /// Bytes of the journal ring.
    journal_len: u64,
    /// What the journal holds of staged data.
    journal_data: JournalData,
}

/// An answer of the Service's that cannot be true.
pub fn refused(what: String) -> Error {
    Error::Refused(format!("the Service's answer was refused: {what}"))
}

/// The way of a transaction.
impl Ledger {
    /// No transaction is unreclaimed. `newest` is the last one that the Service has; the journal
    /// ring has `journal_len` bytes.
    pub fn new(newest: TxnSeq, journal_len: u64, journal_data: JournalData) -> Self {
        Self {
            questions: Questions::default(),
            txns: BTreeMap::new(),
            txn_seq: newest,
            reclaimed: newest,
            journaled_cut: Lsn(0),
            journal_len,
            journal_data,
        }
    }

    /// The transaction is cut.
    pub fn cut(&mut self, seq: TxnSeq, info: TxnInfo) {
        self.txn_seq = seq;
        self.txns.insert(seq, Entry { info, submitted: false, journaled: false });
    }

    /// The transaction is handed to the Service.
    pub fn submitted(&mut self, seq: TxnSeq) {
        if let Some(txn) = self.txns.get_mut(&seq) {
            txn.submitted = true;
        }
    }

    /// Is it news that the transaction's commit is durable, with `bytes` journal bytes and its
    /// images at position `image_pos` of the journal? The Service may say so twice.
    ///
    /// # Errors
    /// Refused if the transaction was not submitted, or its record cannot lie there.
    pub fn is_news(&self, seq: TxnSeq, bytes: u64, image_pos: u64) -> Result<bool> {
        let Some(txn) = self.txns.get(&seq) else {
            return match seq <= self.reclaimed {
                true => Ok(false),
                false => Err(refused(format!("transaction {} was not submitted", seq.0))),
            };
        };
        if txn.journaled {
            return Ok(false);
        }
        let ring = self.journal_len;
        let images = txn.info.images.len() as u64 * BLOCK_BYTES;
        let inside = image_pos.is_multiple_of(BLOCK_BYTES) && image_pos % ring + images <= ring;
        if !txn.submitted || !inside || bytes > txn.info.journal_bytes {
            let what = format!("transaction {} was not submitted so, or not at all", seq.0);
            return Err(refused(what));
        }
        Ok(true)
    }

    /// The transaction's commit is durable: gives out the destinations of its images, and the LSN
    /// up to which it has the name operations. `bytes` are the journal bytes that it took, if they
    /// are known.
    ///
    /// # Panics
    /// If the transaction is not in the ledger.
    pub fn journaled(&mut self, seq: TxnSeq, bytes: Option<u64>) -> (Vec<BlockNr>, Lsn) {
        let txn = self.txns.get_mut(&seq).expect("looked up before");
        txn.journaled = true;
        if let Some(bytes) = bytes {
            txn.info.journal_bytes = bytes;
        }
        self.journaled_cut = self.journaled_cut.max(txn.info.ops_cut);
        (std::mem::take(&mut txn.info.images), txn.info.ops_cut)
    }

    /// A durable transaction of this mount has everything up to this LSN; 0 if none is.
    pub fn journaled_cut(&self) -> Lsn {
        self.journaled_cut
    }

    /// Transactions up to `seq` whose commit the Service has not told to be durable, in order.
    ///
    /// # Errors
    /// Refused if there can be no credits for `seq`: something up to there was not submitted.
    pub fn unanswered(&self, seq: TxnSeq) -> Result<Vec<TxnSeq>> {
        let known = seq <= self.reclaimed || self.txns.contains_key(&seq);
        if !known || self.txns.range(..=seq).any(|(_, txn)| !txn.submitted) {
            return Err(refused(format!("credits for transaction {}, which it never got", seq.0)));
        }
        let unanswered = self.txns.range(..=seq).filter(|(_, txn)| !txn.journaled);
        Ok(unanswered.map(|(seq, _)| *seq).collect())
    }

    /// Per lane, the position up to which the transaction contains the records; `None` if it is
    /// not in the ledger.
    pub fn lane_upto(&self, seq: TxnSeq) -> Option<&[u64]> {
        self.txns.get(&seq).map(|txn| &txn.info.lane_upto[..])
    }

    /// Everything up to `seq` is in the area: gives out what the transactions up to there kept, in
    /// order.
    pub fn reclaimed(&mut self, seq: TxnSeq) -> impl Iterator<Item = TxnInfo> + use<> {
        let later = self.txns.split_off(&TxnSeq(seq.0.saturating_add(1)));
        self.reclaimed = self.reclaimed.max(seq);
        std::mem::replace(&mut self.txns, later).into_values().map(|txn| txn.info)
    }
}

/// What there is.
impl Ledger {
    /// Sequence number of the last transaction cut.
    pub fn last_cut(&self) -> TxnSeq {
        self.txn_seq
    }

    /// Newest transaction that is reclaimed.
    pub fn last_reclaimed(&self) -> TxnSeq {
        self.reclaimed
    }

    /// Is every transaction reclaimed?
    pub fn is_empty(&self) -> bool {
        self.txns.is_empty()
    }

    /// How many transactions are not reclaimed.
    pub fn len(&self) -> usize {
        self.txns.len()
    }

    /// Is the transaction's commit durable, as far as the Service has said? Transactions are made
    /// durable in order.
    pub fn is_durable(&self, seq: TxnSeq) -> bool {
        self.txns.get(&seq).map_or(seq <= self.reclaimed, |txn| txn.journaled)
    }

    /// Is there a transaction that a checkpoint could reclaim?
    pub fn has_journaled(&self) -> bool {
        self.txns.values().any(|txn| txn.journaled)
    }

    /// The oldest transaction that a checkpoint could reclaim now.
    pub fn oldest_journaled(&self) -> Option<TxnSeq> {
        self.txns.iter().next().filter(|(_, txn)| txn.journaled).map(|(seq, _)| *seq)
    }

    /// Bytes of the journal ring.
    pub fn journal_len(&self) -> u64 {
        self.journal_len
    }

    /// What the journal holds of staged data.
    pub fn journal_data(&self) -> JournalData {
        self.journal_data
    }

    /// Journal bytes between the oldest unreclaimed transaction and the newest cut, gaps included.
    pub fn journal_used(&self) -> u64 {
        self.txns.values().map(|txn| txn.info.journal_bytes).sum()
    }

    /// Inodes whose overlay a transaction has journaled that is not reclaimed; some more than once.
    pub fn overlays(&self) -> impl Iterator<Item = InodeNr> + '_ {
        self.txns.values().flat_map(|txn| &txn.info.overlays).copied()
    }

    /// Memory in bytes of what the transactions keep.
    pub fn bytes(&self) -> u64 {
        fn of<T>(list: &Vec<T>) -> usize {
            list.capacity() * size_of::<T>()
        }
        let remembered = self.txns.values().map(|Entry { info, .. }| {
            of(&info.images) + of(&info.overlays) + of(&info.freed) + of(&info.freed_inodes)
        });
        remembered.sum::<usize>() as u64
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
