//! What a step under the state lock comes to: it is done, or it stopped for something that takes
//! place without the lock, after which it is tried again from its begin ([`crate::Runtime`]'s one
//! driver).

use crate::state::fills::FillPlan;
use siftfs_base::{Error, InodeNr, errno};
use std::ops::Range;

/// Progress of the background without which an operation cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The running transaction is full: it must be cut.
    Commit,
    /// Freed blocks are not reusable yet: what freed them must be reclaimed (rule R5).
    Space,
    /// The staging lane or the journal is full: credits must come back.
    Log,
    /// What is left of the lane is for small fsyncs: bulk waits for credits.
    Credits,
    /// There is too much unsynced data: some of it must be pushed.
    Push,
    /// The volume is held for a snapshot: that must end.
    Thaw,
}

impl Need {
    /// The need in words, for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Commit => "the running transaction is full",
            Self::Space => "freed blocks are not reusable yet",
            Self::Log => "the log is full",
            Self::Credits => "bulk waits for credits",
            Self::Push => "too much unsynced data",
            Self::Thaw => "the volume is frozen",
        }
    }
}

/// Why a step stopped.
pub enum Stop {
    /// The background must get further first.
    Needs(Need),
    /// These pages must be read first.
    Read(FillPlan),
    /// Another thread is reading these pages: wait for it.
    Wait(InodeNr, Range<u64>),
    /// Another session's write lease of the file has to end first.
    Recall(InodeNr),
    /// What is granted of the file to a program has to be taken back first.
    TakeBack(InodeNr),
    /// The step failed, and would fail again.
    Failed(Error),
}

/// What ends of a file that a session holds alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Its lease.
    Lease,
    /// What is granted of it to a program; the lease goes on.
    Grant,
}

/// The result of a step.
pub type Step<T> = Result<T, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Stop {
    /// For a caller that has nothing to wait for, as recovery: the background is all there is.
    pub fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Needs(need) => {
                Error::Refused(format!("it needs what the background cannot give: {}", need.text()))
            }
            Self::Read(_) | Self::Wait(..) | Self::Recall(_) | Self::TakeBack(_) => {
                errno(libc::EAGAIN)
            }
        }
    }
}
