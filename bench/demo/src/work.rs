//! The job: SQLite under load beside the copying of small files.

use crate::files::Tree;
use siftfs_rig::database::{self, Acknowledged, Job};
use siftfs_rig::place::{Place, Result, step};
use siftfs_rig::volume::Volume;
use std::time::Duration;

/// Files to be copied.
pub const FILES: usize = 3000;
/// Which share of them is fsynced, and so must survive a crash.
const FSYNC_EVERY: usize = 4;

/// What was acknowledged on one volume.
pub struct Work<'a> {
    pub place: &'a Place,
    pub volume: &'a Volume,
    pub source: &'a Tree,
    pub acks: Acknowledged,
    /// Files copied.
    pub copied: usize,
}

impl<'a> Work<'a> {
    pub fn new(place: &'a Place, volume: &'a Volume, source: &'a Tree) -> Self {
        Self { place, volume, source, acks: Acknowledged::default(), copied: 0 }
    }

    /// Starts the writers.
    pub fn job(&self) -> Result<Job> {
        Job::start(&self.volume.dir, &self.place.path("acknowledged"), &self.acks, "")
    }

    /// Copies the files up to number `upto` while the job runs, for at most `limit`.
    pub fn copy(&mut self, upto: usize, limit: Duration, job: &Job) -> Result<()> {
        let from = self.copied;
        let (place, dir) = (self.place, &self.volume.dir);
        self.copied = self.source.copy(place, dir, from..upto, FSYNC_EVERY, limit, job)?;
        Ok(())
    }

    /// Files that were not fsynced may be gone: all that are not there are copied again.
    pub fn copy_all(&mut self, job: &Job) -> Result<()> {
        self.copied = 0;
        self.copy(FILES, Duration::from_secs(60), job)
    }

    /// Ends the job, with what it was told.
    pub fn end(&mut self, job: Job) {
        self.acks.add(job.stop());
    }

    /// Every acknowledged transaction and every fsynced file is there.
    pub fn check(&self) -> Result<()> {
        let (dir, copied) = (&self.volume.dir, self.copied);
        let what = format!(
            "checking {} acknowledged transactions and every fsynced file",
            self.acks.total()
        );
        step(&what, || {
            database::verify(dir, &self.acks)?;
            self.source.verify_copies(dir, |i| i < copied && i % FSYNC_EVERY == 0)
        })
    }

    /// Every acknowledged transaction and every copied file is there.
    pub fn check_all(&self) -> Result<()> {
        let what = format!("checking {} transactions and {FILES} files", self.acks.total());
        step(&what, || {
            database::verify(&self.volume.dir, &self.acks)?;
            self.source.verify_copies(&self.volume.dir, |_| true)
        })
    }
}
