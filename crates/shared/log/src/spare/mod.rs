//! The spare log: what a device holds of another one's writes while that one does not answer.
//!
//! A header in two slots, and batches behind it, one behind the other from its first block on. A
//! batch is a block that says where its extents belong on the log's device, and then their bytes.
//! Each time when the log's device has everything, a new header with a higher generation makes all
//! batches invalid, and the next one lies at the beginning again. Behind the batches there may be
//! room for an image of the log's device, which is the log once that device has failed.

use crate::header::{FORMAT_VERSION, open_block, seal};
use crate::{Checked, EpochKey, Invalid, LogKey};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Epoch, Error, corrupt};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offsets of the two slots of the header. The one of the higher generation counts, and the
/// other one is overwritten.
pub const SPARE_SLOTS: [u64; 2] = [0, BLOCK_BYTES];
/// Byte offset of the first batch.
pub const SPARE_FIRST: u64 = 2 * BLOCK_BYTES;
/// Most extents of one batch.
pub const SPARE_EXTENTS: usize = 252;
/// Most bytes of one batch, its head included.
pub const MAX_SPARE_BATCH: u64 = (4 << 20) + BLOCK_BYTES;

const MAGIC: [u8; 8] = *b"SIFTspr\x01";
const BATCH_MAGIC: [u8; 8] = *b"SIFTspb\x01";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    reserved0: U32,
    generation: U64,
    volume: [u8; 16],
    epoch: U64,
    nonce: U64,
    len: U64,
    log_len: U64,
    image: U64,
    alone: U32,
    reserved1: [u8; 4008],
    crc: U32,
}
const _: () = assert!(size_of::<Raw>() == BLOCK_SIZE);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawExtent {
    offset: U64,
    len: U32,
    crc: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBatch {
    magic: [u8; 8],
    version: U32,
    count: U32,
    generation: U64,
    index: U64,
    pos: U64,
    reserved: [u8; 20],
    crc: U32,
    extents: [RawExtent; SPARE_EXTENTS],
}
const _: () = assert!(size_of::<RawBatch>() == BLOCK_SIZE);

/// What a spare log says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpareHeader {
    /// Grows with each header that is written. Batches of another generation are invalid.
    pub generation: u64,
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// Epoch of the newest mount that may have written batches; 0 before the first.
    pub epoch: Epoch,
    /// The secret number of the batches' checksums.
    pub nonce: u64,
    /// Bytes of the device that the spare log takes, its header included.
    pub len: u64,
    /// Bytes of the log's device that its batches may name.
    pub log_len: u64,
    /// Byte offset on the spare device of the room for an image of the log's device, which lies
    /// behind all batches. It is 0 where the spare device has no such room.
    pub image: u64,
    /// The log's device was given up for good: the image is the log.
    pub alone: bool,
}

impl SpareHeader {
    /// The key of the batches of this generation.
    pub fn key(&self) -> LogKey {
        EpochKey { epoch: Epoch(self.generation), nonce: self.nonce }.spare()
    }

    /// Byte offset of the end of what batches may take.
    pub fn batches_end(&self) -> u64 {
        if self.image == 0 { self.len } else { self.image }
    }

    /// Encodes a slot.
    pub fn encode(&self) -> Box<[u8; BLOCK_SIZE]> {
        let mut raw = Raw::new_zeroed();
        raw.magic = MAGIC;
        raw.version = FORMAT_VERSION.into();
        raw.generation = self.generation.into();
        raw.volume = self.volume;
        raw.epoch = self.epoch.0.into();
        raw.nonce = self.nonce.into();
        raw.len = self.len.into();
        raw.log_len = self.log_len.into();
        raw.image = self.image.into();
        raw.alone = u32::from(self.alone).into();
        seal(&raw)
    }

    /// Decodes and checks a slot.
    ///
    /// # Errors
    /// Incompatible if it is of a newer version; corrupt if its lengths are no lengths.
    pub fn decode(block: &[u8; BLOCK_SIZE]) -> Checked<Self> {
        let raw = open_block::<Raw>(block, &MAGIC, FORMAT_VERSION, |r| r.version.get())?;
        let header = Self {
            generation: raw.generation.get(),
            volume: raw.volume,
            epoch: Epoch(raw.epoch.get()),
            nonce: raw.nonce.get(),
            len: raw.len.get(),
            log_len: raw.log_len.get(),
            image: raw.image.get(),
            alone: raw.alone.get() == 1,
        };
        if !header.is_sound() || raw.alone.get() > 1 {
            return Err(corrupt("spare log", "its lengths are those of no device").into());
        }
        Ok(header)
    }

    fn is_sound(&self) -> bool {
        let whole = |len: u64| len.is_multiple_of(BLOCK_BYTES) && len < 1 << 62;
        let lengths = [self.len, self.log_len, self.image].into_iter().all(whole);
        let image_fits = match self.image {
            0 => !self.alone,
            image => lengths && image + self.log_len <= self.len,
        };
        lengths && image_fits && self.batches_end() > SPARE_FIRST
    }
}

