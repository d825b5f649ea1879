//! The log format: header, staged transactions, background journal transactions, redo lane.
//!
//! Declarations, encoders and decoders only; no I/O. `docs/spec/log-format.md` describes the
//! same bytes in words. Whatever a decoder is given is hostile until checked: nothing here
//! panics, indexes unchecked or allocates beyond the input's own size.
//!
//! A decoder tells two kinds of trouble apart. Bytes that are *not a valid record* (torn,
//! overwritten, never written) are [`Invalid`]: where a log ends, this is expected. Bytes whose
//! checksum holds but whose content breaks the format are an [`Error`]: something wrote them on
//! purpose, and a reader must stop.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod header;
mod item;
mod item_codec;
mod item_reply;
mod journal;
mod journal_codec;
mod journal_data;
mod key;
mod link;
mod record;
mod record_area;
mod redo;
mod registry;
mod service_record;
mod spare;
#[cfg(test)]
mod spec;
mod sums;
mod transaction;

pub use header::*;
pub use item::*;
pub use item_codec::DATA_ITEM_BYTES;
pub use item_reply::{REPLIES_PER_RECORD, replies_len};
pub use journal::*;
pub use journal_codec::COPY_TAG_BYTES;
pub use journal_data::JournalData;
pub use key::{EpochKey, LogKey};
pub use link::*;
pub use record::*;
pub use record_area::{RECORD_AREA_LANE, RECORD_AREA_SLOTS, RecordAreaHeader};
pub use redo::*;
pub use registry::{MAX_REGISTRY_PATH, RegistryName};
pub use service_record::ServiceRecord;
pub use spare::{
    MAX_SPARE_BATCH, SPARE_EXTENTS, SPARE_FIRST, SPARE_SLOTS, SpareBatch, SpareExtent, SpareHeader,
};
pub use sums::{DATA_CHUNK, DataSums};
pub use transaction::{CopyTag, Digest, StagedRef, Transaction, ZeroTag};

use siftfs_base::{BLOCK_BYTES, Error, Result, checksum, corrupt};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most lanes a volume can have.
pub const MAX_LANES: usize = 16;
/// Longest name of a directory entry, in bytes.
pub const MAX_NAME: usize = 255;
/// Longest symbolic link target, in bytes.
pub const MAX_TARGET: usize = 4095;

/// Why bytes are not a valid record; a short reason for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid(pub &'static str);

impl Invalid {
    /// The same as an [`Error::Corrupt`] of `what`.
    pub fn into_error(self, what: impl Into<String>) -> Error {
        corrupt(what, self.0)
    }
}

/// Why bytes were not decoded.
#[derive(Clone, PartialEq, Debug)]
pub enum DecodeError {
    /// They are not a valid record.
    Invalid(Invalid),
    /// They are validly checksummed, and not understood or breaking the format: a reader must stop.
    Stop(Error),
}

impl From<Invalid> for DecodeError {
    fn from(why: Invalid) -> Self {
        Self::Invalid(why)
    }
}

impl From<Error> for DecodeError {
    fn from(error: Error) -> Self {
        Self::Stop(error)
    }
}

impl DecodeError {
    /// The error of a reader that needs a valid record of `what`.
    pub fn into_error(self, what: impl Into<String>) -> Error {
        match self {
            Self::Invalid(why) => why.into_error(what),
            Self::Stop(error) => error,
        }
    }
}

/// The result of decoding.
pub type Checked<T> = std::result::Result<T, DecodeError>;

/// What was decoded; `None` if it is not a valid record.
///
/// # Errors
/// A reader must stop.
pub fn if_valid<T>(decoded: Checked<T>) -> Result<Option<T>> {
    match decoded {
        Ok(value) => Ok(Some(value)),
        Err(DecodeError::Invalid(_)) => Ok(None),
        Err(DecodeError::Stop(error)) => Err(error),
    }
}

/// Position of the first byte of the lap after the one `pos` lies in.
///
/// # Panics
/// If `ring_len` is 0.
pub fn next_lap(pos: u64, ring_len: u64) -> u64 {
    (pos / ring_len + 1) * ring_len
}

/// Where a record of `len` bytes goes in a ring when the previous one ended at `end`: there, or,
/// as records never wrap, at the start of the next lap. `None` if it can never fit.
pub fn place_record(end: u64, len: u64, ring_len: u64) -> Option<u64> {
    if len > ring_len || ring_len == 0 {
        return None;
    }
    if end % ring_len + len <= ring_len { Some(end) } else { Some(next_lap(end, ring_len)) }
}

/// `n` rounded up to whole blocks.
pub(crate) fn blocks_up(n: u64) -> u64 {
    n.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Bytes of the fixed part of a record's head.
const FIXED_LEN: usize = 128;

/// Checksum of a head: of its `fixed` part, whose last field it is and leaves out, and of the
/// `rest`.
fn head_crc(key: &LogKey, fixed: &[u8; FIXED_LEN], rest: &[u8]) -> u32 {
    checksum(key.crc(&fixed[..FIXED_LEN - 4]), rest)
}

/// Writes a head's `fixed` part in front of its `rest`, with the checksum, which it returns.
fn seal_head(
    key: &LogKey,
    raw: &(impl IntoBytes + Immutable),
    fixed: &mut [u8; FIXED_LEN],
    rest: &[u8],
) -> u32 {
    fixed.copy_from_slice(raw.as_bytes());
    let crc = head_crc(key, fixed, rest);
    fixed[FIXED_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Writes `bytes` to the start of `room`, which is what follows them from then on.
///
/// # Panics
/// If they do not fit.
pub(crate) fn put(room: &mut &mut [u8], bytes: &[u8]) {
    let to =
        room.split_off_mut(..bytes.len()).expect("an encoder's buffer is sized by its lengths");
    to.copy_from_slice(bytes);
}

/// A fixed-size structure at the start of `bytes` and what follows it.
pub(crate) fn take<'a, T>(bytes: &'a [u8], what: &str) -> Result<(&'a T, &'a [u8])>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_prefix(bytes).map_err(|_| corrupt(what, "shorter than its fixed part"))
}

/// `n` bytes at the start of `bytes` and what follows them.
pub(crate) fn split<'a>(bytes: &'a [u8], n: usize, what: &str) -> Result<(&'a [u8], &'a [u8])> {
    bytes.split_at_checked(n).ok_or_else(|| corrupt(what, "a length points past its end"))
}

#[cfg(test)]
#[path = "golden_tests.rs"]
mod golden_tests;
