//! fsync: one staged transaction, written and flushed ("Foreground: fsync" in
//! `docs/design/persistence-path.md`). A ticket is staged in the same way; the next caller that
//! needs something durable writes its record (`docs/design/operations.md`).

use crate::runtime::Runtime;
use crate::staging::capture::{Asked, Selection};
use crate::staging::pause::{Member, Pause};
use crate::staging::proof::Durable;
use crate::staging::proof::Settled;
use crate::staging::records::LaneSet;
use crate::staging::sequencer::{Flushed, WriteMode, Writer};
use crate::staging::stage::Outcome;
use crate::staging::unwritten::{Run, Staged};
use crate::state::buffers::is_bulk;
use crate::state::log::names::Unstageable;
use crate::state::log::running::Push;
use crate::state::step::{Step, Stop};
use siftfs_base::{InodeNr, Lsn, Result};
use siftfs_device::{Origin, StagingWriter};
use std::time::Duration;

/// What is left to do of an fsync, or of a ticket.
pub enum Begun {
    /// Nothing is left: what was asked for is durable.
    Durable(Durable),
    /// A wait for this LSN: the fsync's record, or the newest that carries something of the inode,
    /// is written or on its way. A ticket's may wait in `Runtime::unwritten`.
    Wait(Lsn),
}

/// What one try to stage came to; of a record it has what its place has made of it.
enum Tried<T> {
    Nothing(Lsn),
    Durable(Flushed),
    Staged(T),
    FullCommit(Unstageable),
}

/// A ticket's record, which waits in `Runtime::unwritten`.
struct Queued {
    lsn: Lsn,
    len: u64,
    /// So much waits that this thread is to write it.
    full: bool,
}

impl Runtime {
    /// fsync and fdatasync (the page "Foreground: fsync").
    pub fn fsync(&self, ino: InodeNr, asked: Asked) -> Result<Durable> {
        let start = self.clock.mono_ns();
        let result = match self.begin_fsync(ino, asked) {
            Ok(Begun::Durable(durable)) => Ok(durable),
            Ok(Begun::Wait(lsn)) => self.wait_durable(lsn, Origin::Foreground).map(Durable::Staged),
            Err(e) => Err(e),
        };
        self.latency.fsync.record(self.clock.mono_ns().saturating_sub(start));
        result
    }

    /// As [`Runtime::fsync`], for a caller that holds no lock and does not wait: the result goes to
    /// `done`, on this thread, or later on the one that flushed ([`Sequencer::when_durable`]).
    ///
    /// [`Sequencer::when_durable`]: crate::Sequencer::when_durable
    pub fn fsync_then(
        &self,
        ino: InodeNr,
        asked: Asked,
        done: impl FnOnce(Result<Durable>) + Send + 'static,
    ) {
        let (clock, latency) = (self.clock.clone(), self.latency.clone());
        let start = clock.mono_ns();
        let told = move |result: Result<Durable>| {
            latency.fsync.record(clock.mono_ns().saturating_sub(start));
            done(result);
        };
        match self.begin_fsync(ino, asked) {
            Ok(Begun::Durable(durable)) => told(Ok(durable)),
            Ok(Begun::Wait(lsn)) => {
                self.when_durable(lsn, |flushed| told(flushed.map(Durable::Staged)));
            }
            Err(e) => told(Err(e)),
        }
    }

    /// Stages what the inode owes, and writes it.
    fn begin_fsync(&self, ino: InodeNr, asked: Asked) -> Result<Begun> {
        let staged = |staged: Staged| staged;
        match self.stage_inode(ino, asked, Writer::Caller, staged)? {
            Tried::Nothing(lsn) => Ok(Begun::Wait(lsn)),
            Tried::Durable(flushed) => Ok(Begun::Durable(Durable::Staged(flushed))),
            Tried::Staged((staged, pause)) => self.begin_durable(staged, pause),
            Tried::FullCommit(reason) if asked.in_order => {
                // The commit may be one that was under way when some of this was staged.
                let before = self.seq.published();
                self.commit_instead(ino, reason).map(|_journaled| Begun::Wait(before))
            }
            Tried::FullCommit(reason) => self.commit_instead(ino, reason),
        }
    }

