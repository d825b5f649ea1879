//! SQLite: two databases (WAL and DELETE), two processes each, memory-mapped.

use crate::work::{App, Site};
use siftfs_rig::database::{self, Acknowledged, Job};
use siftfs_rig::place::{Failed, Result};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The pragma answers with a line that is no acknowledgement.
const SETTINGS: &str = ".output /dev/null\nPRAGMA mmap_size=268435456;\n.output stdout";

/// The application.
#[derive(Default)]
pub struct Sqlite {
    acks: Mutex<Acknowledged>,
}

impl Sqlite {
    fn acks(&self) -> Acknowledged {
        self.acks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl App for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        database::create(&at.dir)?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        let job = Job::start(&at.dir, &at.scratch.join("acknowledged"), &self.acks(), SETTINGS)?;
        while !at.stopped() && !job.gave_up() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let gave_up = job.gave_up();
        self.acks.lock().unwrap_or_else(PoisonError::into_inner).add(job.stop());
        if gave_up { Err(Failed("a writer gave up".into())) } else { Ok(()) }
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        database::verify(&at.dir, &self.acks())
    }

    fn acknowledged(&self) -> String {
        format!("{} transactions", self.acks().total())
    }
}
