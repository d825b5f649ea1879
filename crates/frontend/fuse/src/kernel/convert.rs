//! Numbers as the kernel's FUSE protocol has them, and as the file protocol has them.

use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{Allocate, FileKind, ROOT_INO, RenameMode, Seek, XattrMode};

/// The kernel's name for the root directory.
const ROOT_NODE: u64 = 1;

/// The node id of an inode. ext4's inode 1 (the bad-block list) is never shown, so the root can
/// take its number.
pub(crate) fn node(ino: InodeNr) -> u64 {
    if ino == ROOT_INO { ROOT_NODE } else { u64::from(ino) }
}

/// The inode of a node id; `ESTALE` for what we never handed out.
pub(crate) fn inode(node: u64) -> Result<InodeNr> {
    match InodeNr::try_from(node) {
        Ok(1) => Ok(ROOT_INO),
        Ok(0 | ROOT_INO) | Err(_) => Err(errno(libc::ESTALE)),
        Ok(ino) => Ok(ino),
    }
}

/// The type bits of `st_mode`; shifted right by 12 they are a directory entry's type.
pub(crate) fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
    }
}

/// The type bits of a mode that mknod(2) takes.
pub(crate) fn kind_of_mode(mode: u32) -> Result<FileKind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Ok(FileKind::Regular),
        libc::S_IFCHR => Ok(FileKind::CharDevice),
        libc::S_IFBLK => Ok(FileKind::BlockDevice),
        libc::S_IFIFO => Ok(FileKind::Fifo),
        libc::S_IFSOCK => Ok(FileKind::Socket),
        _ => Err(errno(libc::EINVAL)),
    }
}

/// The permission bits of a mode.
pub(crate) fn perm_of_mode(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0)
}

/// renameat2(2) flags.
pub(crate) fn rename_mode(flags: u32) -> Result<RenameMode> {
    const WHITEOUT_NOREPLACE: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
    match flags {
        0 => Ok(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        libc::RENAME_WHITEOUT => Ok(RenameMode::Whiteout),
        WHITEOUT_NOREPLACE => Ok(RenameMode::WhiteoutNoReplace),
        _ => Err(errno(libc::EINVAL)),
    }
}

/// fallocate(2) modes; `EOPNOTSUPP` for the others, as ext4 without them would say.
pub(crate) fn allocate_mode(mode: u32) -> Result<Allocate> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH_KEEP: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = ZERO | KEEP;
    let Ok(mode) = i32::try_from(mode) else { return Err(errno(libc::EOPNOTSUPP)) };
    match mode {
        0 => Ok(Allocate::Grow),
        KEEP => Ok(Allocate::KeepSize),
        PUNCH_KEEP => Ok(Allocate::PunchHole),
        ZERO => Ok(Allocate::ZeroRange),
        ZERO_KEEP => Ok(Allocate::ZeroRangeKeepSize),
        _ => Err(errno(libc::EOPNOTSUPP)),
    }
}

/// lseek(2) whence; the kernel answers all but these itself.
pub(crate) fn seek(whence: u32) -> Result<Seek> {
    match i32::try_from(whence) {
        Ok(libc::SEEK_DATA) => Ok(Seek::Data),
        Ok(libc::SEEK_HOLE) => Ok(Seek::Hole),
        _ => Err(errno(libc::EINVAL)),
    }
}

/// setxattr(2) flags.
pub(crate) fn xattr_mode(flags: u32) -> Result<XattrMode> {
    match i32::try_from(flags) {
        Ok(0) => Ok(XattrMode::Set),
        Ok(libc::XATTR_CREATE) => Ok(XattrMode::Create),
        Ok(libc::XATTR_REPLACE) => Ok(XattrMode::Replace),
        _ => Err(errno(libc::EINVAL)),
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
