//! Group commit under every order of its threads: rule R3, rule R21, and that no caller waits for
//! ever (a thread that nothing will wake fails the test).

use loom::sync::{Arc, Mutex};
use loom::thread;
use siftfs_base::{Error, LaneId, Lsn, ManualClock, Result};
use siftfs_device::AlignedBuf;
use siftfs_interleave::lane::Lane;
use siftfs_interleave::sequencer::{Flushed, Published, Sequencer, WriteMode, Writer};
use siftfs_interleave::unwritten::{Staged, Unwritten};
use siftfs_interleave::ways::{Group, Way};
use siftfs_log::LaneMedium;
use std::time::Duration;

/// A lane's medium: which records are written, which of them are durable.
struct Medium {
    lane: Lane,
    /// A record area, and the records in it.
    area: Lane,
    compact: Vec<Lsn>,
    drawn: u64,
    written: Vec<Lsn>,
    durable: Vec<Lsn>,
}

struct Volume {
    sequencer: Sequencer,
    unwritten: Unwritten,
    medium: Mutex<Medium>,
    /// Fails every flush, or the write of this record.
    broken_flush: bool,
    broken_write: Option<Lsn>,
    /// Answers to callers that did not wait.
    told: Mutex<Vec<(Lsn, Result<()>)>>,
}

fn eio() -> Error {
    Error::Io { op: "test", offset: 0, len: 0, errno: 5 }
}

impl Volume {
    fn new(way: Way) -> Self {
        let clock = std::sync::Arc::new(ManualClock::new(0));
        Self {
            sequencer: Sequencer::new(Duration::ZERO, Lsn(0), Group::Fixed(way), clock),
            unwritten: Unwritten::default(),
            medium: Mutex::new(Medium {
                lane: Lane::new(1 << 20, 0),
                area: Lane::on(LaneMedium::Bytes, 1 << 20, 0),
                compact: Vec::new(),
                drawn: 0,
                written: Vec::new(),
                durable: Vec::new(),
            }),
            broken_flush: false,
            broken_write: None,
            told: Mutex::default(),
        }
    }

    fn shared() -> Self {
        Self::new(Way::Shared)
    }

    fn parallel() -> Self {
        Self::new(Way::Parallel)
    }

    /// Number and place are drawn under one lock, the rest happens without it.
    fn publish(&self, writer: Writer) -> Published {
        self.publish_in(&mut self.medium.lock().expect("not poisoned"), writer).0
    }

    /// The record, and where it lies.
    fn publish_in(&self, medium: &mut Medium, writer: Writer) -> (Published, u64) {
        medium.drawn += 1;
        let lsn = Lsn(medium.drawn);
        let place = medium.lane.place(4096).expect("there is room");
        let offset = place.pos();
        let record = medium.lane.fix(place, LaneId(0), lsn, 0, 64);
        (self.sequencer.publish(&record, writer), offset)
    }

    /// An fsync in the record area, as `Runtime::begin_durable`.
    fn persist(&self) -> (Lsn, Result<()>) {
        let published = {
            let medium = &mut *self.medium.lock().expect("not poisoned");
            medium.drawn += 1;
            let lsn = Lsn(medium.drawn);
            let place = medium.area.place(64).expect("there is room");
            let record = medium.area.fix(place, LaneId(1), lsn, 0, 64);
            medium.compact.push(lsn);
            self.sequencer.publish_compact(&record)
        };
        let lsn = published.lsn();
        let written = self.write(&published);
        let done = self.sequencer.completed(published, written);
        let proof = done.and_then(|()| self.sequencer.wait_alone(lsn));
        (lsn, proof.map(|proof| self.check_alone(lsn, &proof)))
    }

    /// Rule R44: an acknowledged record of the area is durable, and so are those before it there: a
    /// reader stops at the first that is not.
    fn check_alone(&self, lsn: Lsn, proof: &Flushed) {
        assert!(proof.covers(lsn));
        let medium = self.medium.lock().expect("not poisoned");
        let before = medium.compact.iter().filter(|other| **other <= lsn);
        before.for_each(|lsn| assert!(medium.durable.contains(lsn), "{lsn:?} is not durable"));
    }

    /// As for a ticket: the record waits to be written, from the lock on under which it was
    /// published.
    fn stage_unwritten(&self) -> Lsn {
        let mut medium = self.medium.lock().expect("not poisoned");
        let (published, offset) = self.publish_in(&mut medium, Writer::Ticket);
        let lsn = published.lsn();
        let mut buf = AlignedBuf::zeroed(4096);
        buf.fill(u8::try_from(lsn.0).expect("few records"));
        let full = self.unwritten.push(Staged { published, lane: 0, offset, buf });
        assert!(!full);
        lsn
    }

