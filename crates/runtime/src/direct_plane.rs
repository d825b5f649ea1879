//! What the Runtime asks of the target that has the volume's storage, for programs that use it by
//! themselves.

use siftfs_base::{Blocks, InodeNr, RangeSet, Result};
use siftfs_proto::{DirectRun, LeaseId};

/// What admits a program to what is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admits {
    /// What it says there.
    pub token: [u8; 32],
    /// Where it connects.
    pub target: String,
}

/// What was written under a grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Something was, since it was asked last; it is durable.
    pub some: bool,
    /// The target knows nothing of the grant: what was written, and was not durable or not told as
    /// written for the first time, may be lost.
    pub lost: bool,
    /// Blocks of the file that were granted as fresh ones, and have been written. They are durable,
    /// and told once.
    pub fresh: RangeSet<Blocks>,
    /// The byte of the file behind the last one that was written to what was granted as fresh; 0 if
    /// that has not changed.
    pub end: u64,
    /// There is more to tell of what was written before this was asked: to be asked again for that.
    pub more: bool,
}

impl Written {
    /// Was anything written for the first time, or behind what was the last byte?
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty() || self.end > 0
    }
}

/// The target that has the volume's storage, as far as programs use it by themselves. Never called
/// with the state lock held; waits for the target where that is away.
pub trait DirectPlane: Send + Sync {
    /// Grants these blocks of a file under a name that has no grant, to be read, and to be written
    /// too if that is said. Fresh ones read as zeros until the program has written them (rule R30).
    /// Answers what admits the program.
    ///
    /// # Errors
    /// Refused: too much is granted. Any other error says that the storage is lost for good.
    fn grant(&self, named: (LeaseId, InodeNr), write: bool, runs: &[DirectRun]) -> Result<Admits>;

    /// Grants these blocks as well, by the grant of this name: all of them, or none.
    ///
    /// # Errors
    /// `ESTALE`: it has ended. Refused: too much is granted. Any other error says that the storage
    /// is lost for good.
    fn extend(&self, lease: LeaseId, runs: &[DirectRun]) -> Result<()>;

    /// Makes durable what was written under a grant and answered.
    ///
    /// # Errors
    /// It is not durable, and will not be.
    fn settle(&self, lease: LeaseId) -> Result<Written>;

    /// As [`DirectPlane::settle`]; the grant has ended, and nothing runs under it any more. If
    /// there is more to tell, this is asked again.
    ///
    /// # Errors
    /// As of [`DirectPlane::settle`].
    fn revoke(&self, lease: LeaseId) -> Result<Written>;
}
