//! An inode in memory: parsed, owned, and able to write itself back without losing fields that
//! this code does not know.

use siftfs_base::{BlockNr, InodeNr, Result, Timestamp, corrupt};
use zerocopy::{FromBytes, IntoBytes, little_endian::U32};

use crate::format::*;

/// Most links a file may have, and a directory may have counted.
pub const LINK_MAX: u32 = 65_000;
/// Longest symbolic link target kept in the inode, in bytes (one less than `i_block`).
pub const FAST_SYMLINK_MAX: usize = I_BLOCK_LEN - 1;

/// An inode.
///
/// While the inode is on the orphan list, [`crate::Fs`] decides what `i_dtime` holds on disk and
/// `dtime` here is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Inode number.
    pub ino: InodeNr,
    /// Generation; seeds the checksums of everything that belongs to the inode.
    pub generation: u32,
    /// File type and permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Links; 1 on a directory that has too many to count (dir_nlink).
    pub nlink: u32,
    /// `i_flags`, without the huge_file flag, which follows `blocks` when written.
    pub flags: u32,
    /// Space used, in 512-byte units, tree and xattr blocks included.
    pub blocks: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Change time.
    pub ctime: Timestamp,
    /// Creation time; zero where the record has no room for it.
    pub crtime: Timestamp,
    /// Deletion time in seconds; 0 while the inode lives.
    pub dtime: u32,
    /// Block of extended attributes, or 0.
    pub file_acl: BlockNr,
    /// Extent root, block map, device number or short symlink target.
    pub i_block: [u8; I_BLOCK_LEN],
    /// Change counter (NFS, IMA).
    pub version: u64,
    /// Project id, kept.
    pub projid: u32,
    extra_isize: u16,
    raw: Vec<u8>,
}

fn decode_time(sec: u32, extra: u32) -> Timestamp {
    let epoch = i64::from(extra & 3) << 32;
    Timestamp { sec: i64::from(sec.cast_signed()) + epoch, nsec: (extra >> 2).min(999_999_999) }
}

/// The nearest time that a record can hold: 1901 to 2446, or to 2038 and in whole seconds
/// without the extra field. The first and the last second have no nanoseconds, as on Linux.
fn nearest_time(t: Timestamp, has_extra: bool) -> Timestamp {
    let min = i64::from(i32::MIN);
    let max = if has_extra { (3i64 << 32) + i64::from(i32::MAX) } else { i64::from(i32::MAX) };
    let sec = t.sec.clamp(min, max);
    let nsec = if has_extra && sec > min && sec < max { t.nsec } else { 0 };
    Timestamp { sec, nsec }
}

/// (seconds field, extra field) of the nearest time that fits.
fn encode_time(t: Timestamp, has_extra: bool) -> (u32, u32) {
    let t = nearest_time(t, has_extra);
    let sec = t.sec;
    let low = (sec & 0xFFFF_FFFF) as u32;
    let epoch = ((sec - i64::from(low.cast_signed())) >> 32) as u32 & 3;
    (low, epoch | (t.nsec.min(999_999_999) << 2))
}

impl Inode {
    /// A fresh inode with an empty extent root for regular files and directories (symlinks,
    /// devices and the rest start without). Times are all `now`, `nlink` is 0, generation 0.
    /// `record` is the volume's inode size, `extra_isize` what it wants (see
    /// [`crate::Fs::new_inode`], which knows both).
    pub(crate) fn fresh(
        ino: InodeNr,
        mode: u16,
        now: Timestamp,
        record: usize,
        extra_isize: u16,
    ) -> Self {
        let mut inode = Self {
            ino,
            generation: 0,
            mode,
            uid: 0,
            gid: 0,
            size: 0,
            nlink: 0,
            flags: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            dtime: 0,
            file_acl: 0,
            i_block: [0; I_BLOCK_LEN],
            version: 1,
            projid: 0,
            extra_isize,
            raw: vec![0; record],
        };
        if inode.is_reg() || inode.is_dir() {
            inode.init_extents();
        }
        inode
    }

