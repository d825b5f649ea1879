//! Inode records in the inode tables.

use siftfs_base::{BLOCK_SIZE, BlockNr, BlockRun, InodeNr, Result, Timestamp, corrupt};
use zerocopy::FromBytes;

use crate::csum;
use crate::format::*;
use crate::fs::Fs;
use crate::group;
use crate::inode::Inode;
use crate::store::BlockStore;

/// Flags of inodes whose data this code must not interpret.
const REFUSED_FLAGS: u32 = FL_ENCRYPT | FL_INLINE_DATA | FL_EA_INODE;

/// Why a record lies within its block.
const WHOLE: &str = "whole records fill a block";

/// Writes `bytes` at `at`, within a record or a block of them.
fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into.get_mut(at..at + bytes.len()).expect(WHOLE).copy_from_slice(bytes);
}

impl Fs {
    /// (block, byte offset) of a record.
    pub(crate) fn inode_place(&self, ino: InodeNr) -> Result<(BlockNr, usize)> {
        let (group, index) = self.layout.geo.locate_inode(ino)?;
        let per_block = (BLOCK_SIZE / self.layout.geo.inode_size) as u32;
        let table = group::at(&self.groups, group).inode_table;
        let at = (index % per_block) as usize * self.layout.geo.inode_size;
        Ok((table + u64::from(index / per_block), at))
    }

    /// Reads and checks an inode. Whether its number is in use is [`Fs::inode_in_use`]'s to say.
    ///
    /// Errors: `Corrupt` for a bad checksum (a record that was never written has none) or
    /// impossible fields.
    pub fn read_inode(&self, store: &mut dyn BlockStore, ino: InodeNr) -> Result<Inode> {
        let (block, at) = self.inode_place(ino)?;
        let (group, _) = self.layout.geo.locate_inode(ino)?;
        let start = group::at(&self.groups, group).inode_table;
        let table = BlockRun { start, len: self.layout.geo.table_blocks() };
        let raw = store.read_ahead(block, table)?;
        let raw = raw.get(at..at + self.layout.geo.inode_size).expect(WHOLE);
        let bad = |detail: &str| corrupt(format!("inode {ino}"), detail);
        let (known, _) = RawInode::ref_from_prefix(raw).map_err(|_| bad("short record"))?;
        let has_hi = known.i_extra_isize.get() >= 4;
        let have = u32::from(known.i_checksum_lo.get())
            | if has_hi { u32::from(known.i_checksum_hi.get()) << 16 } else { 0 };
        if have
            != csum::inode_csum(self.layout.geo.seed, ino, known.i_generation.get(), raw, has_hi)
        {
            return Err(bad("checksum"));
        }
        let mut inode = Inode::parse(ino, raw)?;
        if self.is_orphan(ino) {
            inode.dtime = 0; // it holds the list's link, which is not the caller's to keep
        }
        if inode.flags & REFUSED_FLAGS != 0 {
            return Err(bad("encrypted or inline data, which the volume's features exclude"));
        }
        if inode.file_acl != 0 && !self.layout.is_data_block(inode.file_acl) {
            return Err(bad("extended attribute block outside the data zone"));
        }
        Ok(inode)
    }

    /// Writes an inode with its checksum. Fields this code does not know stay as they were read.
    pub fn write_inode(&self, store: &mut dyn BlockStore, inode: &Inode) -> Result<()> {
        let (block, at) = self.inode_place(inode.ino)?;
        let mut raw = inode.encode();
        assert_eq!(raw.len(), self.layout.geo.inode_size, "a record of another volume");
        if let Some(next) = self.orphan_next(inode.ino) {
            put(&mut raw, I_DTIME, &next.to_le_bytes());
        }
        let has_hi = inode.extra_isize() >= 4;
        let sum = csum::inode_csum(self.layout.geo.seed, inode.ino, inode.generation, &raw, has_hi);
        let [a, b, c, d] = sum.to_le_bytes();
        put(&mut raw, I_CHECKSUM_LO, &[a, b]);
        if has_hi {
            put(&mut raw, I_CHECKSUM_HI, &[c, d]);
        }
        put(store.modify(block)?, at, &raw);
        Ok(())
    }

    /// A fresh inode in memory for a number from [`Fs::alloc_inode`]: no links, no data, all
    /// times `now`; regular files and directories get an empty extent root.
    pub fn new_inode(&self, ino: InodeNr, generation: u32, mode: u16, now: Timestamp) -> Inode {
        let want = self.superblock.super_block().s_want_extra_isize.get();
        let room = (self.layout.geo.inode_size - INODE_BASE) as u16;
        let extra = want.clamp(INODE_EXTRA as u16, room) & !3;
        let mut inode = Inode::fresh(ino, mode, now, self.layout.geo.inode_size, extra);
        inode.generation = generation;
        inode
    }
}
