//! The superblock: 1024 bytes, at byte 1024 of block 0 and at the start of each backup group.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a superblock.
pub const SUPER_SIZE: usize = 1024;
/// Byte offset of the primary superblock in block 0.
pub const SUPER_OFFSET: usize = 1024;
/// Bytes at the end of the reserved ones that are ours (`docs/spec/ext4-profile.md`).
pub const OWN_LEN: usize = 44;
/// `s_magic`.
pub const SUPER_MAGIC: u16 = 0xEF53;
/// `s_state`: unmounted cleanly.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were found.
pub const STATE_ERROR: u16 = 2;
/// `s_checksum_type`: crc32c, the only one defined.
pub const CHECKSUM_CRC32C: u8 = 1;
/// `s_flags`: directory hashes were made with signed characters.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes were made with unsigned characters.
pub const FLAG_UNSIGNED_HASH: u32 = 2;

/// The superblock.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Superblock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_reserved_pad: U16,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_blocks: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_error_codes: [u8; 2],
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_reserved: [U32; 83],
    pub s_siftfs: [u8; OWN_LEN],
    pub s_checksum: U32,
}

const _: () = assert!(size_of::<Superblock>() == SUPER_SIZE);
const _: () = assert!(std::mem::offset_of!(Superblock, s_feature_incompat) == 0x60);
const _: () = assert!(std::mem::offset_of!(Superblock, s_hash_seed) == 0xEC);
const _: () = assert!(std::mem::offset_of!(Superblock, s_blocks_count_hi) == 0x150);
const _: () = assert!(std::mem::offset_of!(Superblock, s_error_count) == 0x194);
const _: () = assert!(std::mem::offset_of!(Superblock, s_checksum_seed) == 0x270);
const _: () = assert!(std::mem::offset_of!(Superblock, s_siftfs) == 0x3D0);
const _: () = assert!(std::mem::offset_of!(Superblock, s_checksum) == 0x3FC);

/// The superblock in its 1024 bytes.
pub(crate) fn super_ref(bytes: &[u8; SUPER_SIZE]) -> &Superblock {
    match Superblock::ref_from_bytes(bytes) {
        Ok(sb) => sb,
        Err(_) => unreachable!("the size is right and there is no alignment"),
    }
}

/// The superblock in its 1024 bytes, to be changed.
pub(crate) fn super_mut(bytes: &mut [u8; SUPER_SIZE]) -> &mut Superblock {
    match Superblock::mut_from_bytes(bytes) {
        Ok(sb) => sb,
        Err(_) => unreachable!("the size is right and there is no alignment"),
    }
}
