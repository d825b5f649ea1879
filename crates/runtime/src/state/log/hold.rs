//! A hold for a snapshot: callers wait with their changes, and in the end nothing is written.

use crate::state::log::Log;
use crate::state::step::{Need, Step, Stop};
use siftfs_base::errno;

/// Who may change the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Everybody may.
    #[default]
    Open,
    /// Callers wait. The background brings everything home.
    Callers,
    /// Everything is home, and the background appends nothing either.
    All,
}

impl Log {
    /// May a caller change something now?
    ///
    /// # Errors
    /// `EROFS` if changes are refused. Stops until the hold has ended, if there is one.
    pub fn may_change(&self) -> Step<()> {
        if self.config.read_only {
            return Err(errno(libc::EROFS).into());
        }
        self.may_append()
    }

    /// May a caller append to the log now? An fsync asks this, because it may stage something.
    ///
    /// # Errors
    /// Stops until the hold has ended, if there is one.
    pub fn may_append(&self) -> Step<()> {
        if self.is_held() { Err(Stop::Needs(Need::Thaw)) } else { Ok(()) }
    }

    /// Do callers wait with their changes?
    pub fn is_held(&self) -> bool {
        self.hold != Hold::Open
    }

    /// Does the background append nothing, because everything is home and stays as it is?
    pub fn is_still(&self) -> bool {
        self.config.read_only || self.hold == Hold::All
    }
}
