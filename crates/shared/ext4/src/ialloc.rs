//! Inode allocation, and quarantine of freed numbers (rule R5).

use siftfs_base::{BLOCK_SIZE, InodeNr, Result, corrupt, errno};

use crate::alloc::Image;
use crate::bits::{self, Bitmap};
use crate::csum;
use crate::format::*;
use crate::fs::{Fs, Layout};
use crate::group;
use crate::store::BlockStore;

/// The root directory.
pub const ROOT_INO: InodeNr = 2;
/// Groups checked to find a home for a directory.
const DIR_GROUPS_TRIED: usize = 32;

impl Fs {
    /// Allocates an inode number. A file goes to its directory's group or the nearest behind it
    /// with a free inode; a directory of the root to a roomy group with few directories; any
    /// other directory to its parent's group unless that is fuller than the average.
    ///
    /// The inode's record is not written: the caller makes it with [`Fs::new_inode`], under a
    /// generation that no earlier inode of that number had (rule R5), and writes it in the
    /// same transaction.
    /// Errors: ENOSPC.
    pub fn alloc_inode(
        &mut self,
        store: &mut dyn BlockStore,
        parent: InodeNr,
        is_dir: bool,
    ) -> Result<InodeNr> {
        let (home, _) = self.layout.geo.locate_inode(parent)?;
        let first = if is_dir { self.dir_group(parent, home) } else { home };
        loop {
            let mut after = self.with_inodes.range(first..).chain(self.with_inodes.range(..first));
            let Some(group) = after.next().copied() else {
                return Err(errno(libc::ENOSPC));
            };
            match self.find_inode(store, group)? {
                Some(index) => {
                    let ino = group * self.layout.geo.inodes_per_group + index + 1;
                    self.claim_inode(store, group, index, is_dir)?;
                    return Ok(ino);
                }
                None => {
                    // Only reserved numbers are free here (a damaged first group), or such as are
                    // withheld.
                    self.with_inodes.remove(&group);
                }
            }
        }
    }

    /// Allocates this very number (recovery). Errors: `Corrupt` if it is in use, reserved or
    /// out of range; EBUSY if it is in quarantine.
    pub fn alloc_inode_at(
        &mut self,
        store: &mut dyn BlockStore,
        ino: InodeNr,
        is_dir: bool,
    ) -> Result<()> {
        let (group, index) = self.layout.locate_plain(ino)?;
        if self.held_inos.contains(&ino) {
            return Err(errno(libc::EBUSY));
        }
        if self.inode_in_use(store, ino)? {
            return Err(corrupt(format!("inode {ino}"), "to be allocated, but in use"));
        }
        self.claim_inode(store, group, index, is_dir)
    }

    /// Is it the root's number, or one that a file has?
    pub fn is_in_use(&mut self, store: &mut dyn BlockStore, ino: InodeNr) -> Result<bool> {
        let plain = ino == ROOT_INO || self.layout.locate_plain(ino).is_ok();
        Ok(plain && self.inode_in_use(store, ino)?)
    }

    /// Would [`Fs::alloc_inode_at`] allocate this number?
    pub fn may_alloc_inode_at(&mut self, store: &mut dyn BlockStore, ino: InodeNr) -> Result<bool> {
        if self.layout.locate_plain(ino).is_err() || self.held_inos.contains(&ino) {
            return Ok(false);
        }
        Ok(!self.inode_in_use(store, ino)?)
    }

    /// Frees an inode number: bitmap and counts now, allocation again after
    /// [`Fs::release_inode`]. The caller writes the record with no links and a deletion time
    /// ([`crate::Inode::retire`]) and takes it off the orphan list first. Errors: `Corrupt` if it
    /// is free, reserved or out of range.
    pub fn free_inode(
        &mut self,
        store: &mut dyn BlockStore,
        ino: InodeNr,
        is_dir: bool,
    ) -> Result<()> {
        let (group, index) = self.layout.locate_plain(ino)?;
        assert!(!self.is_orphan(ino), "inode {ino} is freed while on the orphan list");
        if !self.inode_in_use(store, ino)? {
            return Err(corrupt(format!("inode {ino}"), "to be freed, but not in use"));
        }
        let g = group::at_mut(&mut self.groups, group);
        if is_dir && g.used_dirs == 0 {
            let what = format!("group descriptor {group}");
            return Err(corrupt(what, "a directory is freed where none is counted"));
        }
        let map = store.modify(g.inode_bitmap)?;
        bits::fill(map, index, index + 1, false);
        g.inode_csum =
            csum::bitmap_csum(self.layout.geo.seed, map, self.layout.geo.inodes_per_group);
        g.free_inodes += 1;
        g.used_dirs -= u32::from(is_dir);
        g.held_inodes += 1;
        self.free_inodes += 1;
        assert!(self.held_inos.insert(ino), "a used inode was in quarantine");
        g.store(&self.layout.geo, group, store)
    }

