//! Attributes, times and kinds of the file protocol as system calls have them.

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid,
};
use rustix::io::Errno;
use siftfs_base::Timestamp;
use siftfs_proto::{Allocate, Attr, FileKind, Reply, SetAttr, SetTime};
use std::path::Path;

/// Longest value of an attribute that is read.
const XATTR_MAX: usize = 1 << 16;

pub(crate) fn set_attr(path: &Path, set: &SetAttr) -> Result<Reply, Errno> {
    if let Some(perm) = set.perm {
        rustix::fs::chmod(path, Mode::from_raw_mode(perm.into()))?;
    }
    if set.uid.is_some() || set.gid.is_some() {
        let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
        rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if set.mtime.is_some() || set.atime.is_some() {
        let times =
            Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    rustix::fs::lstat(path).map(|s| Reply::Attr(attr_of(&s)))
}

pub(crate) fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(t)) => Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() },
    }
}

pub(crate) fn flags_of(mode: Allocate) -> FallocateFlags {
    let keep = FallocateFlags::KEEP_SIZE;
    match mode {
        Allocate::Grow => FallocateFlags::empty(),
        Allocate::KeepSize => keep,
        Allocate::PunchHole => FallocateFlags::PUNCH_HOLE | keep,
        Allocate::ZeroRange => FallocateFlags::ZERO_RANGE,
        Allocate::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE | keep,
    }
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    }
}

pub(crate) fn kind_of(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::Regular,
    }
}

/// A time of stat(2). The type of its nanoseconds depends on who makes rustix's system calls.
fn time(sec: i64, nsec: impl TryInto<u32>) -> Timestamp {
    Timestamp { sec, nsec: nsec.try_into().unwrap_or(0) }
}

/// What stat(2) shows. A number that no inode of a volume can have becomes 0; generation and
/// creation time are not shown and 0.
pub(crate) fn attr_of(stat: &Stat) -> Attr {
    Attr {
        ino: u32::try_from(stat.st_ino).unwrap_or(0),
        generation: 0,
        kind: kind_of(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: u32::try_from(stat.st_rdev).unwrap_or(u32::MAX),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: Timestamp::default(),
        held: false,
    }
}

/// The value of an attribute.
///
/// # Errors
/// The kernel's.
pub(crate) fn get_xattr(path: &Path, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0u8; XATTR_MAX];
    let len = rustix::fs::lgetxattr(path, name, &mut buf[..])?;
    buf.truncate(len);
    Ok(buf)
}

/// The names of all attributes.
///
/// # Errors
/// The kernel's.
pub(crate) fn list_xattrs(path: &Path) -> Result<Vec<Vec<u8>>, Errno> {
    let mut buf = vec![0u8; XATTR_MAX];
    let len = rustix::fs::llistxattr(path, &mut buf[..])?;
    buf.truncate(len);
    Ok(buf.split(|b| *b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect())
}
