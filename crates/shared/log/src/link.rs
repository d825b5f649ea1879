//! The link: what the superblock of a volume says of a log that lies elsewhere (rule R16).

use siftfs_base::Epoch;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offset of the link in ext4's superblock: the end of its reserved bytes, before the
/// checksum.
pub const LINK_OFFSET: usize = 0x3d0;
/// Bytes of the link; all zero where there is none.
pub const LINK_LEN: usize = 44;

const LINK_MAGIC: [u8; 8] = *b"SIFTlnk\x01";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLink {
    magic: [u8; 8],
    volume: [u8; 16],
    epoch: U64,
    reserved: [u8; 12],
}
const _: () = assert!(size_of::<RawLink>() == LINK_LEN);
const _: () = assert!(LINK_OFFSET + LINK_LEN == 1020);

/// Which log belongs to an area, and how new that log is at least.
///
/// It has no checksum of its own: the superblock's covers it, and it lies within one sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AreaLink {
    /// [`crate::StaticHeader::volume`] of the log.
    pub volume: [u8; 16],
    /// Epoch of the newest mount that set the marker.
    pub epoch: Epoch,
}

impl AreaLink {
    /// The bytes in the superblock.
    pub fn encode(&self) -> [u8; LINK_LEN] {
        let mut raw = RawLink::new_zeroed();
        raw.magic = LINK_MAGIC;
        raw.volume = self.volume;
        raw.epoch = self.epoch.0.into();
        let mut bytes = [0; LINK_LEN];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The link in these bytes; `None` if there is none.
    pub fn decode(bytes: &[u8; LINK_LEN]) -> Option<Self> {
        let raw = RawLink::ref_from_bytes(bytes).ok().filter(|r| r.magic == LINK_MAGIC)?;
        Some(Self { volume: raw.volume, epoch: Epoch(raw.epoch.get()) })
    }

    /// The link in a superblock of 1024 bytes.
    pub fn of_super(superblock: &[u8]) -> Option<Self> {
        let bytes = superblock.get(LINK_OFFSET..LINK_OFFSET + LINK_LEN)?;
        Self::decode(bytes.try_into().ok()?)
    }
}

/// A UUID as people write it.
pub fn show_uuid(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&i) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
