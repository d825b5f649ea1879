//! The service slots of the header.

use crate::header::{FORMAT_VERSION, lanes_u64, lanes_vec, open_block, seal};
use crate::record::COMPACT_UNIT;
use crate::{Checked, MAX_LANES};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Epoch, Lsn, Result, TxnSeq, corrupt};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const SERVICE_MAGIC: [u8; 8] = *b"SIFTsvc\x01";
/// A service record, in errors.
const SERVICE: &str = "service record";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawService {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    pub(crate) lane_count: U32,
    pub(crate) seq: U64,
    pub(crate) epoch: U64,
    pub(crate) journal_tail: U64,
    pub(crate) next_seq: U64,
    pub(crate) ops_cut: U64,
    pub(crate) staged_cut: U64,
    pub(crate) lane_tails: [U64; MAX_LANES],
    pub(crate) reserved: [u8; 3900],
    pub(crate) crc: U32,
}
const _: () = assert!(size_of::<RawService>() == BLOCK_SIZE);

/// The Service's record, written at reclamation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServiceRecord {
    /// Counts service records; the highest is the newest.
    pub seq: u64,
    /// Epoch of the Service that wrote it.
    pub epoch: Epoch,
    /// Position of the journal's tail: the end of the newest checkpointed record.
    pub journal_tail: u64,
    /// Sequence number of the first transaction after the tail.
    pub next_seq: TxnSeq,
    /// `ops_cut` of the newest checkpointed transaction.
    pub ops_cut: Lsn,
    /// `staged_cut` of the newest checkpointed transaction.
    pub staged_cut: Lsn,
    /// Per lane, the end of the newest record contained in a checkpointed transaction.
    pub lane_tails: Vec<u64>,
}

impl ServiceRecord {
    /// Encodes the record.
    ///
    /// # Panics
    /// If a reader would refuse it.
    pub fn encode(&self) -> Box<[u8; BLOCK_SIZE]> {
        self.check().expect("a service record is what its reader demands");
        let mut raw = RawService::new_zeroed();
        raw.magic = SERVICE_MAGIC;
        raw.version = FORMAT_VERSION.into();
        raw.lane_count = (self.lane_tails.len() as u32).into();
        raw.seq = self.seq.into();
        raw.epoch = self.epoch.0.into();
        raw.journal_tail = self.journal_tail.into();
        raw.next_seq = self.next_seq.0.into();
        raw.ops_cut = self.ops_cut.0.into();
        raw.staged_cut = self.staged_cut.0.into();
        raw.lane_tails = lanes_u64(&self.lane_tails);
        seal(&raw)
    }

    /// Decodes and checks a service slot.
    pub fn decode(block: &[u8; BLOCK_SIZE]) -> Checked<Self> {
        let raw =
            open_block::<RawService>(block, &SERVICE_MAGIC, FORMAT_VERSION, |r| r.version.get())?;
        let record = Self {
            seq: raw.seq.get(),
            epoch: Epoch(raw.epoch.get()),
            journal_tail: raw.journal_tail.get(),
            next_seq: TxnSeq(raw.next_seq.get()),
            ops_cut: Lsn(raw.ops_cut.get()),
            staged_cut: Lsn(raw.staged_cut.get()),
            lane_tails: lanes_vec(&raw.lane_tails, raw.lane_count.get(), SERVICE)?,
        };
        record.check()?;
        Ok(record)
    }

    /// What a service record must be, whether it is about to be written or was read.
    fn check(&self) -> Result<()> {
        let bad = |tail: u64, unit: u64| !tail.is_multiple_of(unit) || tail >= 1 << 62;
        let lanes = self.lane_tails.iter().any(|tail| bad(*tail, COMPACT_UNIT));
        if lanes || bad(self.journal_tail, BLOCK_BYTES) {
            return Err(corrupt(SERVICE, "a tail that no ring can have"));
        }
        if self.next_seq.0 == 0 {
            return Err(corrupt(SERVICE, "next transaction has number 0"));
        }
        Ok(())
    }
}
