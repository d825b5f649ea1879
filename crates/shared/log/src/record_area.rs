//! The header of a record area: which volume the medium belongs to, and since which mount.
//!
//! It is written at every mount, after the volume's header names the mount's epoch and before the
//! area's first record. So a volume whose log may hold state has an area of the epoch of its lanes;
//! one of another epoch is an older copy, or another volume's (rule R16).

use crate::header::FORMAT_VERSION;
use crate::{Checked, Invalid, checksum};
use siftfs_base::{BLOCK_BYTES, Epoch, Error};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offsets of the two slots on the medium. The newer one counts; the older one is overwritten.
pub const RECORD_AREA_SLOTS: [u64; 2] = [0, 2048];
/// First byte of the lane on the medium.
pub const RECORD_AREA_LANE: u64 = BLOCK_BYTES;
/// Bytes of a slot.
const LEN: usize = 64;
const MAGIC: [u8; 8] = *b"SIFTrec\x01";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    reserved0: U32,
    seq: U64,
    volume: [u8; 16],
    epoch: U64,
    len: U64,
    reserved1: U32,
    crc: U32,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// What a record area says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordAreaHeader {
    /// Counts the headers written; the highest is the newest.
    pub seq: u64,
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// Epoch of the newest mount that wrote the area; 0 before the first.
    pub epoch: Epoch,
    /// Bytes of the lane.
    pub len: u64,
}

impl RecordAreaHeader {
    /// Encodes a slot.
    pub fn encode(&self) -> [u8; LEN] {
        let mut raw = Raw {
            magic: MAGIC,
            version: FORMAT_VERSION.into(),
            reserved0: 0.into(),
            seq: self.seq.into(),
            volume: self.volume,
            epoch: self.epoch.0.into(),
            len: self.len.into(),
            reserved1: 0.into(),
            crc: 0.into(),
        };
        let sum = raw.as_bytes().split_last_chunk::<4>().map(|(body, _)| checksum(0, body));
        raw.crc = sum.expect("a slot is longer than its checksum").into();
        let mut out = [0; LEN];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    /// Decodes and checks a slot.
    ///
    /// # Errors
    /// Incompatible if it is of a newer version.
    pub fn decode(slot: &[u8; LEN]) -> Checked<Self> {
        let Ok(raw) = Raw::ref_from_bytes(slot) else { return Err(Invalid("wrong size").into()) };
        if raw.magic != MAGIC {
            return Err(Invalid("no magic number").into());
        }
        let sum = slot.split_last_chunk::<4>().map(|(body, _)| checksum(0, body));
        if sum != Some(raw.crc.get()) {
            return Err(Invalid("checksum mismatch").into());
        }
        match raw.version.get() {
            FORMAT_VERSION => {}
            found => {
                let what =
                    format!("record area of version {found}; this build knows {FORMAT_VERSION}");
                return Err(Error::Incompatible(what).into());
            }
        }
        let (seq, len) = (raw.seq.get(), raw.len.get());
        Ok(Self { seq, volume: raw.volume, epoch: Epoch(raw.epoch.get()), len })
    }
}

#[cfg(test)]
#[path = "record_area_tests.rs"]
mod tests;
