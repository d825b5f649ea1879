//! Calls on the storage of the Service's process, which is then the host's only way to it
//! (`docs/design/target.md`). They are those of [`siftfs_device::Device`], with its promises.

use siftfs_base::{Error, SharedBlock};
use siftfs_device::{DeviceInfo, Discards, Medium, Role};

/// Blocks that a read or a write carries at most.
pub const STORAGE_MAX_BLOCKS: usize = 64;

/// Devices of a volume at most: that of its area, of a log elsewhere and of a record area.
pub const STORAGE_MAX_DEVICES: usize = 3;

/// Runs of blocks that one grant names at most.
pub const GRANT_MAX_RUNS: usize = 4096;
/// Runs that a grant has at most, with all that was added to it.
pub const GRANT_ALL_RUNS: usize = 64 << 10;

/// Requests of one queue that are under way at once: a request's number is less than this above
/// the lowest one that has not ended.
pub const QUEUE_WINDOW: u64 = 64;

/// Which requests of a queue's life were carried out: what is not known of it to have been answered
/// has, or is done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The last one of which a request has come.
    pub life: u64,
    /// All lower numbers have ended.
    pub low: u64,
    /// Bit `i`: the number `low - 64 + i` was carried out.
    pub before: u64,
    /// Bit `i`: the number `low + i` was carried out.
    pub from: u64,
}

impl Carried {
    /// Was a request carried out, of the 64 before `low` or from there on?
    pub fn has(&self, number: u64) -> bool {
        let bit = |at: u64| u32::try_from(at).ok().and_then(|at| 1u64.checked_shl(at));
        let (bits, bit) = match number.checked_sub(self.low) {
            Some(at) => (self.from, bit(at)),
            None => {
                let at = QUEUE_WINDOW.checked_sub(self.low.saturating_sub(number));
                (self.before, at.and_then(bit))
            }
        };
        bit.is_some_and(|bit| bits & bit != 0)
    }
}

/// The number of a request that is in no order: it begins when it comes, and none waits for it.
pub const UNORDERED: u64 = u64::MAX;

/// Queues of one connection at most.
pub const CONNECTION_MAX_QUEUES: usize = 64 << 10;

/// Where a request belongs among those of its queue (`docs/design/target.md`, "Queues").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Which queue of this connection.
    pub queue: u32,
    /// The request's own number, which names its slot, too. The first one of a life is 0, and none
    /// is left out. Or [`UNORDERED`].
    pub number: u64,
    /// The request begins when all with lower numbers than this have ended: the first number of its
    /// group.
    pub first: u64,
}

/// Ranges that one [`StorageCall::AtomicWrite`] names at most.
pub const ATOMIC_MAX_RUNS: usize = 1024;

/// Bytes of the area that an atomic write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRun {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// Fresh blocks that one grant names at most.
pub const GRANT_MAX_FRESH: u64 = 1 << 20;

/// Runs of blocks that one [`StorageAnswer::Settled`] reports at most.
pub const SETTLED_MAX_RUNS: usize = 1024;

/// Stands for a grant: what only the target and those whom its host has told can know. The first
/// half stands for the target's process, the second for the grant.
pub type Token = [u8; 32];

/// Blocks of a file that follow each other there and in the area, and are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantRun {
    /// The first one's number in the area.
    pub block: u64,
    /// How many.
    pub len: u64,
    /// The first one's place in the file, in blocks.
    pub first: u64,
    /// None of them was ever written by the file: they read as zeros until the program has written
    /// them, whatever the area has there (rule R30).
    pub fresh: bool,
}

/// Blocks of a file that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRun {
    /// The first one's place in the file, in blocks.
    pub first: u64,
    /// How many.
    pub len: u64,
}

/// For what a volume's storage is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To write, with both roles, which no other process has.
    Alone,
    /// To read, beside other readers.
    ReadOnly,
    /// To write, with the roles that are claimed later: by a host whose connection was lost.
    Shared,
}

/// One device of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageDevice {
    /// Size in bytes.
    pub size: u64,
    /// What a power cut tears a write at.
    pub medium: Medium,
    /// What giving space back can do; `None` where it cannot be given back.
    pub discards: Option<Discards>,
}

