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
    /// Its word.
    pub word: Word,
    /// Its bit, as a mask.
    pub bit: u32,
    /// Its name, as mke2fs and tune2fs spell it where they know it.
    pub name: &'static str,
    /// What SiftFS does with it.
    pub support: Support,
}

const fn feature(word: Word, bit: u32, name: &'static str, support: Support) -> Feature {
    Feature { word, bit, name, support }
}

/// Every feature bit that ext4 defines, and ours. A bit that is not here is refused.
pub const FEATURES: &[Feature] = {
    use Support::*;
    use Word::*;
    &[
        feature(Compat, 0x1, "dir_prealloc", Refused),
        feature(Compat, 0x2, "imagic_inodes", Refused),
        feature(Compat, COMPAT_HAS_JOURNAL, "has_journal", ReadOnly),
        feature(Compat, 0x8, "ext_attr", Written),
        feature(Compat, 0x10, "resize_inode", ReadOnly),
        feature(Compat, 0x20, "dir_index", Written),
        feature(Compat, 0x40, "lazy_bg", Refused),
        feature(Compat, 0x80, "exclude_inode", Refused),
        feature(Compat, 0x100, "exclude_bitmap", Refused),
        feature(Compat, 0x200, "sparse_super2", Refused),
        feature(Compat, 0x400, "fast_commit", Refused),
        feature(Compat, 0x800, "stable_inodes", Refused),
        feature(Compat, COMPAT_ORPHAN_FILE, "orphan_file", ReadOnly),
        feature(Incompat, 0x1, "compression", Refused),
        feature(Incompat, 0x2, "filetype", Required),
        feature(Incompat, INCOMPAT_RECOVER, "needs_recovery", Refused),
        feature(Incompat, 0x8, "journal_dev", Refused),
        feature(Incompat, 0x10, "meta_bg", Refused),
        feature(Incompat, 0x40, "extent", Required),
        feature(Incompat, INCOMPAT_64BIT, "64bit", Written),
        feature(Incompat, 0x100, "mmp", Refused),
        feature(Incompat, 0x200, "flex_bg", Written),
        feature(Incompat, 0x400, "ea_inode", Refused),
        feature(Incompat, 0x1000, "dirdata", Refused),
        feature(Incompat, INCOMPAT_CSUM_SEED, "metadata_csum_seed", Written),
        feature(Incompat, 0x4000, "large_dir", Refused),
        feature(Incompat, 0x8000, "inline_data", Refused),
        feature(Incompat, 0x1_0000, "encrypt", Refused),
        feature(Incompat, 0x2_0000, "casefold", Refused),
        feature(Incompat, INCOMPAT_SIFTFS, "siftfs", Written),
        feature(RoCompat, 0x1, "sparse_super", Required),
        feature(RoCompat, 0x2, "large_file", Required),
        feature(RoCompat, 0x4, "btree_dir", Refused),
        feature(RoCompat, 0x8, "huge_file", Required),
        feature(RoCompat, 0x10, "uninit_bg", Refused),
        feature(RoCompat, 0x20, "dir_nlink", Required),
        feature(RoCompat, 0x40, "extra_isize", Required),
        feature(RoCompat, 0x80, "snapshot", Refused),
        feature(RoCompat, 0x100, "quota", Refused),
        feature(RoCompat, 0x200, "bigalloc", Refused),
        feature(RoCompat, 0x400, "metadata_csum", Required),
        feature(RoCompat, 0x800, "replica", Refused),
        feature(RoCompat, 0x1000, "read-only", Refused),
        feature(RoCompat, 0x2000, "project", Refused),
        feature(RoCompat, 0x4000, "shared_blocks", Refused),
        feature(RoCompat, 0x8000, "verity", Refused),
        feature(RoCompat, RO_COMPAT_ORPHAN_PRESENT, "orphan_present", Refused),
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
                (Support::Refused, true) => refused.push(f.name.to_string()),
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
