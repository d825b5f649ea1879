//! fsync: one staged transaction, written and flushed ("Foreground: fsync" in
//! `docs/design/persistence-path.md`).

use crate::runtime::Runtime;
use crate::staging::capture::Selection;
use crate::staging::pause::Pause;
use crate::staging::proof::Durable;
use crate::staging::proof::Settled;
use crate::staging::records::LaneSet;
use crate::staging::sequencer::{Flushed, WriteMode};
use crate::staging::stage::{Outcome, Staged};
use crate::state::buffers::is_bulk;
use crate::state::running::Push;
use crate::state::step::{Step, Stop};
use siftfs_base::{InodeNr, Lsn, Result};
use siftfs_device::{Origin, StagingWriter};
use std::time::Duration;

/// What is left to do of an fsync.
enum Begun {
    /// Nothing is left: what was asked for is durable.
    Durable(Durable),
    /// A wait for this LSN: the fsync's record, or the newest that carries something of the inode,
    /// is written or on its way.
    Wait(Lsn),
}

impl Runtime {
    /// fsync and fdatasync (the page "Foreground: fsync").
    pub fn fsync(&self, ino: InodeNr, datasync: bool) -> Result<Durable> {
        let start = self.clock.mono_ns();
        let result = match self.begin_fsync(ino, datasync) {
            Ok(Begun::Durable(durable)) => Ok(durable),
            Ok(Begun::Wait(lsn)) => self.wait_durable(lsn, Origin::Foreground).map(Durable::Staged),
            Err(e) => Err(e),
        };
        self.latency.fsync.record(self.clock.mono_ns().saturating_sub(start));
        result
    }

    /// Stages what the inode owes, and does not wait until it is durable.
    pub(crate) fn stage_only(&self, ino: InodeNr) -> Result<()> {
        self.begin_fsync(ino, false).map(drop)
    }

    /// As [`Runtime::fsync`], for a caller that holds no lock and does not wait: the result goes to
    /// `done`, on this thread, or later on the one that flushed ([`Sequencer::when_durable`]).
    ///
    /// [`Sequencer::when_durable`]: crate::Sequencer::when_durable
    pub fn fsync_then(
        &self,
        ino: InodeNr,
        datasync: bool,
        done: impl FnOnce(Result<Durable>) + Send + 'static,
    ) {
        let (clock, latency) = (self.clock.clone(), self.latency.clone());
        let start = clock.mono_ns();
        let told = move |result: Result<Durable>| {
            latency.fsync.record(clock.mono_ns().saturating_sub(start));
            done(result);
        };
        match self.begin_fsync(ino, datasync) {
            Ok(Begun::Durable(durable)) => told(Ok(durable)),
            Ok(Begun::Wait(lsn)) => {
                let flush = |set| flush_each(&self.lanes, set, |l| l.flush(Origin::Foreground));
                self.seq.when_durable(lsn, flush, |flushed| told(flushed.map(Durable::Staged)));
            }
            Err(e) => told(Err(e)),
        }
    }

    /// Stages what the inode owes, and writes it.
    fn begin_fsync(&self, ino: InodeNr, datasync: bool) -> Result<Begun> {
        let mut stalled = None;
        let (outcome, pause) = self.drive(libc::EIO, || {
            self.seq.check()?;
            let staged = self.stage_once(ino, datasync, &mut stalled);
            if matches!(staged, Err(Stop::Needs(_))) {
                stalled.get_or_insert_with(|| self.clock.mono_ns());
            }
            staged
        })?;
        match outcome {
            Outcome::Nothing(lsn) => Ok(Begun::Wait(lsn)),
            Outcome::Staged(staged) => self.begin_durable(staged, pause),
            Outcome::FullCommit(reason) => {
                self.lock().stats.full_commit(reason);
                self.full_commit(ino).map(Durable::Journaled).map(Begun::Durable)
            }
            Outcome::Plan(_) => unreachable!("what is encoded is staged"),
        }
    }

