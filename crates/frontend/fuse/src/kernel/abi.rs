//! Structures and numbers of the kernel's FUSE protocol, version 7, as the kernel promises them
//! to user space. Integers are in the machine's own order: both sides are one machine.
//!
//! Fields that SiftFS does not use are kept as padding with a name, because the layout is the
//! protocol.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The minor version whose structures these are; the kernel speaks the lower of both.
pub(crate) const MINOR: u32 = 40;
/// Oldest minor version served: Linux 5.4.
pub(crate) const MINOR_LEAST: u32 = 31;

/// From this minor version on a page under writeback is one that the server does not have yet:
/// Linux 6.16.
pub(crate) const MINOR_WRITEBACK: u32 = 44;

/// Declares structures that are read from or written to the kernel, each with its size in bytes.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $kind:ty,)* })*) => { $(
        $(#[$doc])*
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $kind,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )* };
}

wire! {
    /// Before every request.
    InHeader: 40 {
        len: u32, opcode: u32, unique: u64, node: u64, uid: u32, gid: u32, pid: u32,
        extensions: u16, padding: u16,
    }
    /// Before every answer; `error` is 0 or a negative errno.
    OutHeader: 16 { len: u32, error: i32, unique: u64, }
    InitIn: 16 { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    /// What follows it with [`FUSE_INIT_EXT`].
    InitExt: 48 { flags2: u32, unused: [u32; 11], }
    InitOut: 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    Attr: 88 {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64, atime_nsec: u32,
        mtime_nsec: u32, ctime_nsec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        block_size: u32, flags: u32,
    }
    EntryOut: 128 {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, padding: u32, attr: Attr, }
    OpenOut: 16 { handle: u64, open_flags: u32, backing: i32, }
    WriteOut: 8 { size: u32, padding: u32, }
    StatfsOut: 80 {
        blocks: u64, free: u64, available: u64, files: u64, files_free: u64, block_size: u32,
        name_max: u32, fragment_size: u32, padding: u32, spare: [u32; 6],
    }
    XattrSizeOut: 8 { size: u32, padding: u32, }
    OffsetOut: 8 { offset: u64, }
    /// Before each name of a directory; the name follows, padded to eight bytes.
    Dirent: 24 { ino: u64, cookie: u64, name_len: u32, kind: u32, }
    StatxTime: 16 { sec: i64, nsec: u32, reserved: u32, }
    StatxOut: 288 {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], mask: u32,
        block_size: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime,
        btime: StatxTime, ctime: StatxTime, mtime: StatxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    GetAttrIn: 16 { flags: u32, padding: u32, handle: u64, }
    SetAttrIn: 88 {
        valid: u32, padding: u32, handle: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64,
        ctime: i64, atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    MknodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkdirIn: 8 { mode: u32, umask: u32, }
    RenameIn: 8 { new_dir: u64, }
    Rename2In: 16 { new_dir: u64, flags: u32, padding: u32, }
    LinkIn: 8 { node: u64, }
    OpenIn: 8 { flags: u32, open_flags: u32, }
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    ReleaseIn: 24 { handle: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    ReadIn: 40 {
        handle: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn: 40 {
        handle: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    FsyncIn: 16 { handle: u64, flags: u32, padding: u32, }
    /// The short form, without [`FUSE_SETXATTR_EXT`].
    SetXattrIn: 8 { size: u32, flags: u32, }
    /// What [`FUSE_SETXATTR_EXT`] adds to it.
    SetXattrExt: 8 { extra_flags: u32, padding: u32, }
    GetXattrIn: 8 { size: u32, padding: u32, }
    LseekIn: 24 { handle: u64, offset: u64, whence: u32, padding: u32, }
    FallocateIn: 32 { handle: u64, offset: u64, len: u64, mode: u32, padding: u32, }
    ForgetIn: 8 { count: u64, }
    BatchForgetIn: 8 { count: u32, padding: u32, }
    ForgetOne: 16 { node: u64, count: u64, }
    CopyFileRangeIn: 56 {
        handle_in: u64, offset_in: u64, node_out: u64, handle_out: u64, offset_out: u64, len: u64,
        flags: u64,
    }
    /// A request as a ring has it: its header, the fixed part of its body, and what the ring needs.
    /// The rest of the body is the payload. An answer's header takes the first place, and its
    /// whole body is the payload.
    RingHeader: 288 { in_out: [u8; 128], fixed: [u8; 128], entry: RingEntry, }
    RingEntry: 32 { flags: u64, commit_id: u64, payload_len: u32, padding: u32, reserved: u64, }
    /// In the command area of a submission.
    RingCommand: 24 { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6], }
    FlushIn: 24 { handle: u64, unused: u32, padding: u32, lock_owner: u64, }
    /// A lock of bytes; `last` is one of them.
    FileLock: 24 { first: u64, last: u64, kind: u32, pid: u32, }
    LockIn: 48 { handle: u64, owner: u64, lock: FileLock, flags: u32, padding: u32, }
    InterruptIn: 8 { unique: u64, }
    /// The bytes given to the call follow.
    IoctlIn: 32 { handle: u64, flags: u32, command: u32, argument: u64, in_size: u32, out_size: u32, }
    /// The bytes that the call gives back follow.
    IoctlOut: 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    /// `struct fsxattr`.
    FsXattr: 28 {
        flags: u32, extent_size: u32, extents: u32, project: u32, cow_extent_size: u32,
        padding: [u32; 2],
    }
    InvalInodeOut: 24 { node: u64, offset: i64, len: i64, }
    InvalEntryOut: 16 { parent: u64, length: u32, flags: u32, }
    StatxIn: 24 { getattr_flags: u32, reserved: u32, handle: u64, flags: u32, mask: u32, }
}

/// Bytes before the data of a WRITE.
pub(crate) const WRITE_HEAD: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Declares numbered constants.
macro_rules! numbers {
    ($($name:ident = $value:expr,)*) => { $(pub(crate) const $name: u32 = $value;)* };
}

// Requests.
numbers! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8,
    MKDIR = 9, UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16,
    STATFS = 17, RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23,
    REMOVEXATTR = 24, FLUSH = 25, INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29, FSYNCDIR = 30,
    GETLK = 31, SETLK = 32, SETLKW = 33, CREATE = 35, INTERRUPT = 36, DESTROY = 38, IOCTL = 39, BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44,
    RENAME2 = 45, LSEEK = 46, COPY_FILE_RANGE = 47, TMPFILE = 51, STATX = 52,
}

// What INIT agrees on.
numbers! {
    FUSE_ASYNC_READ = 1 << 0, FUSE_POSIX_LOCKS = 1 << 1, FUSE_FLOCK_LOCKS = 1 << 10, FUSE_ATOMIC_O_TRUNC = 1 << 3, FUSE_EXPORT_SUPPORT = 1 << 4,
    FUSE_BIG_WRITES = 1 << 5, FUSE_DONT_MASK = 1 << 6, FUSE_DO_READDIRPLUS = 1 << 13, FUSE_READDIRPLUS_AUTO = 1 << 14,
    FUSE_ASYNC_DIO = 1 << 15, FUSE_WRITEBACK_CACHE = 1 << 16, FUSE_PARALLEL_DIROPS = 1 << 18, FUSE_POSIX_ACL = 1 << 20,
    FUSE_MAX_PAGES = 1 << 22, FUSE_CACHE_SYMLINKS = 1 << 23, FUSE_EXPLICIT_INVAL_DATA = 1 << 25,
    FUSE_NO_OPENDIR_SUPPORT = 1 << 24, FUSE_HANDLE_KILLPRIV_V2 = 1 << 28, FUSE_SETXATTR_EXT = 1 << 29, FUSE_INIT_EXT = 1 << 30,
}

// The second word of what INIT agrees on.
numbers! {
    FUSE2_DIRECT_IO_ALLOW_MMAP = 1 << 4, FUSE2_ALLOW_IDMAP = 1 << 8, FUSE2_OVER_IO_URING = 1 << 9,
}

// Commands of a ring.
numbers! {
    RING_REGISTER = 1, RING_COMMIT_AND_FETCH = 2,
}

// Which fields of a SETATTR count.
numbers! {
    FATTR_MODE = 1 << 0, FATTR_UID = 1 << 1, FATTR_GID = 1 << 2, FATTR_SIZE = 1 << 3,
    FATTR_ATIME = 1 << 4, FATTR_MTIME = 1 << 5, FATTR_ATIME_NOW = 1 << 7,
    FATTR_MTIME_NOW = 1 << 8, FATTR_CTIME = 1 << 10, FATTR_KILL_SUIDGID = 1 << 11,
}

// Flags of single requests and answers.
numbers! {
    FUSE_READ_LOCKOWNER = 1 << 1, FUSE_WRITE_LOCKOWNER = 1 << 1, FUSE_WRITE_CACHE = 1 << 0, FUSE_GETATTR_FH = 1 << 0,
    FUSE_WRITE_KILL_SUIDGID = 1 << 2, FUSE_OPEN_KILL_SUIDGID = 1 << 0,
    FUSE_LK_FLOCK = 1 << 0, FUSE_SETXATTR_ACL_KILL_SGID = 1 << 0, FUSE_FSYNC_FDATASYNC = 1 << 0,
    FOPEN_DIRECT_IO = 1 << 0, FOPEN_KEEP_CACHE = 1 << 1, FOPEN_CACHE_DIR = 1 << 3, FOPEN_NOFLUSH = 1 << 5,
    FUSE_NOTIFY_INVAL_INODE = 2, FUSE_NOTIFY_INVAL_ENTRY = 3,
    STATX_BASIC_AND_BTIME = 0xfff,
}