    /// Ends the quarantine of a number, if it is in it.
    pub fn release_inode(&mut self, ino: InodeNr) {
        if !self.held_inos.remove(&ino) {
            return;
        }
        let Ok((group, index)) = self.layout.geo.locate_inode(ino) else {
            unreachable!("only checked numbers are in quarantine")
        };
        let g = group::at_mut(&mut self.groups, group);
        g.held_inodes -= 1;
        g.inode_hint = g.inode_hint.min(index);
        self.with_inodes.insert(group);
    }

    /// [`Fs::alloc_inode`] does not choose this number, also not when it is free at last:
    /// somebody takes it for the inode that had it before.
    pub fn withhold_inode(&mut self, ino: InodeNr) {
        if self.layout.locate_plain(ino).is_ok() {
            self.withheld.insert(ino);
        }
    }

    /// It may choose the number again.
    pub fn end_withholding(&mut self, ino: InodeNr) {
        if self.withheld.remove(&ino)
            && let Ok((group, index)) = self.layout.locate_plain(ino)
        {
            let g = group::at_mut(&mut self.groups, group);
            g.inode_hint = g.inode_hint.min(index);
            if g.inodes() > 0 {
                self.with_inodes.insert(group);
            }
        }
    }

    /// Is the number in use, by the bitmap?
    pub fn inode_in_use(&mut self, store: &mut dyn BlockStore, ino: InodeNr) -> Result<bool> {
        let (group, index) = self.layout.geo.locate_inode(ino)?;
        if group::at(&self.groups, group).has(BG_INODE_UNINIT) {
            return Ok(false);
        }
        let image = self.inode_bitmap(store, group)?;
        Ok(bits::test(image.get(store)?, index))
    }

    /// First allocatable index of a group.
    fn find_inode(&mut self, store: &mut dyn BlockStore, group: u32) -> Result<Option<u32>> {
        let ipg = self.layout.geo.inodes_per_group;
        let image = self.inode_bitmap(store, group)?;
        let map = image.get(store)?;
        let reserved = if group == 0 { self.layout.geo.first_ino - 1 } else { 0 };
        let mut index = group::at(&self.groups, group).inode_hint.max(reserved);
        loop {
            index = bits::next_zero(map, index, ipg);
            if index >= ipg {
                return Ok(None);
            }
            let ino = group * ipg + index + 1;
            if !self.held_inos.contains(&ino) && !self.withheld.contains(&ino) {
                group::at_mut(&mut self.groups, group).inode_hint = index;
                return Ok(Some(index));
            }
            index += 1;
        }
    }

    fn claim_inode(
        &mut self,
        store: &mut dyn BlockStore,
        group: u32,
        index: u32,
        is_dir: bool,
    ) -> Result<()> {
        let ipg = self.layout.geo.inodes_per_group;
        self.zero_skipped_records(store, group, index)?;
        let g = group::at_mut(&mut self.groups, group);
        let map = if g.has(BG_INODE_UNINIT) {
            let map = store.create(g.inode_bitmap)?;
            bits::fill(map, ipg, BLOCK_SIZE as u32 * 8, true);
            g.flags &= !BG_INODE_UNINIT;
            map
        } else {
            store.modify(g.inode_bitmap)?
        };
        assert!(!bits::test(map, index), "a claimed inode is in use");
        bits::fill(map, index, index + 1, true);
        g.inode_csum = csum::bitmap_csum(self.layout.geo.seed, map, ipg);
        g.free_inodes -= 1;
        g.used_dirs += u32::from(is_dir);
        g.itable_unused = g.itable_unused.min(ipg - (index + 1));
        self.free_inodes -= 1;
        if g.inodes() == 0 {
            self.with_inodes.remove(&group);
        }
        g.store(&self.layout.geo, group, store)?;
        store.set_verified(g.inode_bitmap);
        Ok(())
    }

