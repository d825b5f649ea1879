//! What kind of file an inode is, as the mode, a directory entry and the file protocol say it.

use siftfs_ext4::format::S_IFMT;
use siftfs_proto::FileKind;

/// The type code of a directory entry for an inode's mode.
pub fn entry_type(mode: u16) -> u8 {
    match kind_of(mode) {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::CharDevice => 3,
        FileKind::BlockDevice => 4,
        FileKind::Fifo => 5,
        FileKind::Socket => 6,
        FileKind::Symlink => 7,
    }
}

/// The file kind of a directory entry's type code; `None` for unknown.
pub fn kind_of_entry(code: u8) -> Option<FileKind> {
    Some(match code {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

/// The type bits of `st_mode` for a file kind.
pub fn mode_of(kind: FileKind) -> u16 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::Regular => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

/// The file kind of a mode.
pub fn kind_of(mode: u16) -> FileKind {
    match mode & S_IFMT {
        0o010_000 => FileKind::Fifo,
        0o020_000 => FileKind::CharDevice,
        0o040_000 => FileKind::Directory,
        0o060_000 => FileKind::BlockDevice,
        0o120_000 => FileKind::Symlink,
        0o140_000 => FileKind::Socket,
        _ => FileKind::Regular,
    }
}