    /// Stages what the inode owes, and leaves the record to the next caller who needs something
    /// durable. What cannot be staged is durable when this returns, as after fsync.
    pub(crate) fn stage_for_ticket(&self, ino: InodeNr, datasync: bool) -> Result<Begun> {
        let asked = Asked { datasync, ..Asked::default() };
        // Under the lock: a thread that waits for it may come as soon as that is free.
        let queue = |staged: Staged| {
            let (lsn, len) = (staged.published.lsn(), staged.buf.len() as u64);
            Queued { lsn, len, full: self.unwritten.push(staged) }
        };
        match self.stage_inode(ino, asked, Writer::Ticket, queue)? {
            Tried::Nothing(lsn) => Ok(Begun::Wait(lsn)),
            Tried::Durable(flushed) => Ok(Begun::Durable(Durable::Staged(flushed))),
            Tried::FullCommit(reason) => self.commit_instead(ino, reason),
            Tried::Staged((queued, pause)) => {
                let bulk = is_bulk(queued.len).then(|| self.bulk.join());
                let start = self.clock.mono_ns();
                if queued.full || bulk.is_some() {
                    self.write_out(queued.lsn, Origin::Foreground);
                }
                self.pause(pause, bulk.as_ref(), start);
                Ok(Begun::Wait(queued.lsn))
            }
        }
    }

    fn commit_instead(&self, ino: InodeNr, reason: Unstageable) -> Result<Begun> {
        self.lock().stats.full_commit(reason);
        self.full_commit(ino).map(Durable::Journaled).map(Begun::Durable)
    }

    /// Stages what the inode owes. `place` takes the record while the lock is held under which it
    /// was published. Also returns how long to pause once the record is written.
    fn stage_inode<T>(
        &self,
        ino: InodeNr,
        asked: Asked,
        writer: Writer,
        place: impl Fn(Staged) -> T,
    ) -> Result<Tried<(T, Pause)>> {
        let mut stalled = None;
        self.drive(libc::EIO, || {
            self.seq.check()?;
            let tried = self.stage_once(ino, asked, writer, &place, &mut stalled);
            if matches!(tried, Err(Stop::Needs(_))) {
                stalled.get_or_insert_with(|| self.clock.mono_ns());
            }
            tried
        })
    }

    /// One try. Bulk is encoded without the lock, between two calls of `State::stage`.
    fn stage_once<T>(
        &self,
        ino: InodeNr,
        asked: Asked,
        writer: Writer,
        place: &impl Fn(Staged) -> T,
        stalled: &mut Option<u64>,
    ) -> Step<Tried<(T, Pause)>> {
        let mut encoded = None;
        loop {
            let mut st = self.lock();
            st.metadata.log.may_append()?;
            let by = (&self.seq, writer);
            let outcome = st.stage(by, ino, asked, &Selection::All, encoded.take())?;
            let wake = st.should_wake();
            let since = stalled.take();
            let tried = match outcome {
                Outcome::Plan(plan) => {
                    drop(st);
                    self.note_wait(since, true);
                    encoded = Some(plan.encode(&self.record_buffers));
                    continue;
                }
                Outcome::Nothing(lsn) => Tried::Nothing(lsn),
                Outcome::Durable(flushed) => Tried::Durable(flushed),
                Outcome::FullCommit(reason) => Tried::FullCommit(reason),
                Outcome::Staged(staged) => {
                    let len = staged.buf.len() as u64;
                    let pause = Pause::at(st.metadata.fill(staged.lane), len);
                    let placed = place(staged);
                    drop(st);
                    self.note_wait(since, is_bulk(len));
                    if wake {
                        self.wake();
                    }
                    return Ok(Tried::Staged((placed, pause)));
                }
            };
            drop(st);
            self.note_wait(since, false);
            return Ok(tried);
        }
    }

