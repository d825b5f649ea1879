use super::*;
use crate::databases::sqlite::Sqlite;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a sample works.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    GivesUp,
    AcknowledgesNothing,
    AcknowledgesLate,
}

/// Works until told, or gives up at once.
struct Sample {
    how: How,
    acknowledged: AtomicU64,
}

impl App for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn prepare(&mut self, _at: &Site) -> Result<()> {
        Ok(())
    }

    fn work(&self, at: &Site) -> Result<()> {
        if self.how == How::GivesUp {
            return Err(Failed("no more".into()));
        }
        std::thread::sleep(Duration::from_millis(200));
        while !at.stopped() {
            std::thread::sleep(Duration::from_millis(1));
            let more = u64::from(self.how == How::AcknowledgesLate);
            self.acknowledged.fetch_add(more, Ordering::Relaxed);
        }
        Ok(())
    }

    fn check(&mut self, _at: &Site) -> Result<()> {
        Ok(())
    }

    fn acknowledged(&self) -> String {
        self.acknowledged.load(Ordering::Relaxed).to_string()
    }
}

fn work_of(how: How) -> Result<()> {
    let parent = tempfile::tempdir().expect("temporary directory");
    let place = Place::new("siftfs-apps-test", 1 << 20, Some(parent.path()))?;
    let site = Site::kernel(parent.path(), parent.path());
    let sample = Sample { how, acknowledged: AtomicU64::new(0) };
    work(&place, &sample, &site, Duration::from_millis(50), None)
}

#[test]
fn work_to_the_end_is_well_also_if_it_begins_late() {
    work_of(How::AcknowledgesLate).expect("told to stop");
}

#[test]
fn a_trial_without_any_acknowledgement_has_failed() {
    let Failed(message) = work_of(How::AcknowledgesNothing).expect_err("it showed nothing");
    assert_eq!(message, "it has acknowledged nothing");
}

#[test]
fn who_gives_up_early_fails_with_its_own_words() {
    let Failed(message) = work_of(How::GivesUp).expect_err("it gave up");
    assert_eq!(message, "no more");
}

/// A trial waits for what an application acknowledges while it works.
///
/// Seen to fail for SQLite, which was said to have acknowledged nothing until its work had ended.
#[test]
fn sqlite_is_not_taken_for_idle_while_it_works() {
    let parent = tempfile::tempdir().expect("temporary directory");
    let place = Place::new("siftfs-apps-test", 1 << 20, Some(parent.path())).expect("a place");
    let site = Site::kernel(parent.path(), parent.path());
    let mut sqlite = Sqlite::alone();
    sqlite.prepare(&site).expect("databases");
    work(&place, &sqlite, &site, Duration::from_millis(500), None).expect("acknowledged something");
    sqlite.check(&site).expect("all is there");
}
