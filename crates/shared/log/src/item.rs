//! What a staged transaction says: items in the words of inodes, file ranges and names.

pub use crate::item_reply::ReplyItem;
use siftfs_base::{InodeNr, Lsn, Timestamp};

/// One item of a staged transaction. Data, zero and attribute items are absolute, so applying
/// one twice changes nothing; name operations are skipped by their own LSN when the base already
/// contains them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Attributes of an inode.
    Inode(InodeItem),
    /// Bytes of a file; the bytes lie in the record's data section.
    Data {
        /// File.
        ino: InodeNr,
        /// The inode's generation.
        generation: u32,
        /// First byte in the file.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u32,
        /// First byte in the record's data section.
        data_offset: u32,
        /// The first byte in the area, of a *physical* range: its blocks were mapped when it was
        /// staged, one behind the other. A transaction's [`Digest`](crate::Digest) writes the
        /// bytes there, without a tag. Recovery of a record that no transaction contains does not
        /// look at it.
        home: Option<u64>,
    },
    /// A file range that reads as zero (a hole, or punched; rule R6).
    Zero {
        /// File.
        ino: InodeNr,
        /// The inode's generation.
        generation: u32,
        /// First byte.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u64,
    },
    /// The smallest size reached since the inode's last durable state (rule R6).
    Truncate {
        /// File.
        ino: InodeNr,
        /// The inode's generation.
        generation: u32,
        /// Size in bytes.
        size: u64,
    },
    /// Space preallocated by fallocate.
    Allocate {
        /// File.
        ino: InodeNr,
        /// The inode's generation.
        generation: u32,
        /// First byte.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u64,
        /// The size stays.
        keep_size: bool,
    },
    /// All extended attributes of an inode.
    Xattrs {
        /// Inode.
        ino: InodeNr,
        /// The inode's generation.
        generation: u32,
        /// Full names (`user.x`) and values.
        list: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// A name operation, whole (rule R2).
    NameOp(NameOp),
    /// Whose call made a name operation (rule R53).
    Reply(ReplyItem),
}

/// Attributes of an inode, as fsync owes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InodeItem {
    /// Inode.
    pub ino: InodeNr,
    /// The inode's generation.
    pub generation: u32,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, else 0.
    pub rdev: u32,
    /// Size in bytes; `None` leaves it (fdatasync without a size change, directories).
    pub size: Option<u64>,
    /// ext4 inode flags that a caller can change.
    pub flags: u32,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Change time.
    pub ctime: Timestamp,
    /// Creation time.
    pub crtime: Timestamp,
}

/// An operation on names, as it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameOp {
    /// The operation's own LSN, not above the record's; applied only if the base is older.
    pub lsn: Lsn,
    /// When it ran.
    pub time: Timestamp,
    /// What it did.
    pub kind: NameOpKind,
}

/// Kinds of [`NameOp`]. Names are 1 to 255 bytes without `/` and NUL, neither `.` nor `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameOpKind {
    /// A new inode and its first name.
    Create {
        /// Parent directory.
        dir: InodeNr,
        /// Name in it.
        name: Vec<u8>,
        /// New inode.
        ino: InodeNr,
        /// The inode's generation.
        generation: u32,
        /// Type and permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number of a device file, else 0.
        rdev: u32,
        /// Target of a symbolic link, else empty.
        target: Vec<u8>,
    },
    /// One more name of an inode.
    Link {
        /// Parent directory.
        dir: InodeNr,
        /// Name in it.
        name: Vec<u8>,
        /// Inode named.
        ino: InodeNr,
    },
    /// A name of anything but a directory, removed.
    Unlink {
        /// Parent directory.
        dir: InodeNr,
        /// Name in it.
        name: Vec<u8>,
        /// Inode it named.
        ino: InodeNr,
    },
    /// An empty directory, removed.
    RemoveDir {
        /// Parent directory.
        dir: InodeNr,
        /// Name in it.
        name: Vec<u8>,
        /// Directory removed.
        ino: InodeNr,
    },
    /// A name moved, perhaps over another.
    Rename {
        /// Old parent.
        dir: InodeNr,
        /// Old name.
        name: Vec<u8>,
        /// New parent.
        new_dir: InodeNr,
        /// New name.
        new_name: Vec<u8>,
        /// Inode moved.
        ino: InodeNr,
        /// Inode that the new name named before, 0 for none.
        displaced: InodeNr,
    },
    /// Two names exchanged.
    Exchange {
        /// First parent.
        dir: InodeNr,
        /// First name.
        name: Vec<u8>,
        /// Inode the first name named.
        ino: InodeNr,
        /// Second parent.
        other_dir: InodeNr,
        /// Second name.
        other_name: Vec<u8>,
        /// Inode the second name named.
        other_ino: InodeNr,
    },
}