    /// Writes a record that its caller waits for. One that must pause afterwards waits here.
    fn begin_durable(&self, staged: Staged, pause: Pause) -> Result<Begun> {
        if self.record_area == Some(staged.lane) {
            let (lsn, start) = (staged.published.lsn(), self.clock.mono_ns());
            self.write_staged(staged, Origin::Foreground)?;
            let flushed = self.seq.wait_alone(lsn)?;
            self.pause(pause, None, start);
            return Ok(Begun::Durable(Durable::Staged(flushed)));
        }
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
    pub(crate) fn make_durable(&self, staged: Staged, pause: Pause) -> Result<Flushed> {
        let bulk = is_bulk(staged.buf.len() as u64).then(|| self.bulk.join());
        let (start, lsn) = (self.clock.mono_ns(), staged.published.lsn());
        if bulk.is_none() {
            self.link.expect_urgent(start);
        }
        self.write_staged(staged, Origin::Foreground)?;
        let flushed = match bulk {
            Some(_) => {
                self.write_out(lsn, Origin::Foreground);
                self.seq.wait_durable(lsn, |set| {
                    flush_each(&self.lanes, set, |l| l.flush_bulk(Origin::Foreground))
                })
            }
            None => self.wait_durable(lsn, Origin::Foreground),
        }?;
        self.pause(pause, bulk.as_ref(), start);
        Ok(flushed)
    }

    /// Pauses after a record whose write began at `start`, as the room that is left demands.
    pub(crate) fn pause(&self, pause: Pause, bulk: Option<&Member<'_>>, start: u64) {
        let took = Duration::from_nanos(self.clock.mono_ns().saturating_sub(start));
        let pause = match bulk {
            Some(member) => pause.among(member.count()).after(took),
            None => self.owed.add(pause.after(took)),
        };
        if !pause.is_zero() {
            self.lanes[0].give_way(pause);
        }
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

    /// Writes the records of tickets that nobody has written, neighbours in a lane at once, if
    /// there is one up to `lsn`. A thread that waits for `lsn` calls this before: then all up to
    /// there is written, or on its way. Failures are latched; the wait learns of them.
    pub(crate) fn write_out(&self, lsn: Lsn, origin: Origin) {
        // After a failure nothing more is written, and nobody waits for it.
        if !self.unwritten.holds_up(lsn) || self.seq.check().is_err() {
            return;
        }
        if origin == Origin::Foreground {
            self.link.expect_urgent(self.clock.mono_ns());
        }
        for run in self.unwritten.take() {
            let result = self.write_run(&run, origin);
            run.completed(&self.seq, &result, |buf| self.record_buffers.give(buf));
        }
    }

    fn write_run(&self, run: &Run, origin: Origin) -> Result<()> {
        let (lane, mut parts) = (&self.lanes[run.lane()], run.parts());
        let first = parts.next().expect("a run has a record");
        if first.len() == run.total() {
            return lane.write(origin, run.offset(), first);
        }
        let len = u32::try_from(run.total()).expect("a run of several is bounded");
        let mut buf = self.record_buffers.take(len);
        let mut rest = &mut buf[..];
        for part in std::iter::once(first).chain(parts) {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
        let result = lane.write(origin, run.offset(), &buf);
        self.record_buffers.give(buf);
        result
    }

    /// Returns when everything up to `lsn` is durable.
    pub(crate) fn wait_durable(&self, lsn: Lsn, origin: Origin) -> Result<Flushed> {
        self.write_out(lsn, origin);
        self.seq.wait_durable(lsn, |set| self.flush(set, origin))
    }

    /// As [`Runtime::wait_durable`] for a caller, for `most` at most.
    pub(crate) fn wait_durable_for(&self, lsn: Lsn, most: Duration) -> Result<Option<Flushed>> {
        self.write_out(lsn, Origin::Foreground);
        self.seq.wait_durable_for(lsn, most, |set| self.flush(set, Origin::Foreground))
    }

    /// Calls `answer` once everything up to `lsn` is durable, or never will be. The caller holds no
    /// lock; see [`Sequencer::when_durable`](crate::Sequencer::when_durable).
    pub(crate) fn when_durable(
        &self,
        lsn: Lsn,
        answer: impl FnOnce(Result<Flushed>) + Send + 'static,
    ) {
        self.write_out(lsn, Origin::Foreground);
        self.seq.when_durable(lsn, |set| self.flush(set, Origin::Foreground), answer);
    }

    fn flush(&self, lanes: LaneSet, origin: Origin) -> Result<()> {
        flush_each(&self.lanes, lanes, |lane| lane.flush(origin))
    }

    /// A wait for room in the log, or in the running transaction, has ended.
    fn note_wait(&self, since: Option<u64>, bulk: bool) {
        let Some(since) = since else { return };
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
