//! What keeps something out of a record.

use crate::state::log::names::Unstageable;
use crate::state::step::Stop;
use siftfs_base::Error;

/// Why there is no draft of a record.
pub enum NotStaged {
    /// No record can carry it: a transaction must.
    Unstageable(Unstageable),
    /// As any step.
    Stop(Stop),
}

/// The result of what makes a draft.
pub type Drafting<T> = Result<T, NotStaged>;

impl From<Unstageable> for NotStaged {
    fn from(reason: Unstageable) -> Self {
        Self::Unstageable(reason)
    }
}

impl From<Stop> for NotStaged {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Error> for NotStaged {
    fn from(error: Error) -> Self {
        Self::Stop(error.into())
    }
}
