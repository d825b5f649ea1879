//! ext4 structures and header blocks changed by hand, with their checksums made right again: what
//! only a check of the content can refuse. Written from the format's description.

use super::layout_of;
use siftfs_crash::VolumeKind;
use siftfs_device::Image;

pub const BLOCK: u64 = 4096;

/// A clean volume being spoilt.
pub struct Disk {
    pub image: Image,
}

/// ext4's crc32c: neither the seed nor the result is inverted.
fn crc(seed: u32, data: &[u8]) -> u32 {
    !siftfs_base::crc32c_append(!seed, data)
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

impl Disk {
    /// Block `nr` of the area.
    pub fn block(&self, nr: u64) -> Vec<u8> {
        self.image.bytes(nr * BLOCK, BLOCK as usize)
    }

    pub fn set_block(&mut self, nr: u64, bytes: &[u8]) {
        self.image.write(nr * BLOCK, bytes);
    }

    /// Where inode `ino` lies; the test volumes have one group.
    fn inode_at(&self, ino: u32) -> u64 {
        let table = u32_at(&self.block(1), 8);
        u64::from(table) * BLOCK + u64::from(ino - 1) * 256
    }

    pub fn inode(&self, ino: u32) -> Vec<u8> {
        self.image.bytes(self.inode_at(ino), 256)
    }

    /// The seed of everything that belongs to inode `ino`.
    fn seed(&self, ino: u32) -> u32 {
        let uuid = self.image.bytes(1024 + 0x68, 16);
        let generation = u32_at(&self.inode(ino), 0x64);
        crc(crc(crc(!0, &uuid), &ino.to_le_bytes()), &generation.to_le_bytes())
    }

    /// Puts inode `ino` back, with its checksum.
    pub fn set_inode(&mut self, ino: u32, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        put(&mut bytes, 0x7c, &[0; 2]);
        put(&mut bytes, 0x82, &[0; 2]);
        let sum = crc(self.seed(ino), &bytes).to_le_bytes();
        put(&mut bytes, 0x7c, &sum[..2]);
        put(&mut bytes, 0x82, &sum[2..]);
        self.image.write(self.inode_at(ino), &bytes);
    }

    /// Puts a block of `ino`'s extent tree in place, with its checksum.
    pub fn set_extent_block(&mut self, ino: u32, nr: u64, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let sum = crc(self.seed(ino), &bytes[..4092]);
        put(&mut bytes, 4092, &sum.to_le_bytes());
        self.set_block(nr, &bytes);
    }

    /// Puts a block of directory entries in place, with its checksum.
    pub fn set_entry_block(&mut self, ino: u32, nr: u64, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let sum = crc(self.seed(ino), &bytes[..4084]);
        put(&mut bytes, 4092, &sum.to_le_bytes());
        self.set_block(nr, &bytes);
    }

    /// Puts a directory's index block, whose header of slots is at `header`, in place, with its
    /// checksum.
    pub fn set_index_block(&mut self, ino: u32, nr: u64, header: usize, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let (limit, count) = (u16_at(&bytes, header), u16_at(&bytes, header + 2));
        let tail = header + usize::from(limit) * 8;
        let used = header + usize::from(count) * 8;
        put(&mut bytes, tail, &[0; 8]);
        let sum = crc(crc(self.seed(ino), &bytes[..used]), &[0; 8]);
        put(&mut bytes, tail + 4, &sum.to_le_bytes());
        self.set_block(nr, &bytes);
    }

    /// Where block `logical` of `ino` lies; its extents are in the inode.
    pub fn mapped(&self, ino: u32, logical: u32) -> u64 {
        let inode = self.inode(ino);
        let root = &inode[0x28..0x64];
        assert_eq!((u16_at(root, 0), u16_at(root, 6)), (0xf30a, 0), "extents in the inode");
        for i in 0..usize::from(u16_at(root, 2)) {
            let at = 12 + 12 * i;
            let (first, len) = (u32_at(root, at), u32::from(u16_at(root, at + 4)));
            if (first..first + len).contains(&logical) {
                return u64::from(u32_at(root, at + 8) + logical - first);
            }
        }
        panic!("inode {ino} has no block {logical}");
    }

    /// Block of child `i` of the extent tree in inode `ino`, which has one level.
    pub fn extent_child(&self, ino: u32, i: usize) -> u64 {
        let inode = self.inode(ino);
        assert_eq!(u16_at(&inode, 0x28 + 6), 1, "one level of extent blocks");
        u64::from(u32_at(&inode, 0x28 + 12 + 12 * i + 4))
    }
}

/// The checksum of the log's format over the first 4092 bytes of a header block.
fn header_sum(body: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [1u64, 2, 3, 4];
    for stripe in body.chunks(32) {
        let mut whole = [0; 32];
        put(&mut whole, 0, stripe);
        for (lane, word) in lanes.iter_mut().zip(whole.chunks_exact(8)) {
            let word = u64::from(u32_at(word, 4)) << 32 | u64::from(u32_at(word, 0));
            *lane = (*lane ^ word).wrapping_mul(FACTOR).rotate_left(29);
        }
    }
    let step = |h: u64, lane: &u64| (h ^ lane).wrapping_mul(FACTOR).rotate_left(29);
    siftfs_base::crc32c(body) ^ (lanes.iter().fold(0, step) >> 32) as u32
}

/// `image` with the bytes at `at` of block `block` of header copy `copy` changed, checksum made
/// right.
pub fn with_header(image: &Image, copy: usize, block: u64, at: usize, bytes: &[u8]) -> Image {
    let layout = layout_of(VolumeKind::SMALL);
    let start = [layout.header.start, layout.tail.start][copy] + block * BLOCK;
    with_header_at(image, start, at, bytes)
}

/// The same of the header's block that begins at byte `start`.
pub fn with_header_at(image: &Image, start: u64, at: usize, bytes: &[u8]) -> Image {
    let mut found = image.bytes(start, BLOCK as usize);
    let before = header_sum(&found[..4092]).to_le_bytes();
    assert_eq!(found[4092..], before, "the format's checksum is computed rightly here");
    put(&mut found, at, bytes);
    let sum = header_sum(&found[..4092]);
    put(&mut found, 4092, &sum.to_le_bytes());
    let mut image = image.clone();
    image.write(start, &found);
    image
}

/// The superblock with its marker set or cleared, checksum made right.
pub fn with_marker(image: &Image, on: bool) -> Image {
    let mut image = image.clone();
    let mut sb = image.bytes(1024, 1024);
    sb[0x63] = if on { sb[0x63] | 0x20 } else { sb[0x63] & !0x20 };
    let sum = crc(!0, &sb[..1020]);
    put(&mut sb, 1020, &sum.to_le_bytes());
    image.write(1024, &sb);
    image
}
