//! What requests and replies are made of.

use crate::Origin;
use siftfs_base::{InodeNr, Timestamp};
use std::sync::Arc;

/// The root directory's inode number.
pub const ROOT_INO: InodeNr = 2;

/// Largest file in bytes: ext4's 2^32 blocks of 4 KiB less one.
pub const MAX_FILE_SIZE: u64 = (1 << 44) - 4096;

/// An open file or directory of one session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(pub u64);

/// The file of a request for data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// One that the session has open. `EBADF` if it has not, or not for this (rule R31).
    Open(Handle),
    /// This inode, for a Frontend that has checked the access itself: the kernel's pages outlive
    /// the descriptor that wrote them.
    Inode(InodeNr),
}

impl From<Handle> for Target {
    fn from(handle: Handle) -> Self {
        Self::Open(handle)
    }
}

impl From<InodeNr> for Target {
    fn from(ino: InodeNr) -> Self {
        Self::Inode(ino)
    }
}

/// A position in the order of what is staged, to learn later that everything up to it is durable.
/// It belongs to the session that drew it and means nothing in another one, nor after the volume
/// was closed (rule R31).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub u64);

/// An atomic section of one file: writes that become the file's together, or not at all. It belongs
/// to the session that started it and means nothing in another one (rule R31).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SectionId(pub u64);

/// A write lease of one file. It belongs to the session that took it and means nothing in another
/// one (rule R31).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LeaseId(pub u64);

/// The process that asks. Permission to the object was already checked by the Frontend (FUSE:
/// `default_permissions`); the Runtime needs it for ownership, setgid, sticky directories,
/// kill-privilege rules and reserved blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Process id, 0 when unknown.
    pub pid: u32,
    /// Permission bits that what this caller makes does not get, unless the directory has a
    /// default access control list.
    pub umask: u16,
    /// Which call of another machine's client this is, if it is one: from that client's server,
    /// never from a wire.
    pub origin: Option<Arc<Origin>>,
    /// Groups and capabilities, for a session whose callers the Runtime checks one by one
    /// ([`crate::Identity::Machine`], and [`crate::Identity::Program`]); without them the caller
    /// has none. All other sessions' count for nothing.
    pub rights: Option<Box<Rights>>,
}

/// Blocks of a leased file that a program reads and writes at the storage's target by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Direct {
    /// What admits the program's connection there. A caller that knows it has them.
    pub token: [u8; 32],
    /// Where the target is, as the host names it.
    pub target: String,
    /// The file's blocks, in order.
    pub runs: Vec<DirectRun>,
}

/// Blocks of a file that follow each other there and in the area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectRun {
    /// The first one's place in the file, in blocks.
    pub first: u64,
    /// The first one's number in the area.
    pub block: u64,
    /// How many.
    pub count: u64,
    /// None of them was ever written: they read as zeros until the program has written them, and
    /// what it writes is the file's durably after an fsync by the host alone.
    pub fresh: bool,
}

/// Most bytes of room that one [`Request::LeaseDirect`](crate::Request::LeaseDirect) asks for; what
/// is beyond that is cut.
pub const ROOM_MOST: u64 = 64 << 20;

/// An inode that a session refers to by lookups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Its number.
    pub ino: InodeNr,
    /// Its generation, as [`Attr::generation`] has it.
    pub generation: u32,
    /// How many lookups, at least 1.
    pub count: u32,
}

/// Most inodes of one [`Request::HoldMany`](crate::Request::HoldMany).
pub const HOLD_MOST: usize = 4096;

/// Type of a file, as in a directory entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// Attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: InodeNr,
    /// Generation: differs when a number is reused.
    pub generation: u32,
    /// Type.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky (07777).
    pub perm: u16,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, as `makedev` packs it for Linux userspace.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in 512-byte units, delayed allocations included.
    pub blocks: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Change time.
    pub ctime: Timestamp,
    /// Creation time.
    pub crtime: Timestamp,
    /// Another session holds the write lease of the file: size and modification time are what its
    /// holder shows, and count for this moment only.
    pub held: bool,
}

/// What others are shown of a file whose holder has changes that nobody else has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its size in bytes.
    pub size: u64,
    /// When it was written last.
    pub mtime: Timestamp,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The Runtime's present time.
    Now,
    /// This time.
    At(Timestamp),
}

/// Changes to attributes; `None` leaves a field alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits (07777).
    pub perm: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// New change time; without it, the change itself sets it to now.
    pub ctime: Option<Timestamp>,
    /// Clear setuid and setgid (group-executable) and `security.capability`, as for a write by
    /// a caller without CAP_FSETID.
    pub kill_priv: bool,
    /// Clear setgid although the group may not execute, as for a caller that is not in the file's
    /// group.
    pub kill_setgid: bool,
    /// A new owner or group clears nothing: it is no chown(2) of a user.
    pub keep_priv: bool,
}