/// Bytes of the log's device, as a batch has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpareExtent {
    /// First byte on the log's device; a multiple of the block size.
    pub offset: u64,
    /// Length in bytes; a multiple of the block size.
    pub len: u32,
    /// Checksum of the bytes, under the key of the generation.
    pub crc: u32,
}

/// The head of a batch. The bytes of its extents follow it in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpareBatch {
    /// Generation of the header that it counts under.
    pub generation: u64,
    /// Its number in the generation, from 0 on.
    pub index: u64,
    /// Byte offset of this head on the spare device.
    pub pos: u64,
    /// Where its bytes belong; a later extent lies over an earlier one.
    pub extents: Vec<SpareExtent>,
}

impl SpareBatch {
    /// Bytes of the whole batch.
    pub fn len(&self) -> u64 {
        BLOCK_BYTES + self.extents.iter().map(|extent| u64::from(extent.len)).sum::<u64>()
    }

    /// Has it no extents? No batch is so.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Encodes the head.
    ///
    /// # Panics
    /// If a reader would refuse it.
    pub fn encode(&self, key: &LogKey) -> Box<[u8; BLOCK_SIZE]> {
        assert!(self.is_sound(), "a batch is what its reader demands");
        let mut raw = RawBatch::new_zeroed();
        raw.magic = BATCH_MAGIC;
        raw.version = FORMAT_VERSION.into();
        raw.count = (self.extents.len() as u32).into();
        raw.generation = self.generation.into();
        raw.index = self.index.into();
        raw.pos = self.pos.into();
        for (to, extent) in raw.extents.iter_mut().zip(&self.extents) {
            to.offset = extent.offset.into();
            to.len = extent.len.into();
            to.crc = extent.crc.into();
        }
        raw.crc = key.crc(raw.as_bytes()).into();
        let mut block = Box::new([0; BLOCK_SIZE]);
        block.copy_from_slice(raw.as_bytes());
        block
    }

    /// Decodes the head of a batch at `pos`, under the generation of `header`. The bytes of its
    /// extents are not looked at.
    ///
    /// # Errors
    /// Incompatible if it is of another version; corrupt if its checksum holds and its extents are
    /// none.
    pub fn decode(block: &[u8; BLOCK_SIZE], header: &SpareHeader, pos: u64) -> Checked<Self> {
        let Ok(raw) = RawBatch::ref_from_bytes(block) else {
            return Err(Invalid("wrong size").into());
        };
        let here = (raw.generation.get(), raw.pos.get()) == (header.generation, pos);
        if raw.magic != BATCH_MAGIC || !here {
            return Err(Invalid("no batch of this generation and place").into());
        }
        if raw.crc.get() != head_crc(&header.key(), block) {
            return Err(Invalid("checksum mismatch").into());
        }
        if raw.version.get() != FORMAT_VERSION {
            let found = raw.version.get();
            let what =
                format!("spare log's batch of version {found}; this build knows {FORMAT_VERSION}");
            return Err(Error::Incompatible(what).into());
        }
        let extents = raw.extents.get(..raw.count.get() as usize).unwrap_or_default();
        let extent = |raw: &RawExtent| SpareExtent {
            offset: raw.offset.get(),
            len: raw.len.get(),
            crc: raw.crc.get(),
        };
        let extents = extents.iter().map(extent).collect();
        let batch = Self { generation: raw.generation.get(), index: raw.index.get(), pos, extents };
        let ends = |e: &SpareExtent| e.offset.checked_add(e.len.into());
        let inside = |e: &SpareExtent| ends(e).is_some_and(|end| end <= header.log_len);
        if !batch.is_sound() || !batch.extents.iter().all(inside) {
            return Err(
                corrupt("spare log", format!("the batch at byte {pos} names no bytes")).into()
            );
        }
        Ok(batch)
    }

    fn is_sound(&self) -> bool {
        let whole = |e: &SpareExtent| {
            let blocks = e.offset.is_multiple_of(BLOCK_BYTES) && e.len.is_multiple_of(4096);
            blocks && e.len > 0
        };
        let count = (1..=SPARE_EXTENTS).contains(&self.extents.len());
        count && self.extents.iter().all(whole) && self.len() <= MAX_SPARE_BATCH
    }
}

/// The checksum of a head: of the block with zeroes in the checksum's place.
fn head_crc(key: &LogKey, block: &[u8; BLOCK_SIZE]) -> u32 {
    let mut clear = Box::new(*block);
    let at = std::mem::offset_of!(RawBatch, crc);
    clear.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0);
    key.crc(&clear[..])
}

#[cfg(test)]
#[path = "spare_tests.rs"]
pub(crate) mod tests;