    /// Records between the used part of the table and `index` become part of it: where the
    /// table was not zeroed when it was made, they are zeroed now.
    fn zero_skipped_records(
        &mut self,
        store: &mut dyn BlockStore,
        group: u32,
        index: u32,
    ) -> Result<()> {
        let g = group::at(&self.groups, group);
        let used = self.layout.geo.inodes_per_group - g.itable_unused;
        if g.has(BG_INODE_ZEROED) || index < used {
            return Ok(());
        }
        let size = self.layout.geo.inode_size;
        let per_block = (BLOCK_SIZE / size) as u32;
        for i in used..=index {
            let block = store.modify(g.inode_table + u64::from(i / per_block))?;
            let at = (i % per_block) as usize * size;
            block.get_mut(at..at + size).expect("whole records fill a block").fill(0);
        }
        Ok(())
    }

    /// The group's inode bitmap, checked; computed where it was never written.
    fn inode_bitmap(&self, store: &mut dyn BlockStore, group: u32) -> Result<Image> {
        let g = group::at(&self.groups, group);
        if g.has(BG_INODE_UNINIT) {
            return Ok(Image::Computed(Box::new([0; BLOCK_SIZE])));
        }
        if !store.verified(g.inode_bitmap) {
            let map = store.read(g.inode_bitmap)?;
            self.check_inode_bitmap(group, map)?;
            store.set_verified(g.inode_bitmap);
        }
        Ok(Image::Stored(g.inode_bitmap))
    }

    fn check_inode_bitmap(&self, group: u32, map: &Bitmap) -> Result<()> {
        let g = group::at(&self.groups, group);
        let ipg = self.layout.geo.inodes_per_group;
        let bad = |detail: &str| Err(corrupt(format!("inode bitmap of group {group}"), detail));
        let mask = if self.layout.geo.desc_size == 32 { 0xFFFF } else { !0 };
        if csum::bitmap_csum(self.layout.geo.seed, map, ipg) & mask != g.inode_csum & mask {
            return bad("checksum");
        }
        if bits::count_zeros(map, ipg) != g.free_inodes {
            return bad("free inodes differ from the descriptor");
        }
        if bits::next_one(map, ipg - g.itable_unused, ipg) != ipg {
            return bad("an inode is in use in the unused part of the table");
        }
        if group == 0
            && bits::next_zero(map, 0, self.layout.geo.first_ino - 1)
                != self.layout.geo.first_ino - 1
        {
            return bad("a reserved inode is free");
        }
        Ok(())
    }

    /// Where a new directory goes.
    fn dir_group(&mut self, parent: InodeNr, home: u32) -> u32 {
        let groups = u64::from(self.layout.geo.group_count);
        let roomy = |nr: u32| {
            let g = group::at(&self.groups, nr);
            u64::from(g.inodes()) >= self.available_inodes() / groups / 2
                && u64::from(g.blocks()) >= self.available_blocks() / groups / 2
        };
        if parent != ROOT_INO {
            let near = self.with_inodes.range(home..).chain(self.with_inodes.range(..home));
            return near.take(DIR_GROUPS_TRIED).copied().find(|g| roomy(*g)).unwrap_or(home);
        }
        let from = self.dir_cursor % self.layout.geo.group_count;
        let spread = self.with_inodes.range(from..).chain(self.with_inodes.range(..from));
        let best = spread
            .take(DIR_GROUPS_TRIED)
            .copied()
            .min_by_key(|nr| (!roomy(*nr), group::at(&self.groups, *nr).used_dirs))
            .unwrap_or(home);
        self.dir_cursor = best.wrapping_add(1);
        best
    }
}

impl Layout {
    /// A number that may be allocated and freed: in range and not reserved.
    fn locate_plain(&self, ino: InodeNr) -> Result<(u32, u32)> {
        if ino < self.geo.first_ino {
            return Err(corrupt(format!("inode number {ino}"), "reserved"));
        }
        self.geo.locate_inode(ino)
    }
}

#[cfg(test)]
#[path = "ialloc_tests.rs"]
mod tests;
