//! Requests and replies.

use crate::compound::{Access, Compound, Compounded};
use crate::{Blocks, WriteData};
use siftfs_base::{InodeNr, Timestamp};
use siftfs_status::{CheckpointReport, RuntimeStatus, Trimmed};
use std::time::Duration;

/// The root directory's inode number.
pub const ROOT_INO: InodeNr = 2;

/// Largest file in bytes: ext4's 2^32 blocks of 4 KiB less one.
pub const MAX_FILE_SIZE: u64 = (1 << 44) - 4096;

/// A Frontend's session with the Runtime; open handles and tickets belong to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionId(pub u32);

/// An open file or directory, valid inside its session's Runtime.
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
}

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

/// What the caller of a request that carries paths may do besides what mode and owner give it. The
/// kernel has not checked those paths; the Runtime does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// CAP_DAC_OVERRIDE: every directory may be searched and changed.
    pub overrides_access: bool,
    /// CAP_FOWNER: another user's file may be taken out of a sticky directory, and changed.
    pub owns_all: bool,
    /// CAP_CHOWN: files may be given to others.
    pub gives_away: bool,
    /// CAP_FSETID: a change of a file leaves its set-id bits.
    pub keeps_set_id: bool,
    /// Any file may get one more name: the machine does not protect files against that
    /// (`fs.protected_hardlinks`).
    pub links_all: bool,
    /// How long files may become by what the caller writes (RLIMIT_FSIZE), if there is a bound.
    pub file_size: Option<u64>,
    /// Files that nobody may begin to write, because a program runs from them.
    pub running: Vec<InodeNr>,
}

