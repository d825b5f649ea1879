//! What may be asked of a Runtime.

use crate::compound::{Access, Compound};
use crate::{
    Allocate, FileKind, Handle, Held, LeaseId, Level, LockAsk, LockKind, LockRange, PublishEntry,
    RenameMode, Rights, SectionId, Seek, SetAttr, Target, Ticket, WriteData, XattrMode,
};
use siftfs_base::{InodeNr, Timestamp};
use std::time::Duration;

/// A file-protocol request.
///
/// Every request may also be refused with an errno of the call that it stands for. A change is in
/// memory when its reply comes, and durable as its variant says; after a failed flush every change
/// is `EIO`.
///
/// A change with `times` moves mtime and ctime as the call does. Without, both stay: a kernel owns
/// them that keeps back what is written, and sends them itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of the fields, which are the calls' arguments
pub enum Request {
    /// Find a name; counts one reference for [`Request::Forget`]. Reply: `Entry`.
    Lookup { parent: InodeNr, name: Vec<u8> },
    /// Give back `count` references that `Entry` replies counted. Reply: `Done`.
    Forget { ino: InodeNr, count: u64 },
    /// The attributes of an inode, also of one that is only looked up. Reply: `Attr`.
    GetAttr { file: Target },
    /// Change attributes, as chmod(2), chown(2), truncate(2) and utimensat(2). Not durable before a
    /// sync. Reply: `Attr`.
    SetAttr { file: Target, set: SetAttr, times: bool },
    /// The target of a symbolic link. Reply: `Data`.
    ReadLink { ino: InodeNr },
    /// Make a node that is neither a directory nor a symbolic link. The umask comes with the
    /// credentials. Reply: `Entry`.
    MakeNode { parent: InodeNr, name: Vec<u8>, kind: FileKind, perm: u16, rdev: u32 },
    /// Make a directory. Reply: `Entry`.
    MakeDir { parent: InodeNr, name: Vec<u8>, perm: u16 },
    /// Make a symbolic link. Reply: `Entry`.
    Symlink { parent: InodeNr, name: Vec<u8>, target: Vec<u8> },
    /// Give a file one more name. Reply: `Entry`.
    Link { ino: InodeNr, parent: InodeNr, name: Vec<u8> },
    /// Take a name away, which is no directory's. Reply: `Done`.
    Unlink { parent: InodeNr, name: Vec<u8> },
    /// Remove an empty directory. Reply: `Done`.
    RemoveDir { parent: InodeNr, name: Vec<u8> },
    /// Give a file or directory another name, as renameat2(2). Reply: `Done`.
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
    /// Open a regular file; truncates to 0 when asked. `beside_lease`: the program that opens it
    /// holds the file's write lease by another session. That lease goes on, unless the file is
    /// truncated. Only a kernel's session says so. Reply: `Opened`.
    Open {
        ino: InodeNr,
        access: Access,
        truncate: bool,
        kill_priv: bool,
        times: bool,
        beside_lease: bool,
    },
    /// A handle that stands for an inode of any kind in requests about it, and may neither be read
    /// nor written. Reply: `Opened`.
    Hold { ino: InodeNr },
    /// Close a handle of any kind. Reply: `Done`.
    Release { handle: Handle },
    /// Up to `len` bytes; short only at end of file. Reply: `Data`, or `Blocks` for many.
    Read { file: Target, offset: u64, len: u32 },
    /// Write `data`, all of it unless it crosses [`crate::MAX_FILE_SIZE`]: then up to there.
    /// `append` puts it at the end of file whatever `offset` says. Reply: `Written`.
    Write { file: Target, offset: u64, data: WriteData, append: bool, kill_priv: bool, times: bool },
    /// A kernel's write by a descriptor with O_APPEND. `end` is where the kernel believes the end
    /// to be: if that is one that it may believe in because it was not told of a newer one yet,
    /// `data` goes to the end, else to `end` (rule R50). The rest is as of `Write`. Reply:
    /// `Written`.
    Append { file: Target, end: u64, data: WriteData, kill_priv: bool, times: bool },
    /// Write pages that the kernel's cache held, or their begin if the file ends in the last one:
    /// what they say that the file says already is not written again. Reply: `Written`.
    WriteBack { file: Target, offset: u64, data: WriteData, times: bool },
    /// Durable on return: data, size, name and everything recovery needs (crash model). Files
    /// and directories. `datasync` may leave times out. Reply: `Done`.
    Fsync { file: Target, datasync: bool },
    /// Stage what an `Fsync` would make durable, without a wait for storage: its place in the order
    /// of what is staged is fixed on return, and what is staged later is never durable without it.
    /// What cannot be staged is made durable at once. `EAGAIN` if too many of the session's tickets
    /// are not durable yet. Reply: `Ticket`.
    Stage { file: Target, datasync: bool },
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
    /// The session is over, and all that it has ends: handles, references, sections, tickets,
    /// locks, and waits for such with `ESTALE`. Every later request of it is `ESTALE`. Reply:
    /// `Done`.
    EndSession,
    /// fallocate(2). Reply: `Done`.
    Allocate { file: Target, mode: Allocate, offset: u64, len: u64, times: bool },
    /// lseek(2) for data or a hole. Reply: `Offset`, or ENXIO.
    Seek { file: Target, offset: u64, whence: Seek },
    /// Open a directory to read it. Reply: `Opened`.
    OpenDir { ino: InodeNr },
    /// Entries after `cookie` (0: from the start), `max_bytes` of them ([`crate::DirEntry::size`]),
    /// but one at least, and all that share its cookie; with `plus` each entry carries attributes
    /// and counts one reference except `.` and `..`. Reply: `Dir`.
    ReadDir { handle: Handle, cookie: u64, max_bytes: u32, plus: bool },
    /// The value of an extended attribute. Names are whole, such as `user.x`. Reply: `Data`.
    GetXattr { file: Target, name: Vec<u8> },
    /// The names of all extended attributes. Reply: `Names`.
    ListXattr { file: Target },
    /// An access control list (`system.posix_acl_access`, in Linux's form) changes the permission
    /// bits too; `kill_setgid` then clears setgid, as for a caller that is not in the file's group
    /// and has no CAP_FSETID. `mode` does not count for access control lists. Reply: `Done`.
    SetXattr { file: Target, name: Vec<u8>, value: Vec<u8>, mode: XattrMode, kill_setgid: bool },
    /// Remove an extended attribute. An access control list goes with `times` alone. Reply: `Done`.
    RemoveXattr { file: Target, name: Vec<u8>, times: bool },
    /// The inode's flags, as [`crate::flags`] has them. Reply: `Flags`.
    GetFlags { file: Target },
    /// Set the inode's flags, which are durable on return. `EOPNOTSUPP` for flags that cannot be
    /// set, `EPERM` for any but the immutable one of an immutable file. Reply: `Done`.
    SetFlags { file: Target, flags: u32 },
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
    SectionCommit { sections: Vec<SectionId>, durable: bool, times: bool },
    /// The section ends, and nothing of it was anywhere but in memory. Reply: `Done`.
    SectionAbort { section: SectionId },
    /// Steps whose changes are all made, or none: other callers, and a crash, never see a part. The
    /// Runtime itself checks what the caller may do. `E2BIG` if the changes are more than one
    /// staged transaction takes, or the steps too many, `EAGAIN` if what kept them out of one came
    /// back again and again. Reply: `Compounded`, which may say that a step is refused.
    Compound(Box<Compound>),
    /// Which lock of another owner keeps this one from being granted (F_GETLK)? `EBADF` for a file
    /// that is not open. Reply: `Lock`.
    GetLock { file: Target, owner: u64, range: LockRange, kind: LockKind },
    /// Take a lock, or give it up. It ends with the session, and with the handle through which it
    /// was taken. `EBADF` if the file is not open, or a range is to be locked for what the handle
    /// may not do. `EAGAIN` if another owner is in the way and no wait is asked for. With a wait,
    /// the answer to [`crate::FileService::submit`] comes when the lock is granted, in the order of
    /// the requests as far as they stand in each other's way, and no thread waits for it; it is
    /// `EDEADLK` if the wait would never end, `EINTR` if it is ended by `CancelLock`, `EBADF` if
    /// its handle is closed meanwhile, `EINVAL` for the number of another wait. `ENOLCK` beyond the
    /// bounds on locks and waits. Reply: `Done`.
    SetLock { file: Target, ask: LockAsk },
    /// A descriptor of an open file is closed, perhaps the last one, which is not known before
    /// `Release`. What `owner` has of the bytes of `ino` ends, and what was taken through `handle`
    /// may be about to end. For a kernel's session. Reply: `Done`.
    CloseLocks { ino: InodeNr, handle: Handle, owner: u64 },
    /// The wait of `SetLock` with this number ends, if there is one: its answer is `EINTR`, given
    /// before this one's. Reply: `Done`.
    CancelLock { number: u64 },
    /// Take the write lease of a regular file, open to be written: until it ends, the holder may
    /// keep changes of the file's bytes that nobody else has seen. What was pending of the file is
    /// durable before. Another session's request for the file recalls the lease, and waits until it
    /// has ended: the holder gives its changes by `LeaseWrite` and ends it by `LeaseReturn`, within
    /// the term that the reply tells, or loses both. A use of it begins the term anew, until it is
    /// recalled. `EOPNOTSUPP` for a session without a [`Holder`](crate::Holder), `ENOENT` for a
    /// file that has no name and never will, `EBUSY` if the session has the lease, or there is a
    /// section on the file; `EAGAIN` if others use the file just now, or did so again and again, or
    /// there are too many leases. Reply: `Leased`.
    ///
    /// With `writers`, the holder is a program that has opened the file through other sessions:
    /// that often is it open there to be written by the program itself. `EAGAIN` if it is open to
    /// be written there more or less often at the moment of the grant, `EOPNOTSUPP` for a file with
    /// set-id bits or capabilities, and for one that is immutable or append-only.
    ///
    /// A session that lends sets space aside with its first lease, for as long as it has one, for
    /// what it answers before it gives it. `ENOSPC` if there is none, or what was set aside was
    /// used and is not whole again.
    ///
    /// With `direct`, blocks are granted with it as by `LeaseDirect` with so much room, if `file`
    /// is open to be read and written. What stands in the way of that is not told, and the lease
    /// is granted nevertheless.
    Lease { file: Target, writers: Option<u64>, direct: Option<u64> },
    /// Write what nobody else has seen, as `Write` does, also while the lease is recalled. The file
    /// was written at `time`, if the holder says so, but not before it was changed last, and not
    /// after now. `ESTALE` if the lease has ended, or is another session's. Reply: `Written`, or
    /// `WrittenLast`, which only a session that lends is told. With `durable` what was written is
    /// durable before the answer, as after `Fsync` with `datasync`; what a program has written at
    /// the storage's target is no concern of it. If that fails, it is written and not durable.
    LeaseWrite {
        lease: LeaseId,
        offset: u64,
        data: WriteData,
        time: Option<Timestamp>,
        durable: bool,
    },
    /// Which of `count` blocks of the file from `first` on, at most 64, are in storage and not in
    /// memory? A write of a part of such a one has to read it. Those of them that `bring` names by
    /// their bits are read before the answer. Errors as of `LeaseWrite`, and those of reading.
    /// Reply: `Located`.
    LeaseLocate { lease: LeaseId, first: u64, count: u32, bring: u64 },
    /// Begin the term anew, unless the lease is recalled. Errors as of `LeaseWrite`. Reply: `Done`.
    LeaseKeep { lease: LeaseId },
    /// The lease ends. Errors as of `LeaseWrite`. Reply: `Done`.
    LeaseReturn { lease: LeaseId },
    /// Have what is pending of the leased file brought home, and blocks of it granted, so that a
    /// program reads and writes them at the storage's target by itself (`docs/design/target.md`).
    /// `file` is open to be read and written. Blocks for `room` bytes more than the file has are
    /// set aside behind its end, [`ROOM_MOST`](crate::ROOM_MOST) at most, and granted with it; less
    /// or none of it, where space is short. What was granted before is taken back first, and so
    /// it is by anything that the session does with the file but `Read`, `LeaseWrite` and
    /// `LeaseLocate` beside the granted blocks, `LeaseKeep`, `LeaseExtend`, `Fsync`, and what only
    /// looks at attributes. `Fsync` covers what was written at the target and answered; it is `EIO`
    /// once if the target has died since the grant: what was not durable there may be lost, as the
    /// program's connection tells as well. Errors as of `LeaseWrite`; `EOPNOTSUPP` where no target
    /// has the storage, and for a file with set-id bits or capabilities, and one that is immutable
    /// or append-only; `EAGAIN` if too much is granted, or it is being done; `EIO`, once, if what
    /// was written under the grant before may be lost, which has ended then. Reply: `Direct`.
    LeaseDirect { lease: LeaseId, file: Target, room: u64 },
    /// Have more blocks of the leased file granted, by the grant that there is, which stays: those
    /// from the file's block `first` on that are home, and, where `end` is more than the file's
    /// size, room up to that byte, bounded as that of `LeaseDirect`. Nothing is taken back.
    /// Errors as of `LeaseDirect`; `ESTALE` as well if nothing is granted, and no `EIO`. Reply:
    /// `Extended`.
    LeaseExtend { lease: LeaseId, file: Target, first: u64, end: u64 },
    /// As `LeaseDirect`, to read blocks of a file that nobody holds a lease of; others may have the
    /// same at once. `file` is an open handle that may be read. The grant is taken back by whatever
    /// changes the file, ends with the handle, and takes the place of the handle's last one: the
    /// program's connection tells. Errors: `EBADF` for a handle that may not be read, `EINVAL` for
    /// what is no handle of a regular file, `EOPNOTSUPP` where no target has the storage, and on a
    /// volume that is read-only; `EAGAIN` if the file is leased or in an atomic section, or changes
    /// meanwhile, if the session has too much granted, or all have. Reply: `Direct`.
    ReadDirect { file: Target },
    /// Count references to inodes that a kernel had looked up before its server died, at most
    /// [`HOLD_MOST`](crate::HOLD_MOST) of them, each `count` times. For a kernel's session and the
    /// owner's; `EPERM` for others, `EINVAL` for a count of 0. Reply: `Gone`, with those that have
    /// no name any more and to which no session refers, or whose number is another file's, of which
    /// nothing is counted.
    HoldMany { inodes: Vec<Held> },
    /// Space and inodes. Reply: `Statfs`.
    StatFs,
    /// Everything done before this call durable and journaled (`siftfs sync`). Reply: `Done`.
    SyncAll,
    /// Journal and checkpoint everything (`siftfs checkpoint`). Reply: `Checkpoint`.
    Checkpoint,
    /// Gives the space of free blocks back to what the volume lies on (FITRIM, `siftfs trim`):
    /// those among the `len` bytes from `start` on, in runs of `least` bytes or more. `EOPNOTSUPP`
    /// if the storage cannot, or the volume's blocks are reserved. Reply: `Trimmed`.
    Trim { start: u64, len: u64, least: u64 },
    /// Counters and state. Reply: `Status`.
    Status,
}

impl Request {
    /// open(2) without O_TRUNC.
    pub fn open(ino: InodeNr, access: Access) -> Self {
        let (truncate, kill_priv, times, beside_lease) = (false, false, true, false);
        Self::Open { ino, access, truncate, kill_priv, times, beside_lease }
    }

    /// pwrite(2) of all of `data`. The file keeps its set-id bits: the caller may do that, or has
    /// taken them away.
    pub fn write(file: impl Into<Target>, offset: u64, data: impl Into<WriteData>) -> Self {
        let (file, data) = (file.into(), data.into());
        Self::Write { file, offset, data, append: false, kill_priv: false, times: true }
    }
}