    /// As `Runtime::write_out`.
    fn write_out(&self, lsn: Lsn) {
        if !self.unwritten.holds_up(lsn) || self.sequencer.check().is_err() {
            return;
        }
        for run in self.unwritten.take() {
            let mut numbers = run.parts().map(|part| Lsn(part[0].into()));
            let result = numbers.try_for_each(|lsn| self.write_record(lsn, WriteMode::Plain));
            drop(numbers);
            run.completed(&self.sequencer, &result, drop);
        }
    }

    /// A record is written by this writer.
    fn stage(&self, writer: Writer) -> (Lsn, Result<()>) {
        let published = self.publish(writer);
        let lsn = published.lsn();
        let result = self.write(&published);
        (lsn, self.sequencer.completed(published, result))
    }

    /// An fsync whose caller waits.
    fn fsync(&self, writer: Writer) -> (Lsn, Result<()>) {
        let (lsn, written) = self.stage(writer);
        if written.is_err() {
            return (lsn, written);
        }
        (lsn, self.wait(lsn))
    }

    /// Waits until everything up to `lsn` is durable.
    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.write_out(lsn);
        let proof = self.sequencer.wait_durable(lsn, |_| self.flush())?;
        assert!(proof.covers(lsn));
        self.check(lsn);
        Ok(())
    }

    fn write(&self, published: &Published) -> Result<()> {
        self.write_record(published.lsn(), published.mode())
    }

    fn write_record(&self, lsn: Lsn, mode: WriteMode) -> Result<()> {
        if self.broken_write == Some(lsn) {
            return Err(eio());
        }
        let mut medium = self.medium.lock().expect("not poisoned");
        medium.written.push(lsn);
        if mode == WriteMode::Fua {
            medium.durable.push(lsn);
        }
        Ok(())
    }

    /// Covers what had been written when it began; other threads may run before it returns.
    fn flush(&self) -> Result<()> {
        let covered = self.medium.lock().expect("not poisoned").written.clone();
        if self.broken_flush {
            return Err(eio());
        }
        self.medium.lock().expect("not poisoned").durable.extend(covered);
        Ok(())
    }

    /// Rule R3: everything up to an acknowledged record is durable.
    fn check(&self, lsn: Lsn) {
        let medium = self.medium.lock().expect("not poisoned");
        for number in 1..=lsn.0 {
            assert!(medium.durable.contains(&Lsn(number)), "{number} below {lsn:?}");
        }
    }
}

/// An fsync whose caller goes away; `after` comes with the answer.
fn fsync_then(volume: &Arc<Volume>, after: impl FnOnce(&Arc<Volume>) + Send + 'static) {
    answer_then(volume, volume.stage(Writer::Caller), after);
}

/// The answer for a record that was written, or waits to be.
fn answer_then(
    volume: &Arc<Volume>,
    (lsn, written): (Lsn, Result<()>),
    after: impl FnOnce(&Arc<Volume>) + Send + 'static,
) {
    let (here, volume) = (volume.clone(), volume.clone());
    let answer = move |outcome: Result<()>| {
        // Nothing is locked here: this would never return.
        assert!(outcome.is_err() || volume.sequencer.durable() >= lsn);
        if outcome.is_ok() {
            volume.check(lsn);
        }
        volume.told.lock().expect("not poisoned").push((lsn, outcome));
        after(&volume);
    };
    match written {
        Err(e) => answer(Err(e)),
        Ok(()) => {
            let answer = move |outcome: Result<Flushed>| answer(outcome.map(drop));
            here.write_out(lsn);
            here.sequencer.when_durable(lsn, |_| here.flush(), answer);
        }
    }
}

/// What one thread does.
type Job = fn(&Arc<Volume>) -> Option<(Lsn, Result<()>)>;

fn waits(volume: &Arc<Volume>) -> Option<(Lsn, Result<()>)> {
    Some(volume.fsync(Writer::Caller))
}

fn leaves(volume: &Arc<Volume>) -> Option<(Lsn, Result<()>)> {
    fsync_then(volume, |_| ());
    None
}

/// The background writes records, and waits for them under a lock of its own.
fn pushes(volume: &Arc<Volume>) -> Option<(Lsn, Result<()>)> {
    Some(volume.fsync(Writer::Background))
}

/// A ticket, and a wait for it.
fn stages(volume: &Arc<Volume>) -> Option<(Lsn, Result<()>)> {
    let lsn = volume.stage_unwritten();
    Some((lsn, volume.wait(lsn)))
}

/// A ticket whose caller goes away.
fn stages_and_leaves(volume: &Arc<Volume>) -> Option<(Lsn, Result<()>)> {
    answer_then(volume, (volume.stage_unwritten(), Ok(())), |_| ());
    None
}

