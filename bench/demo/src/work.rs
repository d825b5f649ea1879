//! The job: SQLite under load, with each kind of journal and without one, beside the copying of
//! small files and the publishing of sets of them.

use crate::files::Tree;
use crate::publisher::{self, Publisher};
use siftfs_rig::database::{self, Acknowledged, Job, Mode};
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
    /// Sets of files published.
    pub published: u64,
}

impl<'a> Work<'a> {
    pub fn new(place: &'a Place, volume: &'a Volume, source: &'a Tree) -> Self {
        Self { place, volume, source, acks: Acknowledged::default(), copied: 0, published: 0 }
    }

    /// Makes the databases.
    pub fn create(&self) -> Result<()> {
        database::create(&self.volume.dir, &Mode::ALL)
    }

    /// Starts the writers.
    pub fn job(&self) -> Result<(Job, Publisher)> {
        let publisher = Publisher::start(&self.volume.dir, self.published)?;
        let (dir, log) = (&self.volume.dir, self.place.path("acknowledged"));
        Ok((Job::start((dir, &Mode::ALL), &log, &self.acks, "")?, publisher))
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
    pub fn end(&mut self, (job, publisher): (Job, Publisher)) {
        self.acks.add(job.stop());
        self.published = publisher.stop();
    }

    /// What was acknowledged, for the user.
    pub fn done(&self) -> String {
        format!(
            "{} acknowledged transactions ({} of them without a journal file), {} files and {} \
             sets of published ones",
            self.acks.total(),
            self.acks.total_of(Mode::Sections),
            self.copied,
            self.published
        )
    }

    /// The databases have every acknowledged transaction, and the one without a journal has none.
    /// The published files are of one set.
    fn check_work(&mut self) -> Result<()> {
        let dir = &self.volume.dir;
        database::no_journal(dir)?;
        database::verify(dir, &Mode::ALL, &self.acks)?;
        self.published = publisher::check(dir, self.published)?;
        Ok(())
    }

    /// Every acknowledged transaction, every published set and every fsynced file is there.
    pub fn check(&mut self) -> Result<()> {
        let (dir, copied) = (self.volume.dir.clone(), self.copied);
        let what = format!(
            "checking {} acknowledged transactions, the files published last and every fsynced file",
            self.acks.total()
        );
        step(&what, || {
            self.check_work()?;
            self.source.verify_copies(&dir, |i| i < copied && i % FSYNC_EVERY == 0)
        })
    }

    /// Every acknowledged transaction and every copied file is there.
    pub fn check_all(&mut self) -> Result<()> {
        let what = format!("checking {} transactions and {FILES} files", self.acks.total());
        step(&what, || {
            self.check_work()?;
            self.source.verify_copies(&self.volume.dir, |_| true)
        })
    }
}
