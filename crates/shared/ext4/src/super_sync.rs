//! Keeping the superblock and its copies current.

use siftfs_base::{InodeNr, Result, Timestamp, corrupt};

use crate::csum;
use crate::format::*;
use crate::fs::{Fs, Super};
use crate::profile::{self, INCOMPAT_SIFTFS};
use crate::store::BlockStore;

/// Checks magic and checksum of a superblock or one of its copies.
pub fn check_super(bytes: &[u8; SUPER_SIZE]) -> Result<()> {
    if super_ref(bytes).s_magic.get() != SUPER_MAGIC {
        return Err(corrupt("superblock", "magic"));
    }
    if !csum::super_csum_ok(bytes) {
        return Err(corrupt("superblock", "checksum"));
    }
    Ok(())
}

/// Sets or clears the marker of rule R15 in a superblock or one of its copies, and sets its
/// checksum. The caller has checked the bytes ([`check_super`]) or knows them.
pub fn set_marker(bytes: &mut [u8; SUPER_SIZE], on: bool) {
    let sb = super_mut(bytes);
    let old = sb.s_feature_incompat.get();
    let new = if on { old | INCOMPAT_SIFTFS } else { old & !INCOMPAT_SIFTFS };
    sb.s_feature_incompat = new.into();
    csum::set_super_csum(bytes);
}

/// Is the marker of rule R15 set in these bytes?
pub fn has_marker(bytes: &[u8; SUPER_SIZE]) -> bool {
    super_ref(bytes).s_feature_incompat.get() & INCOMPAT_SIFTFS != 0
}

/// Our own bytes in a superblock or one of its copies; the ext4 layer gives them no meaning.
pub fn own_bytes(bytes: &[u8; SUPER_SIZE]) -> [u8; OWN_LEN] {
    super_ref(bytes).s_siftfs
}

/// Replaces our own bytes and sets the checksum; the caller has checked the rest ([`check_super`]).
pub fn set_own_bytes(bytes: &mut [u8; SUPER_SIZE], own: &[u8; OWN_LEN]) {
    super_mut(bytes).s_siftfs = *own;
    csum::set_super_csum(bytes);
}

/// The file system's UUID in these bytes.
pub fn super_uuid(bytes: &[u8; SUPER_SIZE]) -> [u8; 16] {
    super_ref(bytes).s_uuid
}

/// The volume's size in blocks, as these bytes have it.
pub fn super_block_count(bytes: &[u8; SUPER_SIZE]) -> u64 {
    let sb = super_ref(bytes);
    let wide = sb.s_feature_incompat.get() & profile::INCOMPAT_64BIT != 0;
    let hi = if wide { u64::from(sb.s_blocks_count_hi.get()) << 32 } else { 0 };
    u64::from(sb.s_blocks_count_lo.get()) | hi
}

/// (low 32 bits, high 8 bits) of a time in the superblock.
fn split_time(t: Timestamp) -> (u32, u8) {
    let sec = t.sec.clamp(0, (1 << 40) - 1);
    ((sec & 0xFFFF_FFFF) as u32, (sec >> 32) as u8)
}

impl Super {
    fn change_super(&mut self, change: impl FnOnce(&mut Superblock)) {
        change(super_mut(&mut self.sb));
        self.sb_dirty = true;
    }

    fn stored_counts(&self) -> (u64, u32) {
        let sb = self.super_block();
        let hi = u64::from(sb.s_free_blocks_count_hi.get()) << 32;
        let lo = u64::from(sb.s_free_blocks_count_lo.get());
        (lo | hi, sb.s_free_inodes_count.get())
    }

    /// Is the marker of rule R15 set in the image?
    pub fn marker(&self) -> bool {
        has_marker(&self.sb)
    }

    /// Sets or clears the marker in the image, so that every later [`Fs::sync_super`] and image
    /// has it. The copies on storage are the caller's to write, flushed, in rule R15's order.
    pub fn set_marker(&mut self, on: bool) {
        if self.marker() != on {
            set_marker(&mut self.sb, on);
            self.sb_dirty = true;
        }
    }

    /// Our own bytes in the image.
    pub fn own_bytes(&self) -> [u8; OWN_LEN] {
        own_bytes(&self.sb)
    }

    /// Replaces our own bytes in the image; the copies on storage are the caller's to write.
    pub fn set_own_bytes(&mut self, own: &[u8; OWN_LEN]) {
        if self.own_bytes() != *own {
            set_own_bytes(&mut self.sb, own);
            self.sb_dirty = true;
        }
    }