/// fallocate(2) modes that FUSE passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Allocate and grow the size.
    Grow,
    /// Allocate, keep the size.
    KeepSize,
    /// Punch a hole, keep the size.
    PunchHole,
    /// Zero the range, grow the size.
    ZeroRange,
    /// Zero the range, keep the size.
    ZeroRangeKeepSize,
}

/// setxattr(2) flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Set,
    /// XATTR_CREATE.
    Create,
    /// XATTR_REPLACE.
    Replace,
}

/// renameat2(2) flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace the target if there is one.
    Replace,
    /// RENAME_NOREPLACE.
    NoReplace,
    /// RENAME_EXCHANGE.
    Exchange,
    /// RENAME_WHITEOUT: replace the target, and leave a character device 0:0 under the old name, in
    /// one step.
    Whiteout,
    /// RENAME_WHITEOUT with RENAME_NOREPLACE.
    WhiteoutNoReplace,
}

/// lseek(2) whence that only a file system can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE.
    Hole,
}

/// What a caller may do besides what mode and owner give it, where no kernel has checked that and
/// the Runtime does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// CAP_DAC_OVERRIDE: every file may be read and written, every directory searched and changed.
    pub overrides_access: bool,
    /// CAP_DAC_READ_SEARCH: every file may be read, and every directory searched.
    pub reads_all: bool,
    /// CAP_FOWNER: another user's file may be taken out of a sticky directory, and changed.
    pub owns_all: bool,
    /// CAP_CHOWN: files may be given to others.
    pub gives_away: bool,
    /// CAP_FSETID: a change of a file leaves its set-id bits.
    pub keeps_set_id: bool,
    /// CAP_MKNOD: device files may be made.
    pub makes_devices: bool,
    /// CAP_LINUX_IMMUTABLE: files may become immutable or append-only, and the reverse.
    pub sets_fixed: bool,
    /// CAP_SETFCAP: files may be given capabilities.
    pub sets_capabilities: bool,
    /// CAP_SYS_ADMIN: the attributes `trusted.` and `security.` may be seen and changed.
    pub administers: bool,
    /// Any file may get one more name: the machine does not protect files against that
    /// (`fs.protected_hardlinks`).
    pub links_all: bool,
    /// How long files may become by what the caller writes (RLIMIT_FSIZE), if there is a bound.
    pub file_size: Option<u64>,
    /// Files that nobody may begin to write, because a program runs from them.
    pub running: Vec<InodeNr>,
}

impl Rights {
    /// Those of a user without groups and capabilities.
    pub const NONE: Self = Self {
        groups: Vec::new(),
        overrides_access: false,
        reads_all: false,
        makes_devices: false,
        sets_fixed: false,
        sets_capabilities: false,
        administers: false,
        owns_all: false,
        gives_away: false,
        keeps_set_id: false,
        links_all: false,
        file_size: None,
        running: Vec::new(),
    };

    /// Those of root.
    pub fn all() -> Self {
        Self {
            groups: Vec::new(),
            overrides_access: true,
            reads_all: true,
            makes_devices: true,
            sets_fixed: true,
            sets_capabilities: true,
            administers: true,
            owns_all: true,
            gives_away: true,
            keeps_set_id: true,
            links_all: true,
            file_size: None,
            running: Vec::new(),
        }
    }
}

/// What gets a new name in a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishSource {
    /// The file that this path names. It loses that name.
    Path(Vec<u8>),
    /// An open file, which keeps the names that it has, or has none (O_TMPFILE).
    Open(Handle),
}

/// One name of a publish. Paths are relative, of names with `/` between; no symbolic link in them
/// is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishEntry {
    /// What gets the name.
    pub source: PublishSource,
    /// The name it gets.
    pub to: Vec<u8>,
    /// A file that has this name already loses it; without, that is EEXIST.
    pub replace: bool,
}

/// How far a change of several files is when its call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Other callers see all of it.
    Visible,
    /// And its record has its place in the log: what is staged later never survives without it.
    Atomic,
    /// And it is durable.
    Durable,
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Inode number.
    pub ino: InodeNr,
    /// Cookie to continue after this entry.
    pub cookie: u64,
    /// Type.
    pub kind: FileKind,
    /// Name.
    pub name: Vec<u8>,
    /// Attributes, when asked for.
    pub attr: Option<Attr>,
}

impl DirEntry {
    /// Bytes of `max_bytes` that an entry with a name of `name` bytes takes; with `plus` its
    /// attributes, too. They are those that it takes of a buffer of the kernel's (FUSE), so that an
    /// answer fits what it was asked for.
    pub fn size(name: usize, plus: bool) -> usize {
        const HEAD: usize = 24;
        const ATTRIBUTES: usize = 128;
        (HEAD + name).next_multiple_of(8) + if plus { ATTRIBUTES } else { 0 }
    }
}

/// statfs(2), in blocks of `block_size` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StatFs {
    /// Bytes per block.
    pub block_size: u32,
    /// Data blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks for callers without privilege.
    pub available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}