/// A ticket that nobody waits for.
fn only_stages(volume: &Arc<Volume>) -> Option<(Lsn, Result<()>)> {
    Some((volume.stage_unwritten(), Ok(())))
}

/// An fsync in the record area.
fn persists(volume: &Arc<Volume>) -> Option<(Lsn, Result<()>)> {
    Some(volume.persist())
}

/// Runs these jobs, a thread each, on each volume that `make` makes, one for every order of the
/// threads, and gives all answers to `judge`: exactly one for each job.
fn every_order(
    jobs: &'static [Job],
    make: impl Fn() -> Volume + Sync + Send + 'static,
    judge: impl Fn(&Volume, Vec<(Lsn, Result<()>)>) + Sync + Send + 'static,
) {
    let mut model = loom::model::Builder::new();
    // Orders in which a thread is interrupted at most so often.
    model.preemption_bound = Some(if jobs.len() > 2 { 3 } else { 5 });
    model.check(move || {
        let volume = Arc::new(make());
        let others: Vec<_> = jobs[1..]
            .iter()
            .map(|job| {
                let volume = volume.clone();
                thread::spawn(move || job(&volume))
            })
            .collect();
        let mut answers: Vec<_> = jobs[0](&volume).into_iter().collect();
        for other in others {
            answers.extend(other.join().expect("does not panic"));
        }
        answers.extend(volume.told.lock().expect("not poisoned").drain(..));
        answers.sort_by_key(|(lsn, _)| *lsn);
        let answered: Vec<u64> = answers.iter().map(|(lsn, _)| lsn.0).collect();
        let all: Vec<u64> = (1..=jobs.len() as u64).collect();
        assert_eq!(answered, all, "each is answered, and once");
        judge(&volume, answers);
    });
}

fn all_succeed(volume: &Volume, answers: Vec<(Lsn, Result<()>)>) {
    assert!(answers.iter().all(|(_, a)| a.is_ok()));
    assert_eq!(volume.sequencer.durable(), volume.sequencer.published());
    assert_eq!(volume.sequencer.depths(), (0, 0));
}

/// Rule R21: a caller that is told that a record is durable was told the truth.
fn no_promise_is_broken(volume: &Volume, answers: Vec<(Lsn, Result<()>)>) {
    for (lsn, answer) in answers {
        let durable = volume.medium.lock().expect("not poisoned").durable.contains(&lsn);
        assert!(durable || answer.is_err(), "{lsn:?} was promised");
    }
}

#[test]
fn r03_two_fsyncs_in_every_order() {
    every_order(&[waits, waits], Volume::shared, all_succeed);
    every_order(&[waits, waits], Volume::parallel, all_succeed);
}

#[test]
fn r03_three_fsyncs() {
    every_order(&[waits, waits, waits], Volume::shared, all_succeed);
    every_order(&[waits, waits, waits], Volume::parallel, all_succeed);
}

/// Callers that go away are answered, with and without others that wait.
#[test]
fn r03_who_left_is_answered() {
    for make in [Volume::shared, Volume::parallel] {
        every_order(&[leaves, leaves], make, all_succeed);
        every_order(&[leaves, waits], make, all_succeed);
        every_order(&[leaves, pushes], make, all_succeed);
    }
}

#[test]
fn r03_three_who_left_are_answered() {
    every_order(&[leaves, leaves, leaves], Volume::shared, all_succeed);
    every_order(&[leaves, leaves, leaves], Volume::parallel, all_succeed);
}

/// The background's flush answers no caller, so a caller that went away must not rely on it.
#[test]
fn r03_who_left_beside_the_background() {
    every_order(&[leaves, pushes, leaves], Volume::shared, all_succeed);
    every_order(&[leaves, pushes, leaves], Volume::parallel, all_succeed);
}

/// Tickets beside fsyncs, of callers that wait and of callers that go away, and beside the
/// background: the first waiter writes what no thread has written.
#[test]
fn r03_tickets_in_every_order() {
    every_order(&[stages, stages], Volume::shared, all_succeed);
    every_order(&[stages, pushes], Volume::shared, all_succeed);
    every_order(&[stages_and_leaves, stages_and_leaves], Volume::shared, all_succeed);
    every_order(&[stages_and_leaves, pushes], Volume::shared, all_succeed);
    for make in [Volume::shared, Volume::parallel] {
        every_order(&[stages, leaves], make, all_succeed);
        every_order(&[stages_and_leaves, waits], make, all_succeed);
    }
}

/// A ticket that nobody waits for keeps nobody: it is written by the one below or above it who
/// waits, or stays where it is.
#[test]
fn r03_a_ticket_without_a_waiter() {
    let holds = |volume: &Volume, answers: Vec<(Lsn, Result<()>)>| {
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()));
        volume.wait(volume.sequencer.published()).expect("durable in the end");
    };
    for make in [Volume::shared, Volume::parallel] {
        every_order(&[only_stages, waits], make, holds);
        every_order(&[only_stages, leaves, waits], make, holds);
        every_order(&[only_stages, stages_and_leaves, pushes], make, holds);
    }
}

