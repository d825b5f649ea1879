//! Group commit under every order of its threads: rule R3, rule R21, and that no caller waits for
//! ever (a thread that nothing will wake fails the test).

use loom::sync::{Arc, Mutex};
use loom::thread;
use siftfs_base::{Error, LaneId, Lsn, ManualClock, Result};
use siftfs_interleave::lane::Lane;
use siftfs_interleave::sequencer::{Flushed, Published, Sequencer, WriteMode, Writer};
use siftfs_interleave::ways::{Group, Way};
use std::time::Duration;

/// A lane's medium: which records are written, which of them are durable.
struct Medium {
    lane: Lane,
    drawn: u64,
    written: Vec<Lsn>,
    durable: Vec<Lsn>,
}

struct Volume {
    sequencer: Sequencer,
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
            medium: Mutex::new(Medium {
                lane: Lane::new(1 << 20, 0),
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
        let mut medium = self.medium.lock().expect("not poisoned");
        medium.drawn += 1;
        let lsn = Lsn(medium.drawn);
        let place = medium.lane.place(4096).expect("there is room");
        let record = medium.lane.fix(place, LaneId(0), lsn, 0, 64);
        self.sequencer.publish(&record, writer)
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
        let answer = self.sequencer.wait_durable(lsn, |_| self.flush());
        if let Ok(proof) = &answer {
            assert!(proof.covers(lsn));
            self.check(lsn);
        }
        (lsn, answer.map(drop))
    }

    fn write(&self, published: &Published) -> Result<()> {
        let (lsn, mode) = (published.lsn(), published.mode());
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
    let (lsn, written) = volume.stage(Writer::Caller);
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

/// The second of three durable writes fails: the first is acknowledged or not, the third never.
#[test]
fn r21_no_acknowledgement_above_a_failed_write() {
    let make = || Volume { broken_write: Some(Lsn(2)), ..Volume::parallel() };
    every_order(&[leaves, leaves, leaves], make, |volume, answers| {
        assert!(answers[1].1.is_err() && answers[2].1.is_err());
        no_promise_is_broken(volume, answers);
    });
}
