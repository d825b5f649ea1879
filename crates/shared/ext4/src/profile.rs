//! Which ext4 features are written, read and kept, or refused (`docs/spec/ext4-profile.md`).

use siftfs_base::{Error, Result};

use crate::format::Superblock;

/// `s_feature_incompat`: this mount may hold state that is not in the area (rule R15).
pub const INCOMPAT_SIFTFS: u32 = 0x2000_0000;
/// `s_feature_incompat`: the journal holds unreplayed transactions.
pub const INCOMPAT_RECOVER: u32 = 0x4;
/// `s_feature_incompat`: 64-byte descriptors and 64-bit block numbers.
pub const INCOMPAT_64BIT: u32 = 0x80;
/// `s_feature_incompat`: the checksum seed is stored in the superblock.
pub const INCOMPAT_CSUM_SEED: u32 = 0x2000;
/// `s_feature_compat`: an ext4 journal exists.
pub const COMPAT_HAS_JOURNAL: u32 = 0x4;
/// `s_feature_compat`: an orphan file exists.
pub const COMPAT_ORPHAN_FILE: u32 = 0x1000;
/// `s_feature_ro_compat`: the orphan file is not empty.
pub const RO_COMPAT_ORPHAN_PRESENT: u32 = 0x1_0000;

/// The three feature words of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// `s_feature_compat`.
    Compat,
    /// `s_feature_incompat`.
    Incompat,
    /// `s_feature_ro_compat`.
    RoCompat,
}

impl Word {
    /// The name in the profile document.
    pub fn name(self) -> &'static str {
        match self {
            Word::Compat => "compat",
            Word::Incompat => "incompat",
            Word::RoCompat => "ro_compat",
        }
    }
}

/// What SiftFS does with a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// Volumes need it; its structures are written.
    Required,
    /// Its structures are read and written where a volume has it.
    Written,
    /// A volume may have it; its structures are understood, kept and never changed.
    ReadOnly,
    /// A volume that has it is not opened.
    Refused,
}

impl Support {
    /// The name in the profile document.
    pub fn name(self) -> &'static str {
        match self {
            Support::Required => "written, required",
            Support::Written => "written",
            Support::ReadOnly => "read only",
            Support::Refused => "refused",
        }
    }
}

/// One feature bit.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// The word of the superblock that has the bit.
    pub word: Word,
    /// The feature's bit, as a mask.
    pub bit: u32,
    /// The feature's name, as mke2fs and tune2fs spell it where they know it.
    pub name: &'static str,
    /// What SiftFS does with it.
    pub support: Support,
    /// Why it is refused, if it is.
    pub why: &'static str,
}

const fn feature(word: Word, bit: u32, name: &'static str, support: Support) -> Feature {
    Feature { word, bit, name, support, why: "" }
}

const fn refused(word: Word, bit: u32, name: &'static str, why: &'static str) -> Feature {
    Feature { word, bit, name, support: Support::Refused, why }
}

