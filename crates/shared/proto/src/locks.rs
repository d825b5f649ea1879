//! Locks on files, as fcntl(2) and flock(2) have them.
//!
//! A lock keeps nobody from reading and writing: it keeps others from locking. It belongs to a
//! session, an inode and an owner, which is a number of the session's own choice: the same number
//! in two sessions is two owners. Locks of byte ranges and of whole files are independent of each
//! other, as on Linux.

/// What a lock keeps others from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    /// Others may have [`LockKind::Read`] of the same bytes.
    Read,
    /// Others may have nothing of the same bytes.
    Write,
}

impl LockKind {
    /// May two owners not have these of one byte?
    pub fn conflicts(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

/// Bytes of a file, which need not be there: one at least, and none beyond [`LockRange::LAST`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LockRange {
    first: u64,
    last: u64,
}

impl LockRange {
    /// The last byte that can be locked. A range up to here goes on for ever.
    pub const LAST: u64 = i64::MAX.cast_unsigned();
    /// Every byte.
    pub const ALL: Self = Self { first: 0, last: Self::LAST };

    /// From `first` to `last`, both included; `None` if there is no such range.
    pub fn new(first: u64, last: u64) -> Option<Self> {
        (first <= last && last <= Self::LAST).then_some(Self { first, last })
    }

    /// The first byte.
    pub fn first(self) -> u64 {
        self.first
    }

    /// The last byte.
    pub fn last(self) -> u64 {
        self.last
    }

    /// Have they a byte in common?
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// What is locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockPlace {
    /// Bytes, as fcntl(2) locks them. What the owner has of them already changes in one step.
    Range(LockRange),
    /// The file, as flock(2) locks it. A lock of the other kind is given up first: it is gone even
    /// if the new one is not to be had.
    Whole,
}

/// A lock that is wanted, or given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockAsk {
    /// Whose it is.
    pub owner: u64,
    /// The process that asks, which others are told.
    pub pid: u32,
    /// What is locked.
    pub place: LockPlace,
    /// What others are kept from; `None` gives up what the owner has there.
    pub kind: Option<LockKind>,
    /// What to do while another owner is in the way; `None`: `EAGAIN`.
    pub wait: Option<LockWait>,
}

/// A wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockWait {
    /// By this number the session can end the wait.
    pub number: u64,
    /// How long it may last.
    pub until: WaitUntil,
}

/// How long a wait may last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitUntil {
    /// Until the lock is granted, for an owner that does nothing else meanwhile, as a process:
    /// `EDEADLK` rather than a circle of such owners, each of which waits for a range of the next
    /// one's.
    Process,
    /// Until the lock is granted, for an owner that may give something up meanwhile.
    File,
    /// Only while all that is in the way may be about to end ([`crate::Request::CloseLocks`]):
    /// `EAGAIN` else. A wait of this kind that is ended by its number ends that doubt for the next
    /// ones.
    Closed,
}

/// A lock that is in the way of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// What it keeps others from.
    pub kind: LockKind,
    /// Its bytes.
    pub range: LockRange,
    /// The process that took it.
    pub pid: u32,
}