    /// Was the volume unmounted cleanly, without known errors, orphans or (excluded by the
    /// profile) an unreplayed journal?
    pub fn is_clean(&self) -> bool {
        self.unclean().is_none()
    }

    /// Why [`Super::is_clean`](crate::Super::is_clean) is false, and what to do; completes "the
    /// file system ...".
    pub fn unclean(&self) -> Option<&'static str> {
        let sb = self.super_block();
        let state = sb.s_state.get();
        if state & STATE_ERROR != 0 {
            Some("has noted errors: run e2fsck -f on it")
        } else if state & STATE_VALID == 0 {
            Some("was not unmounted cleanly by whoever used it last: run e2fsck on it")
        } else if sb.s_last_orphan.get() != 0 {
            Some("holds deleted files that are still to be freed: mount it once, or run e2fsck")
        } else {
            None
        }
    }

    /// The head of the orphan list, or 0.
    pub fn last_orphan(&self) -> InodeNr {
        self.super_block().s_last_orphan.get()
    }

    /// Sets the head of the orphan list in the image. [`Fs::orphan_add`] and
    /// [`Fs::orphan_remove`] do it themselves.
    pub fn set_last_orphan(&mut self, ino: InodeNr) {
        if self.last_orphan() != ino {
            self.change_super(|sb| sb.s_last_orphan = ino.into());
        }
    }

    /// Notes a mount at `now`: mount time, write time, mount count.
    pub fn set_mount_time(&mut self, now: Timestamp) {
        let (lo, hi) = split_time(now);
        self.change_super(|sb| {
            sb.s_mtime = lo.into();
            sb.s_mtime_hi = hi;
            sb.s_mnt_count = sb.s_mnt_count.get().saturating_add(1).into();
        });
        self.set_write_time(now);
    }

    /// The time of the last write, in seconds.
    pub fn write_time(&self) -> i64 {
        let sb = self.super_block();
        i64::from(sb.s_wtime.get()) | i64::from(sb.s_wtime_hi) << 32
    }

    /// Notes a write at `now`.
    pub fn set_write_time(&mut self, now: Timestamp) {
        let (lo, hi) = split_time(now);
        self.change_super(|sb| {
            sb.s_wtime = lo.into();
            sb.s_wtime_hi = hi;
        });
    }
}

impl Fs {
    fn counts(&self) -> (u64, u32) {
        let inodes = u32::try_from(self.free_inodes).unwrap_or(u32::MAX);
        (self.free_blocks, inodes)
    }

    fn update_counts(&mut self) {
        if self.counts() == self.superblock.stored_counts() {
            return;
        }
        let (blocks, inodes) = self.counts();
        self.superblock.change_super(|sb| {
            sb.s_free_blocks_count_lo = ((blocks & 0xFFFF_FFFF) as u32).into();
            sb.s_free_blocks_count_hi = ((blocks >> 32) as u32).into();
            sb.s_free_inodes_count = inodes.into();
        });
    }

    /// Writes the superblock with the present free counts to block 0, if anything in it changed.
    /// Called when a transaction is assembled, before its images are taken.
    pub fn sync_super(&mut self, store: &mut dyn BlockStore) -> Result<()> {
        self.update_counts();
        if !self.superblock.sb_dirty {
            return Ok(());
        }
        csum::set_super_csum(&mut self.superblock.sb);
        let block = store.modify(0)?;
        block[SUPER_OFFSET..SUPER_OFFSET + SUPER_SIZE].copy_from_slice(&self.superblock.sb[..]);
        self.superblock.sb_dirty = false;
        Ok(())
    }

    /// The primary superblock as [`Fs::sync_super`] would write it, checksum included.
    pub fn super_image(&mut self) -> [u8; SUPER_SIZE] {
        self.update_counts();
        csum::set_super_csum(&mut self.superblock.sb);
        *self.superblock.sb
    }

    /// The copy for the backup whose group starts at `block` (see
    /// [`Layout::backup_superblocks`](crate::Layout::backup_superblocks)): the primary's image with
    /// the group's number.
    pub fn backup_image(&mut self, block: u64) -> [u8; SUPER_SIZE] {
        let mut image = self.super_image();
        let group = block / u64::from(self.layout.geo.blocks_per_group);
        super_mut(&mut image).s_block_group_nr = ((group & 0xFFFF) as u16).into();
        csum::set_super_csum(&mut image);
        image
    }
}

#[cfg(test)]
#[path = "super_sync_tests.rs"]
mod tests;