    /// One try. Bulk is encoded without the lock, between two calls of [`State::stage`]. Also
    /// returns how long to pause once the record is durable.
    fn stage_once(
        &self,
        ino: InodeNr,
        datasync: bool,
        stalled: &mut Option<u64>,
    ) -> Step<(Outcome, Pause)> {
        let mut encoded = None;
        loop {
            let mut st = self.lock();
            let outcome = st.stage(&self.seq, ino, datasync, &Selection::All, encoded.take())?;
            let wake = st.should_wake();
            let pause = match &outcome {
                Outcome::Staged(s) => Pause::at(st.fill(s.lane), s.buf.len() as u64),
                _ => Pause::Fixed(Duration::ZERO),
            };
            drop(st);
            if let Some(since) = stalled.take() {
                self.note_wait(since, &outcome);
            }
            match outcome {
                Outcome::Plan(plan) => encoded = Some(plan.encode(&self.record_buffers)),
                outcome => {
                    if wake && matches!(outcome, Outcome::Staged(_)) {
                        self.wake();
                    }
                    return Ok((outcome, pause));
                }
            }
        }
    }

    /// Writes a record that its caller waits for. One that must pause afterwards waits here.
    fn begin_durable(&self, staged: Staged, pause: Pause) -> Result<Begun> {
        if pause != Pause::Fixed(Duration::ZERO) {
            return self.make_durable(staged, pause).map(Durable::Staged).map(Begun::Durable);
        }
        let lsn = staged.published.lsn();
        self.link.expect_urgent(self.clock.mono_ns());
        self.write_staged(staged, Origin::Foreground)?;
        Ok(Begun::Wait(lsn))
    }

    /// Writes a record that its caller waits for. The caller then pauses as the room that is left
    /// demands.
    fn make_durable(&self, staged: Staged, pause: Pause) -> Result<Flushed> {
        let bulk = is_bulk(staged.buf.len() as u64).then(|| self.bulk.join());
        let (start, lsn) = (self.clock.mono_ns(), staged.published.lsn());
        if bulk.is_none() {
            self.link.expect_urgent(start);
        }
        self.write_staged(staged, Origin::Foreground)?;
        let flushed = match bulk {
            Some(_) => self.seq.wait_durable(lsn, |set| {
                flush_each(&self.lanes, set, |l| l.flush_bulk(Origin::Foreground))
            }),
            None => self.wait_durable(lsn, Origin::Foreground),
        }?;
        let took = Duration::from_nanos(self.clock.mono_ns().saturating_sub(start));
        let pause = match &bulk {
            Some(member) => pause.among(member.count()).after(took),
            None => self.owed.add(pause.after(took)),
        };
        if !pause.is_zero() {
            self.lanes[0].give_way(pause);
        }
        Ok(flushed)
    }

    /// Writes a staged transaction into its lane.
    pub(crate) fn write_staged(&self, staged: Staged, origin: Origin) -> Result<()> {
        let Staged { published, lane, offset, buf } = staged;
        let lane = &self.lanes[lane];
        let result = match published.mode() {
            WriteMode::Fua => lane.write_fua(origin, offset, &buf),
            WriteMode::Plain => lane.write(origin, offset, &buf),
        };
        self.seq.completed(published, result)?;
        self.record_buffers.give(buf);
        Ok(())
    }

    pub(crate) fn wait_durable(&self, lsn: Lsn, origin: Origin) -> Result<Flushed> {
        self.seq.wait_durable(lsn, |set| flush_each(&self.lanes, set, |l| l.flush(origin)))
    }

    /// A wait for room in the log, or in the running transaction, has ended.
    fn note_wait(&self, since: u64, outcome: &Outcome) {
        let bulk = match outcome {
            Outcome::Plan(_) => true,
            Outcome::Staged(s) => is_bulk(s.buf.len() as u64),
            _ => false,
        };
        let latency = if bulk { &self.latency.bulk_wait } else { &self.latency.credit_wait };
        latency.record(self.clock.mono_ns().saturating_sub(since));
    }

    /// Makes an inode durable through background journal transactions.
    pub(crate) fn full_commit(&self, ino: InodeNr) -> Result<Settled> {
        self.commit_all(&Push::Inode(ino), Some(ino))
    }
}

/// Flushes the devices that some lanes lie on, each once.
fn flush_each(
    lanes: &[StagingWriter],
    wanted: LaneSet,
    flush: impl Fn(&StagingWriter) -> Result<()>,
) -> Result<()> {
    let mut flushed: Vec<&StagingWriter> = Vec::new();
    for lane in wanted.iter().map(|lane| &lanes[lane]) {
        if !flushed.iter().any(|other| other.shares_device(lane)) {
            flush(lane)?;
            flushed.push(lane);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "fsync_tests.rs"]
mod tests;