impl Rights {
    /// Those of root.
    pub fn all() -> Self {
        Self {
            groups: Vec::new(),
            overrides_access: true,
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

/// A file-protocol request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the variants are POSIX calls; what is not obvious is said
pub enum Request {
    /// Find a name; counts one reference for [`Request::Forget`]. Reply: `Entry`.
    Lookup { parent: InodeNr, name: Vec<u8> },
    /// Give back `count` references that `Entry` replies counted. Reply: `Done`.
    Forget { ino: InodeNr, count: u64 },
    /// Reply: `Attr`.
    GetAttr { ino: InodeNr },
    /// Reply: `Attr`.
    SetAttr { ino: InodeNr, set: SetAttr },
    /// Reply: `Data`.
    ReadLink { ino: InodeNr },
    /// Anything but a directory, symlink; the umask comes with the credentials. Reply: `Entry`.
    MakeNode { parent: InodeNr, name: Vec<u8>, kind: FileKind, perm: u16, rdev: u32 },
    /// Reply: `Entry`.
    MakeDir { parent: InodeNr, name: Vec<u8>, perm: u16 },
    /// Reply: `Entry`.
    Symlink { parent: InodeNr, name: Vec<u8>, target: Vec<u8> },
    /// Reply: `Entry`.
    Link { ino: InodeNr, parent: InodeNr, name: Vec<u8> },
    /// Reply: `Done`.
    Unlink { parent: InodeNr, name: Vec<u8> },
    /// Reply: `Done`.
    RemoveDir { parent: InodeNr, name: Vec<u8> },
    /// Reply: `Done`.
    Rename {
        parent: InodeNr,
        name: Vec<u8>,
        new_parent: InodeNr,
        new_name: Vec<u8>,
        mode: RenameMode,
    },
    /// Create a regular file and open it. Reply: `Created`.
    Create { parent: InodeNr, name: Vec<u8>, perm: u16 },
    /// Create a regular file without a name and open it. It is gone with its last reference, at the
    /// latest with a crash, unless `Link` names it before, which `exclusive` rules out. `parent` is
    /// where it would be: it gives what a new file inherits. Reply: `Created`.
    TmpFile { parent: InodeNr, perm: u16, exclusive: bool },
    /// Open a regular file; truncates to 0 when asked. Reply: `Opened`.
    Open { ino: InodeNr, access: Access, truncate: bool, kill_priv: bool },
    /// Close a handle of either kind. Reply: `Done`.
    Release { handle: Handle },
    /// Up to `len` bytes; short only at end of file. Reply: `Data`, or `Blocks` for many.
    Read { file: Target, offset: u64, len: u32 },
    /// Write `data`, all of it unless it crosses [`MAX_FILE_SIZE`]: then up to there. `append` puts
    /// it at the end of file whatever `offset` says. Reply: `Written`.
    Write { file: Target, offset: u64, data: WriteData, append: bool, kill_priv: bool },
    /// Write pages that the kernel's cache held, or their begin if the file ends in the last one:
    /// what they say that the file says already is not written again. With `times` this is a
    /// change like `Write`; without, the kernel owns the times and sends them. Reply: `Written`.
    WriteBack { file: Target, offset: u64, data: WriteData, times: bool },
    /// A `Write`, `Allocate`, `Open`, `SectionCommit`, `SetAttr` or `RemoveXattr` (but of an access
    /// control list) that leaves mtime and ctime as they are: the kernel owns them and sends them.
    /// Reply: as without.
    Untimed(Box<Request>),
    /// Durable on return: data, size, name and everything recovery needs (crash model). Files
    /// and directories. `datasync` may leave times out. Reply: `Done`.
    Fsync { ino: InodeNr, datasync: bool },
    /// Stage what an `Fsync` would make durable, without a wait for storage: its place in the order
    /// of what is staged is fixed on return, and what is staged later is never durable without it.
    /// What cannot be staged is made durable at once. `EAGAIN` if too many of the session's tickets
    /// are not durable yet. Reply: `Ticket`.
    Stage { ino: InodeNr, datasync: bool },
    /// A ticket of everything staged so far. Errors and reply as of `Stage`.
    Barrier,
    /// Is everything up to a ticket durable? Makes that come soon. A durable ticket stays durable.
    /// `EINVAL` for one that the session did not draw, `EIO` if it never will be durable. Reply:
    /// `Durable`.
    Poll { ticket: Ticket },
    /// Wait until everything up to a ticket is durable, `ETIMEDOUT` after `timeout` (a flush that
    /// the caller's own thread has begun by then is waited for). Other errors as of `Poll`. Reply:
    /// `Done`.
    Wait { ticket: Ticket, timeout: Option<Duration> },
    /// The session is over: its tickets mean nothing any more, and its sections end. Reply: `Done`.
    EndSession,
    /// Reply: `Done`.
    Allocate { file: Target, mode: Allocate, offset: u64, len: u64 },
    /// Reply: `Offset`, or ENXIO.
    Seek { file: Target, offset: u64, whence: Seek },
    /// Reply: `Opened`.
    OpenDir { ino: InodeNr },
    /// Entries after `cookie` (0: from the start), about `max_bytes` of names; with `plus` each
    /// entry carries attributes and counts one reference except `.` and `..`. Reply: `Dir`.
    ReadDir { handle: Handle, cookie: u64, max_bytes: u32, plus: bool },
    /// Names such as `user.x`. Reply: `Data`.
    GetXattr { ino: InodeNr, name: Vec<u8> },
    /// Reply: `Names`.
    ListXattr { ino: InodeNr },
    /// An access control list (`system.posix_acl_access`, in Linux's form) changes the permission
    /// bits too; `kill_setgid` then clears setgid, as for a caller that is not in the file's group
    /// and has no CAP_FSETID. `mode` does not count for access control lists. Reply: `Done`.
    SetXattr { ino: InodeNr, name: Vec<u8>, value: Vec<u8>, mode: XattrMode, kill_setgid: bool },
    /// Reply: `Done`.
    RemoveXattr { ino: InodeNr, name: Vec<u8> },
    /// Flags as [`crate::flags`] has them. Reply: `Flags`.
    GetFlags { ino: InodeNr },
    /// Durable on return. `EOPNOTSUPP` for flags that cannot be set, `EPERM` for any but the
    /// immutable one of an immutable file. Reply: `Done`.
    SetFlags { ino: InodeNr, flags: u32 },
    /// The names of several files change together: other callers, and a crash, see all of them or
    /// none. Paths begin at the directory `base`. The Runtime itself checks what the caller may do.
    /// Reply: `Published`.
    Publish { base: InodeNr, entries: Vec<PublishEntry>, level: Level, rights: Rights },
    /// Start an atomic section on a regular file. `EBUSY` if it has one, `EMFILE` if there are too
    /// many, `ENOENT` for a file that has no name any more. Reply: `Section`.
    SectionStart { file: Target },
    /// Write into the section: its bytes are nobody else's before the commit. `EFBIG`, and the
    /// section stays as it was, if it would be more than one commit takes. Reply: `Written`.
    SectionWrite { section: SectionId, offset: u64, data: WriteData },
    /// Up to `len` bytes of the file as it will be after the commit; short only at its end. Reply:
    /// `Data`.
    SectionRead { section: SectionId, offset: u64, len: u32 },
    /// All writes of the sections become their files', in one staged transaction; the sections end.
    /// With `durable` it is durable on return, else ordered before all that is staged later.
    /// `ECANCELED` if one of them is void (rule R27), `EFBIG` if they are too much together,
    /// `ENOSPC`, `EAGAIN`: nothing is applied then, and the sections stay. Reply: `Done`.
    SectionCommit { sections: Vec<SectionId>, durable: bool },
    /// The section ends, and nothing of it was anywhere but in memory. Reply: `Done`.
    SectionAbort { section: SectionId },
    /// Steps whose changes are all made, or none: other callers, and a crash, never see a part. The
    /// Runtime itself checks what the caller may do. `E2BIG` if the changes are more than one
    /// staged transaction takes, or the steps too many, `EAGAIN` if what kept them out of one came
    /// back again and again. Reply: `Compounded`, which may say that a step is refused.
    Compound(Box<Compound>),
    /// Reply: `Statfs`.
    StatFs,
    /// Everything done before this call durable and journaled (`siftfs sync`). Reply: `Done`.
    SyncAll,
    /// Journal and checkpoint everything (`siftfs checkpoint`). Reply: `Checkpoint`.
    Checkpoint,
    /// Gives the space of free blocks back to what the volume lies on (FITRIM, `siftfs trim`):
    /// those among the `len` bytes from `start` on, in runs of `least` bytes or more. `EOPNOTSUPP`
    /// if the storage cannot, or the volume's blocks are reserved. Reply: `Trimmed`.
    Trim { start: u64, len: u64, least: u64 },
    /// Reply: `Status`.
    Status,
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

/// A file-protocol reply.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Reply {
    Done,
    Entry(Attr),
    Attr(Attr),
    Created {
        attr: Attr,
        handle: Handle,
    },
    Opened {
        handle: Handle,
    },
    Data(Vec<u8>),
    /// As `Data`, without a copy.
    Blocks(Blocks),
    Written {
        len: u32,
    },
    Offset(u64),
    Dir(Vec<DirEntry>),
    /// Names, each as getxattr takes it.
    Names(Vec<Vec<u8>>),
    Statfs(StatFs),
    Flags(u32),
    /// The names that changed, those taken away and those given, and the files whose attributes
    /// did: those that have other names now, and those that lost one.
    Published {
        names: Vec<(InodeNr, Vec<u8>)>,
        files: Vec<InodeNr>,
    },
    Ticket(Ticket),
    /// Is a ticket durable?
    Durable(bool),
    /// An atomic section that was started.
    Section(SectionId),
    /// What a compound came to.
    Compounded(Compounded),
    /// What the checkpoint did.
    Checkpoint(Box<CheckpointReport>),
    /// What the trim did.
    Trimmed(Trimmed),
    /// The status document, as far as there is one without a daemon.
    Status(Box<RuntimeStatus>),
}

impl Reply {
    /// The bytes of an answer that is data in either form.
    pub fn into_data(self) -> Option<Vec<u8>> {
        match self {
            Self::Data(bytes) => Some(bytes),
            Self::Blocks(blocks) => Some(blocks.to_vec()),
            _ => None,
        }
    }
}
