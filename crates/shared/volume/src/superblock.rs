//! As much of ext4's superblock as finding and trusting the log needs.

use siftfs_log::{AreaLink, EXT4_MARKER};

/// Byte offset of the primary superblock in the area.
pub(crate) const SUPERBLOCK_OFFSET: u64 = 1024;
/// Bytes of a superblock.
pub(crate) const SUPERBLOCK_LEN: usize = 1024;

const INCOMPAT_64BIT: u32 = 0x80;
const RO_COMPAT_METADATA_CSUM: u32 = 0x400;

/// What the area says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AreaSuper {
    /// Length of the file system in bytes.
    pub len: u64,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// Is our incompatible-feature bit set (rule R15)?
    pub marker: bool,
    /// The log elsewhere that it names (rule R16).
    pub link: Option<AreaLink>,
    /// Does its checksum hold? Every volume's superblock carries one: false where it has none.
    pub checksum_ok: bool,
    /// crc32c of all bytes but the checksum's own, as `HostRecord::area_crc` keeps it. (Over a
    /// message and its checksum, a CRC is the same for every message.)
    pub crc: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some([a, b, c, d]) => u32::from_le_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}

impl AreaSuper {
    /// Reads a superblock of 1024 bytes; `None` if it is not one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != SUPERBLOCK_LEN || bytes.get(56..58) != Some(&[0x53, 0xef]) {
            return None;
        }
        let incompat = u32_at(bytes, 96);
        let high = if incompat & INCOMPAT_64BIT != 0 { u32_at(bytes, 0x150) } else { 0 };
        let blocks = u64::from(high) << 32 | u64::from(u32_at(bytes, 4));
        let block_size = 1024u64.checked_shl(u32_at(bytes, 24)).filter(|s| *s <= 65536)?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(bytes.get(104..120)?);
        // ext4 keeps the checksum without the final inversion of crc32c.
        let crc = siftfs_base::crc32c(bytes.get(..1020)?);
        let checksummed = u32_at(bytes, 100) & RO_COMPAT_METADATA_CSUM != 0;
        Some(Self {
            len: blocks.checked_mul(block_size)?,
            uuid,
            marker: incompat & EXT4_MARKER != 0,
            link: AreaLink::of_super(bytes),
            checksum_ok: checksummed && !crc == u32_at(bytes, 1020),
            crc,
        })
    }
}
