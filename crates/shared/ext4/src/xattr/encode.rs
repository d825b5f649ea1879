//! Laying attributes out again.

use siftfs_base::{BLOCK_SIZE, BlockNr, Result, errno};

use super::{BLOCK_HEADER, END, ENTRY, INODE_HEADER, MAGIC, Xattr};
use crate::csum::crc32c_raw as crc32c;

/// Attributes distributed over the two places they may be in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// What follows the inode's known fields, all of it.
    pub inode: Vec<u8>,
    /// What goes to a block, in the block's order; empty if no block is needed.
    pub block: Vec<Xattr>,
}

/// Distributes `all` over `area` bytes in the inode and, if it must be, a block.
///
/// Attributes stay in the order given, so what was in the inode stays there. ENOSPC when not
/// everything fits.
pub fn lay_out(all: &[Xattr], area: usize) -> Result<Layout> {
    // As they come first; if that leaves too much for the block, the largest that fit the
    // inode go there.
    let mut by_size: Vec<&Xattr> = all.iter().collect();
    by_size.sort_by_key(|x| std::cmp::Reverse(x.len()));
    for order in [all.iter().collect(), by_size] {
        let (inside, mut block) = distribute(&order, area);
        block.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        if block.iter().map(Xattr::len).sum::<usize>() + BLOCK_HEADER + END <= BLOCK_SIZE {
            return Ok(Layout { inode: encode_inode(&inside, area), block });
        }
    }
    Err(errno(libc::ENOSPC))
}

/// The order in a block.
pub(super) fn sort_key(x: &Xattr) -> (u8, usize, &[u8]) {
    (x.index, x.name.len(), &x.name)
}

fn distribute(order: &[&Xattr], area: usize) -> (Vec<Xattr>, Vec<Xattr>) {
    let mut room = area.saturating_sub(INODE_HEADER + END);
    order.iter().map(|x| (*x).clone()).partition(|x| {
        let fits = x.len() <= room;
        if fits {
            room -= x.len();
        }
        fits
    })
}

fn encode_inode(inside: &[Xattr], area: usize) -> Vec<u8> {
    let mut out = vec![0; area];
    if !inside.is_empty() {
        let (header, region) = out.split_at_mut(INODE_HEADER);
        header.copy_from_slice(&MAGIC.to_le_bytes());
        // Entries in an inode carry no hash.
        write_entries(region, 0, inside, |_| 0);
    }
    out
}

/// The block `nr` with these attributes, which [`lay_out`] put in order, for one inode.
/// `seed` is the volume's where it has checksums.
pub fn encode_block(block: &[Xattr], nr: BlockNr, seed: Option<u32>) -> [u8; BLOCK_SIZE] {
    assert!(block.is_sorted_by_key(sort_key));
    let mut out = [0; BLOCK_SIZE];
    write_entries(&mut out, BLOCK_HEADER, block, entry_hash);
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[4..8].copy_from_slice(&1u32.to_le_bytes());
    out[8..12].copy_from_slice(&1u32.to_le_bytes());
    out[12..16].copy_from_slice(&block_hash(block).to_le_bytes());
    seal(&mut out, nr, seed);
    out
}

/// Changes the number of inodes that share a block.
pub(super) fn set_references(
    block: &mut [u8; BLOCK_SIZE],
    count: u32,
    nr: BlockNr,
    seed: Option<u32>,
) {
    block[4..8].copy_from_slice(&count.to_le_bytes());
    seal(block, nr, seed);
}

/// How many inodes share a block.
pub(super) fn references(block: &[u8; BLOCK_SIZE]) -> u32 {
    u32::from_le_bytes([block[4], block[5], block[6], block[7]])
}

fn seal(block: &mut [u8; BLOCK_SIZE], nr: BlockNr, seed: Option<u32>) {
    if let Some(seed) = seed {
        let csum = block_csum(block, nr, seed);
        block[16..20].copy_from_slice(&csum.to_le_bytes());
    }
}

/// Checksum of an attribute block: its number, then itself with the checksum as zero.
pub(super) fn block_csum(block: &[u8; BLOCK_SIZE], nr: BlockNr, seed: u32) -> u32 {
    let c = crc32c(seed, &nr.to_le_bytes());
    let c = crc32c(c, &block[..16]);
    crc32c(crc32c(c, &[0; 4]), &block[20..])
}

/// Writes `bytes` at `at`.
fn put(region: &mut [u8], at: usize, bytes: &[u8]) {
    let to = region.get_mut(at..at + bytes.len()).expect("attributes were laid out to fit");
    to.copy_from_slice(bytes);
}

/// Writes entries from `start` on and their values from the end of `region` downwards.
fn write_entries(region: &mut [u8], start: usize, all: &[Xattr], hash: impl Fn(&Xattr) -> u32) {
    let (mut at, mut value_at) = (start, region.len());
    for x in all {
        let size = u32::try_from(x.value.len()).expect("it fits a block");
        if size > 0 {
            value_at -= x.value_len();
            // Values are aligned from where the region ends, which is itself aligned.
            put(region, value_at, &x.value);
        }
        let offset = if size > 0 { value_at } else { 0 };
        let name_len = u8::try_from(x.name.len()).expect("names are at most 255 bytes");
        put(region, at, &[name_len, x.index]);
        put(region, at + 2, &u16::try_from(offset).expect("in a block").to_le_bytes());
        put(region, at + 8, &size.to_le_bytes());
        put(region, at + 12, &hash(x).to_le_bytes());
        put(region, at + ENTRY, &x.name);
        at += x.entry_len();
    }
    assert!(at + END <= value_at, "entries and values overlap");
}

/// Hash of name and value: each byte of the name moves the hash by 5 bits, each word of the
/// value by 16.
fn entry_hash(x: &Xattr) -> u32 {
    let name = x.name.iter().fold(0u32, |h, b| h.rotate_left(5) ^ u32::from(*b));
    x.value.chunks(4).fold(name, |h, c| {
        let mut word = [0; 4];
        word.iter_mut().zip(c).for_each(|(to, byte)| *to = *byte);
        h.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// Hash of all entries; 0 says that the block must not be shared.
fn block_hash(all: &[Xattr]) -> u32 {
    let mut hash = 0u32;
    for h in all.iter().map(entry_hash) {
        if h == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ h;
    }
    hash
}