#[test]
fn r03_tickets_of_three() {
    every_order(&[stages, stages_and_leaves, waits], Volume::shared, all_succeed);
    every_order(&[stages_and_leaves, leaves, pushes], Volume::parallel, all_succeed);
}

/// An answer that asks for more: by leaving, and by waiting.
#[test]
fn an_answer_may_ask_for_more() {
    let again: [Job; 2] = [
        |volume| {
            fsync_then(volume, |volume| fsync_then(volume, |_| ()));
            None
        },
        |volume| {
            fsync_then(volume, |volume| {
                let answer = volume.fsync(Writer::Caller);
                volume.told.lock().expect("not poisoned").push(answer);
            });
            None
        },
    ];
    for make in [Volume::shared, Volume::parallel] {
        for first in again {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(3);
            model.check(move || {
                let volume = Arc::new(make());
                let other = volume.clone();
                let other = thread::spawn(move || drop(leaves(&other)));
                first(&volume);
                other.join().expect("does not panic");
                let told = std::mem::take(&mut *volume.told.lock().expect("not poisoned"));
                assert_eq!(told.len(), 3, "{told:?}");
                all_succeed(&volume, told);
            });
        }
    }
}

/// Rule R21: a failed flush answers every caller, and no caller whose record it should have covered
/// is told that it is durable.
#[test]
fn r21_a_failed_flush_answers_everybody() {
    let make = || Volume { broken_flush: true, ..Volume::shared() };
    every_order(&[waits, waits, waits], make, no_promise_is_broken);
    every_order(&[leaves, leaves, waits], make, no_promise_is_broken);
}

/// A failed write answers all callers above it, and its own caller, also if theirs were durable
/// writes of their own that succeeded.
#[test]
fn r21_a_failed_write_answers_everybody() {
    for make in [Volume::shared, Volume::parallel] {
        let make = move || Volume { broken_write: Some(Lsn(1)), ..make() };
        let all_fail = |_: &Volume, answers: Vec<(Lsn, Result<()>)>| {
            assert!(answers.iter().all(|(_, a)| matches!(a, Err(Error::Latched(_)))));
        };
        every_order(&[waits, waits], make, all_fail);
        every_order(&[leaves, leaves], make, all_fail);
        every_order(&[leaves, waits], make, all_fail);
    }
}

/// The same for tickets whose write fails, and those above it.
#[test]
fn r21_a_failed_write_of_a_ticket_answers_everybody() {
    let make = || Volume { broken_write: Some(Lsn(1)), ..Volume::shared() };
    let all_fail = |_: &Volume, answers: Vec<(Lsn, Result<()>)>| {
        assert!(answers.iter().all(|(_, a)| matches!(a, Err(Error::Latched(_)))));
    };
    every_order(&[stages, waits], make, all_fail);
    every_order(&[stages, stages_and_leaves], make, all_fail);
    every_order(&[stages_and_leaves, leaves], make, all_fail);
    let make = || Volume { broken_flush: true, ..Volume::shared() };
    every_order(&[stages, stages_and_leaves, waits], make, no_promise_is_broken);
}

/// The second of three durable writes fails: the first is acknowledged or not, the third never.
#[test]
fn r21_no_acknowledgement_above_a_failed_write() {
    let make = || Volume { broken_write: Some(Lsn(2)), ..Volume::parallel() };
    every_order(&[leaves, leaves, leaves], make, |volume, answers| {
        assert!(answers[1].1.is_err() && answers[2].1.is_err());
        no_promise_is_broken(volume, answers);
    });
}

/// The record area beside itself and beside the disk, whose watermark passes its records, too.
#[test]
fn r44_the_record_area_in_every_order() {
    every_order(&[persists, persists], Volume::shared, all_succeed);
    for make in [Volume::shared, Volume::parallel] {
        every_order(&[persists, waits], make, all_succeed);
        every_order(&[persists, leaves], make, all_succeed);
        every_order(&[persists, stages], make, all_succeed);
    }
}

#[test]
fn r44_the_record_area_beside_two() {
    every_order(&[persists, persists, waits], Volume::shared, all_succeed);
    every_order(&[persists, persists, leaves], Volume::shared, all_succeed);
}

/// Rule R21 in the record area: after a failed persist nothing is promised there or on the disk.
#[test]
fn r21_a_failed_persist() {
    let broken = || Volume { broken_write: Some(Lsn(1)), ..Volume::shared() };
    every_order(&[persists, persists], broken, no_promise_is_broken);
    every_order(&[persists, waits], broken, no_promise_is_broken);
}
