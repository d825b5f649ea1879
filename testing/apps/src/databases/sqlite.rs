//! SQLite: two databases (WAL and DELETE), two processes each, memory-mapped; the same with a
//! process each; and one that commits by atomic sections, without a journal file.

use crate::work::{App, Needs, Site};
use siftfs_rig::database::{self, Acknowledged, Job, Mode};
use siftfs_rig::place::{Failed, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The pragma answers with a line that is no acknowledgement. (Where a database is mapped, SQLite
/// makes it longer by ftruncate(2) in the middle of a commit, which voids a section: its next step
/// is a journal file.)
const MAPPED: &str = ".output /dev/null\nPRAGMA mmap_size=268435456;\n.output stdout";

/// The application.
pub struct Sqlite {
    name: &'static str,
    modes: &'static [Mode],
    settings: &'static str,
    needs: Needs,
    acks: Mutex<Acknowledged>,
    /// Transactions of the work under way, which are not among those.
    under_way: AtomicU64,
}

impl Sqlite {
    /// As it is.
    pub fn usual() -> Self {
        Self::of("sqlite", &Mode::USUAL, MAPPED, Needs::Nothing)
    }

    /// A process for each database: it may have leases of its files.
    pub fn alone() -> Self {
        Self::of("sqlite-alone", &Mode::ALONE, "", Needs::Leases)
    }

    /// By atomic sections.
    pub fn by_sections() -> Self {
        Self::of("sqlite-sections", &[Mode::Sections], "", Needs::Nothing)
    }

    fn of(
        name: &'static str,
        modes: &'static [Mode],
        settings: &'static str,
        needs: Needs,
    ) -> Self {
        Self { name, modes, settings, needs, acks: Mutex::default(), under_way: AtomicU64::new(0) }
    }

    fn acks(&self) -> Acknowledged {
        self.acks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl App for Sqlite {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        database::create(&at.dir, self.modes)?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        let (place, log) = ((at.dir.as_path(), self.modes), at.scratch.join("acknowledged"));
        let job = Job::start(place, &log, &self.acks(), self.settings)?;
        let mut made = Ok(());
        while !at.stopped() && !job.gave_up() && made.is_ok() {
            made = database::no_journal(&at.dir);
            self.under_way.store(job.count(), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
        let gave_up = job.gave_up();
        self.acks.lock().unwrap_or_else(PoisonError::into_inner).add(job.stop());
        self.under_way.store(0, Ordering::Relaxed);
        made?;
        if gave_up { Err(Failed("a writer gave up".into())) } else { Ok(()) }
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        database::no_journal(&at.dir)?;
        database::verify(&at.dir, self.modes, &self.acks())
    }

    fn is_told_of_a_lost_server(&self) -> bool {
        self.modes.contains(&Mode::Sections)
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn acknowledged(&self) -> String {
        format!("{} transactions", self.acks().total() + self.under_way.load(Ordering::Relaxed))
    }
}
