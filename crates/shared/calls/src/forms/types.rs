//! What requests and replies are made of.

use crate::FileProtocol;
use siftfs_base::{Result, Timestamp};
use siftfs_codec::{Field, Reader, Writer, fields, newtypes, variants};
use siftfs_proto::{
    Allocate, Attr, Credentials, DirEntry, Direct, DirectRun, FileKind, Handle, Held, HeldLock,
    LeaseId, Level, LockAsk, LockKind, LockPlace, LockRange, LockWait, PublishEntry, PublishSource,
    RenameMode, Rights, SectionId, Seek, SetAttr, SetTime, StatFs, Target, Ticket, WaitUntil,
    XattrMode,
};
use std::time::Duration;

newtypes!(FileProtocol: Handle, Ticket, SectionId, LeaseId);

/// Set in the umask's number where rights follow; no umask has it.
const WITH_RIGHTS: u16 = 1 << 15;

/// The call's origin is the server's to say.
impl Field<FileProtocol> for Credentials {
    fn put(&self, out: &mut Writer<FileProtocol>) {
        let Self { uid, gid, pid, umask, rights, origin: _ } = self;
        [uid, gid, pid].into_iter().for_each(|id| id.put(out));
        let follows = if rights.is_some() { WITH_RIGHTS } else { 0 };
        ((umask & !WITH_RIGHTS) | follows).put(out);
        rights.iter().for_each(|rights| rights.put(out));
    }
    fn get(from: &mut Reader<'_, FileProtocol>) -> Result<Self> {
        let (uid, gid, pid) = (Field::get(from)?, Field::get(from)?, Field::get(from)?);
        let umask: u16 = Field::get(from)?;
        let rights = (umask & WITH_RIGHTS != 0).then(|| Field::get(from)).transpose()?;
        Ok(Self { uid, gid, pid, umask: umask & !WITH_RIGHTS, rights, origin: None })
    }
}

fields!(FileProtocol: Direct { token, target, runs });

fields!(FileProtocol: DirectRun { first, block, count, fresh });

fields!(FileProtocol: Held { ino, generation, count });

variants!(FileProtocol: Target {} tuple {
    1 => Open(it),
    2 => Inode(it),
});

variants!(FileProtocol: FileKind {
    1 => Regular {},
    2 => Directory {},
    3 => Symlink {},
    4 => CharDevice {},
    5 => BlockDevice {},
    6 => Fifo {},
    7 => Socket {},
});

fields!(FileProtocol: Attr {
    ino,
    generation,
    kind,
    perm,
    nlink,
    uid,
    gid,
    rdev,
    size,
    blocks,
    atime,
    mtime,
    ctime,
    crtime,
    held,
});

fields!(FileProtocol: SetAttr {
    perm,
    uid,
    gid,
    size,
    atime,
    mtime,
    ctime,
    kill_priv,
    kill_setgid,
    keep_priv,
});

variants!(FileProtocol: SetTime {
    1 => Now {},
} tuple {
    2 => At(it),
});

variants!(FileProtocol: Allocate {
    1 => Grow {},
    2 => KeepSize {},
    3 => PunchHole {},
    4 => ZeroRange {},
    5 => ZeroRangeKeepSize {},
});

variants!(FileProtocol: XattrMode { 1 => Set {}, 2 => Create {}, 3 => Replace {} });

variants!(FileProtocol: RenameMode {
    1 => Replace {},
    2 => NoReplace {},
    3 => Exchange {},
    4 => Whiteout {},
    5 => WhiteoutNoReplace {},
});

variants!(FileProtocol: Seek { 1 => Data {}, 2 => Hole {} });

fields!(FileProtocol: Rights {
    groups,
    overrides_access,
    reads_all,
    owns_all,
    gives_away,
    keeps_set_id,
    makes_devices,
    sets_fixed,
    sets_capabilities,
    administers,
    links_all,
    file_size,
    running,
});

variants!(FileProtocol: PublishSource {} tuple {
    1 => Path(it),
    2 => Open(it),
});

fields!(FileProtocol: PublishEntry { source, to, replace });

variants!(FileProtocol: Level { 1 => Visible {}, 2 => Atomic {}, 3 => Durable {} });

fields!(FileProtocol: DirEntry { ino, cookie, kind, name, attr });

fields!(FileProtocol: StatFs {
    block_size,
    blocks,
    free,
    available,
    files,
    files_free,
    name_max,
});

variants!(FileProtocol: LockKind { 1 => Read {}, 2 => Write {} });

variants!(FileProtocol: LockPlace {
    1 => Whole {},
} tuple {
    2 => Range(it),
});

fields!(FileProtocol: LockAsk { owner, pid, place, kind, wait });

fields!(FileProtocol: LockWait { number, until });

variants!(FileProtocol: WaitUntil { 1 => Process {}, 2 => File {}, 3 => Closed {} });

fields!(FileProtocol: HeldLock { kind, range, pid });

impl Field<FileProtocol> for LockRange {
    fn put(&self, out: &mut Writer<FileProtocol>) {
        self.first().put(out);
        self.last().put(out);
    }
    fn get(from: &mut Reader<'_, FileProtocol>) -> Result<Self> {
        let (first, last) = (u64::get(from)?, u64::get(from)?);
        Self::new(first, last).ok_or_else(|| from.bad(format!("a lock of {first} to {last}")))
    }
}

const SECOND: u32 = 1_000_000_000;

fn nanoseconds(from: &mut Reader<'_, FileProtocol>) -> Result<u32> {
    let nanoseconds = u32::get(from)?;
    match nanoseconds < SECOND {
        true => Ok(nanoseconds),
        false => Err(from.bad(format!("{nanoseconds} nanoseconds of a second"))),
    }
}

impl Field<FileProtocol> for Timestamp {
    fn put(&self, out: &mut Writer<FileProtocol>) {
        assert!(self.nsec < SECOND, "a time is what its reader demands");
        self.sec.put(out);
        self.nsec.put(out);
    }
    fn get(from: &mut Reader<'_, FileProtocol>) -> Result<Self> {
        Ok(Self { sec: i64::get(from)?, nsec: nanoseconds(from)? })
    }
}

impl Field<FileProtocol> for Duration {
    fn put(&self, out: &mut Writer<FileProtocol>) {
        self.as_secs().put(out);
        self.subsec_nanos().put(out);
    }
    fn get(from: &mut Reader<'_, FileProtocol>) -> Result<Self> {
        Ok(Self::new(u64::get(from)?, nanoseconds(from)?))
    }
}