    /// Parses a record. The checksum is the caller's business.
    pub(crate) fn parse(ino: InodeNr, raw: &[u8]) -> Result<Self> {
        let (known, _) = RawInode::read_from_prefix(raw)
            .map_err(|_| corrupt(format!("inode {ino}"), "record shorter than its fields"))?;
        let extra = known.i_extra_isize.get();
        if usize::from(extra) + INODE_BASE > raw.len() || extra % 4 != 0 {
            return Err(corrupt(format!("inode {ino}"), format!("i_extra_isize {extra}")));
        }
        let has = |end: usize| usize::from(extra) + INODE_BASE >= end;
        let opt = |end: usize, v: U32| if has(end) { v.get() } else { 0 };
        let flags = known.i_flags.get();
        let mut blocks =
            u64::from(known.i_blocks_lo.get()) | u64::from(known.i_blocks_high.get()) << 32;
        if flags & FL_HUGE_FILE != 0 {
            blocks *= 8; // 48 bits times 8 cannot overflow
        }
        if u32::from(known.i_links_count.get()) > LINK_MAX {
            let detail = format!("{} links", known.i_links_count.get());
            return Err(corrupt(format!("inode {ino}"), detail));
        }
        let lo_hi = |lo: u16, hi: u16| u32::from(lo) | u32::from(hi) << 16;
        Ok(Self {
            ino,
            generation: known.i_generation.get(),
            mode: known.i_mode.get(),
            uid: lo_hi(known.i_uid.get(), known.i_uid_high.get()),
            gid: lo_hi(known.i_gid.get(), known.i_gid_high.get()),
            size: u64::from(known.i_size_lo.get()) | u64::from(known.i_size_high.get()) << 32,
            nlink: u32::from(known.i_links_count.get()),
            flags: flags & !FL_HUGE_FILE,
            blocks,
            atime: decode_time(known.i_atime.get(), opt(0x90, known.i_atime_extra)),
            mtime: decode_time(known.i_mtime.get(), opt(0x8C, known.i_mtime_extra)),
            ctime: decode_time(known.i_ctime.get(), opt(0x88, known.i_ctime_extra)),
            crtime: decode_time(opt(0x94, known.i_crtime), opt(0x98, known.i_crtime_extra)),
            dtime: known.i_dtime.get(),
            file_acl: u64::from(known.i_file_acl_lo.get())
                | u64::from(known.i_file_acl_high.get()) << 32,
            i_block: known.i_block,
            version: u64::from(known.i_version_lo.get())
                | u64::from(opt(0x9C, known.i_version_hi)) << 32,
            projid: opt(0xA0, known.i_projid),
            extra_isize: extra,
            raw: raw.to_vec(),
        })
    }

