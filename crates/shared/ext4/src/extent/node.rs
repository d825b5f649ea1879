//! One node of an extent tree: checked when read, written with its checksum.

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun, Error, Result, corrupt};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::csum;
use crate::format::*;
use crate::fs::Layout;
use crate::inode::Inode;
use crate::store::BlockStore;

/// An entry as bytes: an extent in a leaf, an index entry above. Both begin with the logical
/// block.
pub(super) type Entry = [u8; EXTENT_ENTRY];

/// First logical block of an entry.
pub(super) fn key(entry: &Entry) -> u32 {
    U32::read_from_prefix(entry).map_or(0, |(v, _)| v.get())
}

/// First logical block of a node below the root, which has an entry.
pub(super) fn first_key(all: &[Entry]) -> u32 {
    key(all.first().expect("a node below the root has an entry"))
}

/// An index entry for a child that begins at `key`.
pub(super) fn index(key: u32, child: BlockNr) -> Entry {
    let raw = RawExtentIndex {
        ei_block: key.into(),
        ei_leaf_lo: ((child & 0xFFFF_FFFF) as u32).into(),
        ei_leaf_hi: ((child >> 32) as u16).into(),
        ei_unused: 0.into(),
    };
    let mut entry = [0; EXTENT_ENTRY];
    entry.copy_from_slice(raw.as_bytes());
    entry
}

/// Child block of an index entry.
pub(super) fn child(entry: &Entry) -> BlockNr {
    RawExtentIndex::read_from_bytes(entry)
        .map_or(0, |i| u64::from(i.ei_leaf_lo.get()) | u64::from(i.ei_leaf_hi.get()) << 32)
}

/// An extent, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub lblk: u32,
    pub len: u32,
    pub pblk: BlockNr,
    pub unwritten: bool,
}

impl Extent {
    pub fn decode(entry: &Entry) -> Self {
        let Ok(raw) = RawExtent::read_from_bytes(entry) else {
            unreachable!("an entry is as long as an extent")
        };
        let len = u32::from(raw.ee_len.get());
        let unwritten = len > MAX_WRITTEN;
        Self {
            lblk: raw.ee_block.get(),
            len: if unwritten { len - MAX_WRITTEN } else { len },
            pblk: u64::from(raw.ee_start_lo.get()) | u64::from(raw.ee_start_hi.get()) << 32,
            unwritten,
        }
    }

    pub fn encode(&self) -> Entry {
        assert!(self.len > 0 && self.len <= self.max_len(), "extent of {} blocks", self.len);
        let len = if self.unwritten { self.len + MAX_WRITTEN } else { self.len };
        let raw = RawExtent {
            ee_block: self.lblk.into(),
            ee_len: (len as u16).into(),
            ee_start_hi: ((self.pblk >> 32) as u16).into(),
            ee_start_lo: ((self.pblk & 0xFFFF_FFFF) as u32).into(),
        };
        let mut entry = [0; EXTENT_ENTRY];
        entry.copy_from_slice(raw.as_bytes());
        entry
    }

    /// Longest extent of its kind.
    pub fn max_len(&self) -> u32 {
        if self.unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN }
    }

    /// One past the last logical block (up to 2^32).
    pub fn end(&self) -> u64 {
        u64::from(self.lblk) + u64::from(self.len)
    }

    /// The part `[from, to)`, which lies inside.
    pub fn part(&self, from: u64, to: u64) -> Self {
        assert!(u64::from(self.lblk) <= from && from < to && to <= self.end(), "part of extent");
        let skip = from - u64::from(self.lblk);
        Self {
            lblk: self.lblk + skip as u32,
            len: (to - from) as u32,
            pblk: self.pblk + skip,
            unwritten: self.unwritten,
        }
    }

    /// Both as one, if they touch, are of one kind, and are not too long together.
    pub fn join(&self, next: &Self) -> Option<Self> {
        let fits = self.unwritten == next.unwritten
            && self.end() == u64::from(next.lblk)
            && self.pblk + u64::from(self.len) == next.pblk
            && self.len + next.len <= self.max_len();
        fits.then(|| Self { len: self.len + next.len, ..*self })
    }
}

/// A node's header, checked against its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub entries: usize,
    pub depth: u16,
}

fn bad(inode: &Inode, detail: impl Into<String>) -> Error {
    corrupt(format!("extent tree of inode {}", inode.ino), detail)
}

/// Checks a node's header; `max` entries must be what the place holds.
pub(super) fn header(inode: &Inode, bytes: &[u8], max: usize) -> Result<Header> {
    let Ok((h, _)) = RawExtentHeader::read_from_prefix(bytes) else {
        return Err(bad(inode, "short node"));
    };
    let (entries, eh_max) = (usize::from(h.eh_entries.get()), usize::from(h.eh_max.get()));
    let depth = h.eh_depth.get();
    if h.eh_magic.get() != EXTENT_MAGIC || eh_max != max || entries > max || depth > MAX_DEPTH {
        return Err(bad(inode, format!("header: {entries} of {eh_max} entries, depth {depth}")));
    }
    Ok(Header { entries, depth })
}

