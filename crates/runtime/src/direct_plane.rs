//! What the Runtime asks of the target that has the volume's storage, for programs that use it by
//! themselves.

use siftfs_base::{BlockRun, InodeNr, Result};
use siftfs_proto::LeaseId;

/// What admits a program to what is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admits {
    /// What it says there.
    pub token: [u8; 32],
    /// Where it connects.
    pub target: String,
}

/// What was written under a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Something was, since it was asked last; it is durable.
    pub some: bool,
    /// The target knows nothing of the grant: what was written, and not durably, may be lost.
    pub lost: bool,
}

/// The target that has the volume's storage, as far as programs use it by themselves. Never called
/// with the state lock held; waits for the target where that is away.
pub trait DirectPlane: Send + Sync {
    /// Grants these blocks of a file under a name that has no grant, to be read, and to be
    /// written too if that is said. Answers what admits the program.
    ///
    /// # Errors
    /// Refused: too much is granted. Any other error says that the storage is lost for good.
    fn grant(&self, named: (LeaseId, InodeNr), write: bool, runs: Vec<BlockRun>) -> Result<Admits>;

    /// Makes durable what was written under a grant and answered.
    ///
    /// # Errors
    /// It is not durable, and will not be.
    fn settle(&self, lease: LeaseId) -> Result<Written>;

    /// As [`DirectPlane::settle`]; the grant has ended, and nothing runs under it any more.
    ///
    /// # Errors
    /// As of [`DirectPlane::settle`].
    fn revoke(&self, lease: LeaseId) -> Result<Written>;
}
