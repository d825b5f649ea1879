//! A background journal transaction in memory, as the Runtime assembles it, the link carries it and
//! the journal holds it.

use siftfs_base::{BlockNr, BlockRun, LaneId, Lsn, SharedBlock, TxnSeq};

/// A staged transaction named by a background journal transaction (SIFT §3.2.4): where its
/// record lies and what proves that it is the one meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedRef {
    /// Lane the record lies in.
    pub lane: LaneId,
    /// Position of the record's first byte in the lane (64-bit, only grows).
    pub pos: u64,
    /// Whole length of the record in bytes, a multiple of the block size.
    pub len: u32,
    /// The record's LSN.
    pub lsn: Lsn,
    /// The record's header checksum, which covers its items and the checksums of its data.
    pub crc: u32,
}

/// Copy tag: bytes of a staged record become bytes of the area. Byte-exact (rule R13); bytes
/// of the destination blocks that no tag names are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTag {
    /// Index into [`Transaction::staged`].
    pub source: u32,
    /// Byte offset inside the record's data section.
    pub data_offset: u32,
    /// First byte in the area.
    pub dst: u64,
    /// Length in bytes; the range lies in one contiguous run of area blocks.
    pub len: u32,
}

/// Zero tag: bytes of the area become zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZeroTag {
    /// First byte in the area.
    pub dst: u64,
    /// Length in bytes.
    pub len: u32,
}

/// The *physical* ranges of a lane's records that a transaction contains (rule R42): those that
/// name their place in the area themselves, so that the transaction has no tags for them. It
/// contains those of the records from `from` up to the lane's [`Transaction::lane_upto`], all of
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The lane.
    pub lane: LaneId,
    /// Where the transaction before ended in it.
    pub from: u64,
    /// Checksum of the last record before `from`, 0 for the start of an epoch.
    pub prev_crc: u32,
    /// Checksum of the last record: with `prev_crc` it says which chain of records is meant.
    pub crc: u32,
    /// Number of physical ranges in these records, at least 1.
    pub ranges: u32,
}

/// A background journal transaction, handed over as one snapshot (SIFT §3.2.7).
///
/// Meaning, in this order: the physical ranges that `digest` names, in the order of their records;
/// `direct` runs, whose bytes went ahead in `Direct`, are in the area and flushed before the
/// transaction commits (rule R20); then zero tags, copy tags and images apply, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Sequence number, one more than the previous transaction's.
    pub seq: TxnSeq,
    /// Exactly the effects of operations up to this LSN are in the images (rule R1).
    pub ops_cut: Lsn,
    /// Staged transactions up to this LSN are contained. Equals `ops_cut` in live operation;
    /// recovery, which applies staged transactions one by one, advances only this one.
    pub staged_cut: Lsn,
    /// Per lane, the position up to which records are contained in this cut: reclaimable once
    /// this transaction is checkpointed.
    pub lane_upto: Vec<u64>,
    /// Physical ranges that it contains, if there are any.
    pub digest: Option<Digest>,
    /// Staged transactions that copy tags refer to.
    pub staged: Vec<StagedRef>,
    /// Zero tags.
    pub zeros: Vec<ZeroTag>,
    /// Copy tags.
    pub copies: Vec<CopyTag>,
    /// Destination of each image in `image_data`, ascending, without duplicates.
    pub images: Vec<BlockNr>,
    /// Metadata block images in the order of `images`; not copied until they are encoded.
    pub image_data: Vec<SharedBlock>,
    /// Newly allocated runs whose unsynced data went straight to the area: exactly the runs of
    /// this transaction's `Direct` messages, in their order.
    pub direct: Vec<BlockRun>,
    /// Area blocks freed by this transaction: older intervals on them are dead (rule R22).
    pub drops: Vec<BlockRun>,
}