/// Every feature bit that ext4 defines, and ours. A bit that is not here is refused.
pub const FEATURES: &[Feature] = {
    use Support::*;
    use Word::*;
    &[
        refused(Compat, 0x1, "dir_prealloc", "never used by Linux"),
        refused(Compat, 0x2, "imagic_inodes", "never used by Linux"),
        feature(Compat, COMPAT_HAS_JOURNAL, "has_journal", ReadOnly),
        feature(Compat, 0x8, "ext_attr", Written),
        feature(Compat, 0x10, "resize_inode", ReadOnly),
        feature(Compat, 0x20, "dir_index", Written),
        refused(Compat, 0x40, "lazy_bg", "obsolete"),
        refused(Compat, 0x80, "exclude_inode", "obsolete"),
        refused(Compat, 0x100, "exclude_bitmap", "obsolete"),
        refused(Compat, 0x200, "sparse_super2", "two backups at chosen places"),
        refused(Compat, 0x400, "fast_commit", "a second journal format"),
        refused(Compat, 0x800, "stable_inodes", "only of use with encryption"),
        feature(Compat, COMPAT_ORPHAN_FILE, "orphan_file", ReadOnly),
        refused(Incompat, 0x1, "compression", "never implemented"),
        feature(Incompat, 0x2, "filetype", Required),
        refused(
            Incompat,
            INCOMPAT_RECOVER,
            "needs_recovery",
            "its journal is not replayed: mount it once with the kernel, or run e2fsck",
        ),
        refused(Incompat, 0x8, "journal_dev", "the volume is a journal, not a file system"),
        refused(Incompat, 0x10, "meta_bg", "descriptors spread over the volume"),
        feature(Incompat, 0x40, "extent", Required),
        feature(Incompat, INCOMPAT_64BIT, "64bit", Written),
        refused(Incompat, 0x100, "mmp", "would need the block to be rewritten all the time"),
        feature(Incompat, 0x200, "flex_bg", Written),
        refused(Incompat, 0x400, "ea_inode", "large attributes in inodes of their own"),
        refused(Incompat, 0x1000, "dirdata", "never implemented in Linux"),
        feature(Incompat, INCOMPAT_CSUM_SEED, "metadata_csum_seed", Written),
        refused(Incompat, 0x4000, "large_dir", "hash trees of three levels"),
        refused(Incompat, 0x8000, "inline_data", "small files inside inodes"),
        refused(Incompat, 0x1_0000, "encrypt", "encrypted names and contents"),
        refused(Incompat, 0x2_0000, "casefold", "names compared without regard to case"),
        feature(Incompat, INCOMPAT_SIFTFS, "siftfs", Written),
        feature(RoCompat, 0x1, "sparse_super", Required),
        feature(RoCompat, 0x2, "large_file", Required),
        refused(RoCompat, 0x4, "btree_dir", "never used"),
        feature(RoCompat, 0x8, "huge_file", Required),
        refused(
            RoCompat,
            0x10,
            "uninit_bg",
            "crc16 descriptor checksums; metadata_csum replaces it",
        ),
        feature(RoCompat, 0x20, "dir_nlink", Required),
        feature(RoCompat, 0x40, "extra_isize", Required),
        refused(RoCompat, 0x80, "snapshot", "obsolete"),
        refused(RoCompat, 0x100, "quota", "quota files would have to be kept current"),
        refused(RoCompat, 0x200, "bigalloc", "allocation by clusters"),
        feature(RoCompat, 0x400, "metadata_csum", Required),
        refused(RoCompat, 0x800, "replica", "never implemented"),
        refused(RoCompat, 0x1000, "read-only", "the volume asks not to be written"),
        refused(
            RoCompat,
            0x2000,
            "project",
            "project quotas; the id in an inode is kept all the same",
        ),
        refused(RoCompat, 0x4000, "shared_blocks", "blocks in several files"),
        refused(RoCompat, 0x8000, "verity", "verity hashes behind the ends of files"),
        refused(
            RoCompat,
            RO_COMPAT_ORPHAN_PRESENT,
            "orphan_present",
            "its orphan file is not empty: mount it once with the kernel, or run e2fsck",
        ),
    ]
};

/// The `mke2fs.conf` under which volumes are made, so that the host's has no say.
pub const MKE2FS_CONF: &str = "\
[defaults]
\tbase_features = none
\tdefault_features = none
\tenable_periodic_fsck = 0
\tauto_64-bit_support = 0
\tblocksize = 4096
\tinode_size = 256
\tinode_ratio = 16384
\treserved_ratio = 5.0
[fs_types]
\tdefault = {
\t}
\tfloppy = {
\t}
\tsmall = {
\t}
\tbig = {
\t}
\thuge = {
\t}
";

/// Arguments of mke2fs, before the device and its size.
pub const MKE2FS_ARGS: &[&str] = &[
    "-q",
    "-F",
    "-b",
    "4096",
    "-I",
    "256",
    "-i",
    "16384",
    "-O",
    "none,filetype,ext_attr,dir_index,extent,64bit,flex_bg,sparse_super,large_file,huge_file,\
     dir_nlink,extra_isize,metadata_csum",
    "-E",
    "lazy_itable_init=0,packed_meta_blocks=1",
];

/// Refuses a volume with a refused or unknown feature, or without a required one.
pub fn check_features(sb: &Superblock) -> Result<()> {
    let words = [
        (Word::Compat, sb.s_feature_compat.get()),
        (Word::Incompat, sb.s_feature_incompat.get()),
        (Word::RoCompat, sb.s_feature_ro_compat.get()),
    ];
    let (mut refused, mut missing) = (Vec::new(), Vec::new());
    for (word, value) in words {
        let mut unknown = value;
        for f in FEATURES.iter().filter(|f| f.word == word) {
            unknown &= !f.bit;
            match (f.support, value & f.bit != 0) {
                (Support::Refused, true) => refused.push(format!("{} ({})", f.name, f.why)),
                (Support::Required, false) => missing.push(f.name),
                _ => {}
            }
        }
        if unknown != 0 {
            refused.push(format!("unknown {} bits {unknown:#x}", word.name()));
        }
    }
    if !refused.is_empty() {
        return Err(Error::Incompatible(format!("features not taken: {}", refused.join(", "))));
    }
    if !missing.is_empty() {
        return Err(Error::Incompatible(format!("features missing: {}", missing.join(", "))));
    }
    Ok(())
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