/// A call on the storage. A device is named by its place in [`StorageAnswer::Opened`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageCall {
    /// First message of the connection. What was opened is closed, and its roles are free, when the
    /// connection has ended and its calls have.
    Open {
        /// [`crate::PROTOCOL_VERSION`] of the host.
        version: u32,
        /// What the volume is called there, or its UUID.
        volume: String,
        /// For what.
        access: Access,
    },
    /// Takes a role, waiting at most so long for another holder.
    Claim {
        /// Of which device.
        device: u8,
        /// Which one.
        role: Role,
        /// In milliseconds.
        patience: u32,
    },
    /// Gives a role back.
    Unclaim {
        /// Of which device.
        device: u8,
        /// Which one.
        role: Role,
    },
    /// Reads bytes; [`STORAGE_MAX_BLOCKS`] blocks of them at most.
    Read {
        /// Of which device.
        device: u8,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Writes the first `len` bytes of these blocks. The last block is filled with zeros.
    Write {
        /// To which device.
        device: u8,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
        /// The write is durable before it is answered: an fsync is one round trip.
        durable: bool,
        /// What to write, [`STORAGE_MAX_BLOCKS`] at most.
        blocks: Vec<SharedBlock>,
    },
    /// Makes durable what was answered before this call was sent.
    Flush {
        /// Which device.
        device: u8,
    },
    /// Gives the space of these bytes back.
    Discard {
        /// Of which device.
        device: u8,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Describes a device, for reports.
    Describe {
        /// Which one.
        device: u8,
    },
    /// The caller that has the token of the answer may read these blocks, until `Revoke`, or until
    /// this connection has ended. For the host's role.
    Grant {
        /// What the host calls it.
        lease: u64,
        /// Whose blocks they are. A file has one grant to write, or any number to read.
        file: u64,
        /// The caller may write them, too.
        write: bool,
        /// Blocks of the area: [`GRANT_MAX_RUNS`] runs and [`GRANT_MAX_FRESH`] fresh blocks at
        /// most.
        runs: Vec<GrantRun>,
    },
    /// A grant that lasts names these blocks, too, when this is answered, for what it may be used
    /// for already: all of them, or none. `ESTALE`: it has ended.
    Extend {
        /// Which one.
        lease: u64,
        /// By what it was granted.
        token: Token,
        /// Blocks of the area that it does not name yet, bounded as those of `Grant`; a grant has
        /// [`GRANT_ALL_RUNS`] runs and [`GRANT_MAX_FRESH`] fresh blocks at most.
        runs: Vec<GrantRun>,
    },
    /// What was answered under a grant before this call is durable when this is answered.
    Settle {
        /// Which one.
        lease: u64,
        /// By what it was granted: the connection may be another one than then.
        token: Token,
    },
    /// The grant ends. When this is answered nothing runs under it any more, and what was written
    /// under it is durable. Where the answer has no room for all that is to be reported, the call
    /// is made again for the rest.
    Revoke {
        /// Which one. One that is not there any more has ended.
        lease: u64,
        /// By what it was granted.
        token: Token,
    },
    /// First message of a program's connection, and again for each further grant: opens a queue, by
    /// which [`crate::ToService::Queued`] reads, writes and flushes what the token's grant names,
    /// as device 0, where byte 0 is the area's first. Answered when nothing runs of an older life.
    Attach {
        /// [`crate::PROTOCOL_VERSION`] of the caller.
        version: u32,
        /// Which grant.
        token: Token,
        /// What this connection calls the queue, from here on.
        queue: u32,
        /// Connections of one life share the order of the grant's requests. A newer life than there
        /// was begins with no request, and ends the older ones.
        life: u64,
    },
    /// Of a queue: adds bytes to a transaction, which begins with that if it was not there. Nothing
    /// shows it before it is committed; then it is durable, and a read or a power cut finds all of
    /// it or nothing. A call that fails drops the transaction, and so does a newer life. If a
    /// commit fails with anything but a refusal, `EFBIG`, `EAGAIN` or `EOPNOTSUPP`, it may be
    /// there.
    ///
    /// `EOPNOTSUPP`: there is no redo lane, or a block was granted as a fresh one. `EFBIG`: the
    /// transaction is too large. `EAGAIN`: there are too many.
    AtomicWrite {
        /// What the program calls it, among those of the grant.
        transaction: u64,
        /// This is all of it: it is committed when this is answered.
        commit: bool,
        /// Where the bytes belong, [`ATOMIC_MAX_RUNS`] ranges at most.
        runs: Vec<AtomicRun>,
        /// The bytes of all ranges one behind the other, [`STORAGE_MAX_BLOCKS`] at most. The last
        /// block is filled with zeros.
        blocks: Vec<SharedBlock>,
    },
    /// Of a queue: drops a transaction.
    AtomicAbort {
        /// Which one.
        transaction: u64,
    },
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageAnswer {
    /// The storage is open: these are its devices, in the order area, log, record area.
    Opened {
        /// The volume's log has a device of its own.
        log: bool,
        /// The volume has a record area.
        record_area: bool,
        /// One entry for each of them.
        devices: Vec<StorageDevice>,
    },
    /// It was done.
    Done,
    /// What was read: the first bytes of these blocks.
    Data {
        /// The last one is filled with zeros.
        blocks: Vec<SharedBlock>,
    },
    /// What the device is.
    Described {
        /// Where it is, there.
        info: DeviceInfo,
    },
    /// It is granted.
    Granted {
        /// Drawn at random.
        token: Token,
        /// Where programs connect with it; without one, where hosts do.
        programs: Option<String>,
    },
    /// The queue is open.
    Attached {
        /// What was carried out of the last life.
        carried: Carried,
    },
    /// The grant has ended, what was written under it is durable, and nothing more is carried out.
    Ended {
        /// What was carried out of the last life.
        carried: Carried,
    },
    /// What was written under a grant is durable. What is reported here of fresh blocks was written
    /// before the flush, is reported once, and is not fresh any more.
    Settled {
        /// Something was, since this was answered last, or that is not known any more.
        written: bool,
        /// The grant was another process's, or its last flush failed: what was answered, and not
        /// durable, or not reported, may be lost.
        lost: bool,
        /// Fresh blocks that were written, in the order of their places in the file,
        /// [`SETTLED_MAX_RUNS`] runs at most.
        fresh: Vec<FileRun>,
        /// The byte of the file behind the last one that was written to a block which was granted
        /// as a fresh one; 0 if that has not changed since it was reported.
        end: u64,
        /// There is more to report of what was written before this call.
        more: bool,
    },
    /// It was not done, or, of a write, perhaps in part.
    Failed {
        /// Why.
        error: Error,
    },
}