    /// The record to store, without its checksum.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.raw.clone();
        let Ok((r, _)) = RawInode::mut_from_prefix(out.as_mut_slice()) else {
            unreachable!("a parsed record holds its fields")
        };
        self.encode_base(r);
        // Fields behind i_extra_isize belong to the extended attributes: start from the old
        // bytes and set only those that the record has.
        let end = INODE_BASE + usize::from(self.extra_isize).min(INODE_EXTRA);
        let mut known = r.clone();
        self.encode_extra(&mut known);
        let fields = out.iter_mut().zip(known.as_bytes()).take(end).skip(INODE_BASE);
        fields.for_each(|(to, byte)| *to = *byte);
        out
    }

    fn encode_base(&self, r: &mut RawInode) {
        let mut flags = self.flags & !FL_HUGE_FILE;
        let mut blocks = self.blocks;
        if blocks >= 1 << 48 {
            flags |= FL_HUGE_FILE;
            blocks /= 8;
        }
        let low = |v: u32| (v & 0xFFFF) as u16;
        let high = |v: u32| (v >> 16) as u16;
        r.i_mode = self.mode.into();
        r.i_uid = low(self.uid).into();
        r.i_uid_high = high(self.uid).into();
        r.i_gid = low(self.gid).into();
        r.i_gid_high = high(self.gid).into();
        r.i_size_lo = ((self.size & 0xFFFF_FFFF) as u32).into();
        r.i_size_high = ((self.size >> 32) as u32).into();
        let extra = |end: usize| usize::from(self.extra_isize) + INODE_BASE >= end;
        r.i_atime = encode_time(self.atime, extra(0x90)).0.into();
        r.i_mtime = encode_time(self.mtime, extra(0x8C)).0.into();
        r.i_ctime = encode_time(self.ctime, extra(0x88)).0.into();
        r.i_dtime = self.dtime.into();
        assert!(self.nlink <= LINK_MAX, "inode {}: {} links", self.ino, self.nlink);
        r.i_links_count = low(self.nlink).into();
        r.i_blocks_lo = ((blocks & 0xFFFF_FFFF) as u32).into();
        r.i_blocks_high = (((blocks >> 32) & 0xFFFF) as u16).into();
        r.i_flags = flags.into();
        r.i_version_lo = ((self.version & 0xFFFF_FFFF) as u32).into();
        r.i_block = self.i_block;
        r.i_generation = self.generation.into();
        r.i_file_acl_lo = ((self.file_acl & 0xFFFF_FFFF) as u32).into();
        r.i_file_acl_high = (((self.file_acl >> 32) & 0xFFFF) as u16).into();
    }

    fn encode_extra(&self, r: &mut RawInode) {
        r.i_extra_isize = self.extra_isize.into();
        r.i_ctime_extra = encode_time(self.ctime, true).1.into();
        r.i_mtime_extra = encode_time(self.mtime, true).1.into();
        r.i_atime_extra = encode_time(self.atime, true).1.into();
        let (sec, extra) = encode_time(self.crtime, true);
        r.i_crtime = sec.into();
        r.i_crtime_extra = extra.into();
        r.i_version_hi = ((self.version >> 32) as u32).into();
        r.i_projid = self.projid.into();
    }

    /// The nearest time that this inode's record can hold, so that memory shows what storage
    /// will.
    pub fn storable_time(&self, t: Timestamp) -> Timestamp {
        nearest_time(t, usize::from(self.extra_isize) + INODE_BASE >= 0x90)
    }
    /// `i_mode`'s file type bits.
    pub fn file_type(&self) -> u16 {
        self.mode & S_IFMT
    }
    /// Is the inode a directory?
    pub fn is_dir(&self) -> bool {
        self.file_type() == S_IFDIR
    }
    /// Is the inode a regular file?
    pub fn is_reg(&self) -> bool {
        self.file_type() == S_IFREG
    }
    /// Is the inode a symbolic link?
    pub fn is_symlink(&self) -> bool {
        self.file_type() == S_IFLNK
    }
    /// Does `i_block` hold an extent tree?
    pub fn has_extents(&self) -> bool {
        self.flags & FL_EXTENTS != 0
    }
    /// Bytes of known fields behind the first 128.
    pub fn extra_isize(&self) -> u16 {
        self.extra_isize
    }

    /// The bytes of the record behind `i_extra_isize`: in-inode extended attributes.
    pub fn xattr_area(&self) -> &[u8] {
        self.raw.split_at(INODE_BASE + usize::from(self.extra_isize)).1
    }
    /// The same, to be changed; [`crate::Fs::write_inode`] stores it.
    pub fn xattr_area_mut(&mut self) -> &mut [u8] {
        self.raw.split_at_mut(INODE_BASE + usize::from(self.extra_isize)).1
    }

    /// Makes `i_block` an empty extent root. Only for an inode that maps nothing.
    pub fn init_extents(&mut self) {
        self.flags |= FL_EXTENTS;
        self.i_block = [0; I_BLOCK_LEN];
        let header = RawExtentHeader {
            eh_magic: EXTENT_MAGIC.into(),
            eh_entries: 0.into(),
            eh_max: (ROOT_ENTRIES as u16).into(),
            eh_depth: 0.into(),
            eh_generation: 0.into(),
        };
        self.i_block[..EXTENT_ENTRY].copy_from_slice(header.as_bytes());
    }

    /// May one more link be made? Directories always can (dir_nlink).
    pub fn can_link(&self) -> bool {
        self.is_dir() || self.nlink < LINK_MAX
    }

    /// One more link; for a directory, one more subdirectory. A directory whose count would
    /// reach [`LINK_MAX`] says 1, "unknown", from then on. Callers check [`Inode::can_link`].
    pub fn inc_nlink(&mut self) {
        if !self.is_dir() {
            assert!(self.nlink < LINK_MAX, "inode {}: too many links", self.ino);
            self.nlink += 1;
        } else if self.nlink != 1 {
            self.nlink = if self.nlink + 1 >= LINK_MAX { 1 } else { self.nlink + 1 };
        }
    }

    /// One link fewer; for a directory, one subdirectory fewer (never below 2: an empty
    /// directory that goes away sets `nlink` to 0 itself). Corrupt if there is none to remove.
    pub fn dec_nlink(&mut self) -> Result<()> {
        if self.is_dir() {
            if self.nlink > 2 {
                self.nlink -= 1;
            }
            return Ok(());
        }
        self.nlink = self
            .nlink
            .checked_sub(1)
            .ok_or_else(|| corrupt(format!("inode {}", self.ino), "link count below zero"))?;
        Ok(())
    }

    /// Prepares the record of an inode that is being freed: no links, no data, deleted at `now`
    /// (a freed inode must have a deletion time, a live one none).
    pub fn retire(&mut self, now: Timestamp) {
        self.nlink = 0;
        self.size = 0;
        self.blocks = 0;
        self.file_acl = 0;
        self.dtime = encode_time(now, false).0.max(1);
    }

    /// Device number of a device file, as userspace's `makedev` packs it into 32 bits.
    pub fn rdev(&self) -> u32 {
        let words = <[U32; 2]>::read_from_prefix(&self.i_block);
        let [old, new] = words.map_or([0, 0], |(words, _)| words.map(U32::get));
        // The old form, 8 bits each, is the low part of the new one.
        if old != 0 { old & 0xFFFF } else { new }
    }

    /// Sets the device number: in the old form if both numbers fit 8 bits, else in the new.
    pub fn set_rdev(&mut self, dev: u32) {
        self.i_block = [0; I_BLOCK_LEN];
        let (old, new) = if dev & !0xFFFF == 0 { (dev, 0) } else { (0, dev) };
        self.i_block[..4].copy_from_slice(&old.to_le_bytes());
        self.i_block[4..8].copy_from_slice(&new.to_le_bytes());
    }

    /// The target of a symbolic link kept in the inode, or `None` if it lies in a block.
    pub fn fast_symlink(&self) -> Option<&[u8]> {
        let len = usize::try_from(self.size).ok().filter(|len| *len <= FAST_SYMLINK_MAX)?;
        let target = self.i_block.get(..len)?;
        (self.is_symlink() && !self.has_extents()).then_some(target)
    }

    /// Stores a target of at most [`FAST_SYMLINK_MAX`] bytes in the inode and sets the size;
    /// false, and nothing changed, if it is longer.
    pub fn set_fast_symlink(&mut self, target: &[u8]) -> bool {
        if target.len() > FAST_SYMLINK_MAX {
            return false;
        }
        self.flags &= !FL_EXTENTS;
        self.i_block = [0; I_BLOCK_LEN];
        self.i_block.split_at_mut(target.len()).0.copy_from_slice(target);
        self.size = target.len() as u64;
        true
    }
}

#[cfg(test)]
#[path = "inode_tests.rs"]
mod tests;