/// The entries behind a header that was checked.
pub(super) fn entries(bytes: &[u8], header: Header) -> &[Entry] {
    let body = bytes.get(EXTENT_ENTRY..).unwrap_or(&[]);
    let (entries, _) = body.as_chunks::<EXTENT_ENTRY>();
    entries.get(..header.entries).unwrap_or(entries)
}

/// Where a node lies: `None` is the root in the inode.
pub(super) type Place = Option<BlockNr>;

impl Layout {
    /// Checks the entries of a node: order, overlap, places.
    fn check_entries(&self, inode: &Inode, header: Header, all: &[Entry]) -> Result<()> {
        let mut floor = 0u64;
        for entry in all {
            let lblk = u64::from(key(entry));
            if lblk < floor {
                return Err(bad(inode, format!("entries out of order at block {lblk}")));
            }
            if header.depth > 0 {
                floor = lblk + 1;
                if !self.is_data_block(child(entry)) {
                    return Err(bad(inode, "tree block outside the data zone"));
                }
                continue;
            }
            let e = Extent::decode(entry);
            if e.len == 0 || e.end() > super::MAX_FILE_BLOCKS {
                return Err(bad(inode, format!("extent of {} blocks at {lblk}", e.len)));
            }
            floor = e.end();
            let run = BlockRun { start: e.pblk, len: u64::from(e.len) };
            self.check_run(run, || format!("extent of inode {}", inode.ino))?;
        }
        Ok(())
    }

    /// The root's header and entries, checked.
    pub(super) fn root<'a>(&self, inode: &'a Inode) -> Result<(Header, &'a [Entry])> {
        if !inode.has_extents() {
            let detail = "uses a block map, which is read only here; copy the file to change it";
            return Err(Error::Incompatible(format!("inode {} {detail}", inode.ino)));
        }
        let h = header(inode, &inode.i_block, ROOT_ENTRIES)?;
        let all = entries(&inode.i_block, h);
        if h.depth > 0 && all.is_empty() {
            return Err(bad(inode, "deep tree without entries"));
        }
        self.check_entries(inode, h, all)?;
        Ok((h, all))
    }

    /// A tree block's header and entries. `depth` is what its parent promises, `first` the
    /// logical block of the parent's entry.
    pub(super) fn node<'a>(
        &self,
        store: &'a mut dyn BlockStore,
        inode: &Inode,
        nr: BlockNr,
        depth: u16,
        first: u32,
    ) -> Result<(Header, &'a [Entry])> {
        let checked = store.verified(nr);
        if !checked {
            let block = store.read(nr)?;
            self.check_block(inode, nr, block)?;
            store.set_verified(nr);
        }
        let block = store.read(nr)?;
        let h = header(inode, block, NODE_ENTRIES)?;
        let all = entries(block, h);
        if h.depth != depth || all.first().map(key) != Some(first) {
            return Err(bad(inode, format!("block {nr} does not fit its parent's entry")));
        }
        Ok((h, all))
    }

    fn check_block(&self, inode: &Inode, nr: BlockNr, block: &[u8; BLOCK_SIZE]) -> Result<()> {
        let seed = self.inode_seed(inode.ino, inode.generation);
        let stored = U32::read_from_bytes(&block[EXTENT_TAIL..]).map_or(0, U32::get);
        if stored != csum::extent_csum(seed, block) {
            return Err(bad(inode, format!("checksum of block {nr}")));
        }
        let h = header(inode, block, NODE_ENTRIES)?;
        self.check_entries(inode, h, entries(block, h))
    }

    /// Writes a node's entries; the rest of the block becomes zero.
    pub(super) fn put_node(
        &self,
        store: &mut dyn BlockStore,
        inode: &mut Inode,
        place: Place,
        depth: u16,
        all: &[Entry],
        new: bool,
    ) -> Result<()> {
        let max = if place.is_some() { NODE_ENTRIES } else { ROOT_ENTRIES };
        assert!(all.len() <= max, "{} entries in a node of {max}", all.len());
        let h = RawExtentHeader {
            eh_magic: EXTENT_MAGIC.into(),
            eh_entries: (all.len() as u16).into(),
            eh_max: (max as u16).into(),
            eh_depth: depth.into(),
            eh_generation: 0.into(),
        };
        let Some(nr) = place else {
            fill(&mut inode.i_block, &h, all);
            return Ok(());
        };
        let seed = self.inode_seed(inode.ino, inode.generation);
        let block = if new { store.create(nr)? } else { store.modify(nr)? };
        fill(&mut block[..EXTENT_TAIL], &h, all);
        let sum = csum::extent_csum(seed, block);
        block[EXTENT_TAIL..].copy_from_slice(&sum.to_le_bytes());
        store.set_verified(nr);
        Ok(())
    }
}

fn fill(bytes: &mut [u8], h: &RawExtentHeader, all: &[Entry]) {
    let (header, rest) = bytes.split_at_mut(EXTENT_ENTRY);
    header.copy_from_slice(h.as_bytes());
    let all = all.as_flattened();
    let (used, unused) = rest.split_at_mut(all.len());
    used.copy_from_slice(all);
    unused.fill(0);
}
