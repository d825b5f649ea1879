//! What a volume costs that another process serves, measured beside the same volume in the program
//! or in the mount's own process: `siftfs bench remote-...` runs it.
//!
//! One file has one figure. A figure is a function of [`Plan`] that answers an [`Output`]; it works
//! on servers and mounts of a [`stage`], and what it finds becomes the rows of a table
//! ([`siftfs_rig::table`]).

mod beside;
pub mod cached;
pub mod death;
pub mod direct;
mod pin;
pub mod programs;
mod sleeps;
mod stage;
pub mod sync;
pub mod two;

pub use beside::Beside;
pub use pin::Pin;
use siftfs_rig::figure::Output;
use siftfs_rig::place::{Place, Result};
use std::path::Path;
use std::time::Duration;

/// What a figure is measured with.
pub struct Plan<'a> {
    /// On a disk.
    pub place: &'a Place,
    /// The `siftfs` command.
    pub siftfs: &'a Path,
    /// How often each job is done on each side, in turn.
    pub rounds: u32,
    /// How long one takes that is bounded by time.
    pub time: Duration,
    /// Where the ends of `sync` run.
    pub pin: Pin,
    /// Files of an archive; the other programs' work follows from it.
    pub files: usize,
    /// Directories of other file systems that `programs` works in as well.
    pub beside: &'a [Beside],
}

impl Plan<'_> {
    /// The rounds, each of which is said when it begins.
    fn rounds(&self) -> impl Iterator<Item = usize> {
        let rounds = self.rounds;
        (0..rounds as usize).inspect(move |round| eprintln!("round {} of {rounds}", round + 1))
    }
}

/// A figure.
pub type Measure = fn(&Plan<'_>) -> Result<Output>;
