//! Group commit under every order of its threads: rule R3, rule R21, and that nobody waits for ever
//! (a thread that nothing will wake fails the test).

use loom::sync::{Arc, Mutex};
use loom::thread;
use siftfs_base::{Error, LaneId, Lsn, Result};
use siftfs_interleave::lane::Lane;
use siftfs_interleave::sequencer::{Published, Sequencer, WriteMode};
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
}

fn eio() -> Error {
    Error::Io { op: "test", offset: 0, len: 0, errno: 5 }
}

impl Volume {
    fn new() -> Self {
        Self {
            sequencer: Sequencer::new(Duration::ZERO, Lsn(0)),
            medium: Mutex::new(Medium {
                lane: Lane::new(1 << 20, 0),
                drawn: 0,
                written: Vec::new(),
                durable: Vec::new(),
            }),
            broken_flush: false,
            broken_write: None,
        }
    }

    /// An fsync: number and place are drawn under one lock, the rest happens without it.
    fn fsync(&self) -> (Lsn, Result<()>) {
        let published = {
            let mut medium = self.medium.lock().expect("not poisoned");
            medium.drawn += 1;
            let lsn = Lsn(medium.drawn);
            let place = medium.lane.place(4096).expect("there is room");
            let record = medium.lane.fix(place, LaneId(0), lsn, 0, 64);
            self.sequencer.publish(&record)
        };
        let lsn = published.lsn();
        let result = self.write(&published);
        if let Err(e) = self.sequencer.completed(published, result) {
            return (lsn, Err(e));
        }
        let answer = self.sequencer.wait_durable(lsn, || self.flush());
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

/// Runs `threads` fsyncs on each volume that `make` makes, one for every order of the threads, and
/// gives their answers to `judge`.
fn every_order(
    threads: usize,
    make: impl Fn() -> Volume + Sync + Send + 'static,
    judge: impl Fn(&Volume, Vec<(Lsn, Result<()>)>) + Sync + Send + 'static,
) {
    let mut model = loom::model::Builder::new();
    // With three threads: orders in which a thread is interrupted at most so often.
    model.preemption_bound = (threads > 2).then_some(3);
    model.check(move || {
        let volume = Arc::new(make());
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let volume = volume.clone();
                thread::spawn(move || volume.fsync())
            })
            .collect();
        let mut answers = vec![volume.fsync()];
        answers.extend(others.into_iter().map(|t| t.join().expect("does not panic")));
        judge(&volume, answers);
    });
}

fn all_succeed(volume: &Volume, answers: Vec<(Lsn, Result<()>)>) {
    assert!(answers.iter().all(|(_, a)| a.is_ok()));
    assert_eq!(volume.sequencer.durable(), volume.sequencer.published());
}

#[test]
fn r03_two_fsyncs_in_every_order() {
    every_order(2, Volume::new, all_succeed);
}

#[test]
fn r03_three_fsyncs() {
    every_order(3, Volume::new, all_succeed);
}

/// Rule R21: a failed flush answers everybody, and nobody whose record it should have covered is told
/// that it is durable.
#[test]
fn r21_a_failed_flush_answers_everybody() {
    let make = || Volume { broken_flush: true, ..Volume::new() };
    every_order(3, make, |volume, answers| {
        for (lsn, answer) in answers {
            let durable = volume.medium.lock().expect("not poisoned").durable.contains(&lsn);
            assert!(durable || answer.is_err(), "{lsn:?} was promised");
        }
    });
}

/// A failed write answers everybody above it, and its own caller.
#[test]
fn r21_a_failed_write_answers_everybody() {
    let make = || Volume { broken_write: Some(Lsn(1)), ..Volume::new() };
    every_order(2, make, |_, answers| {
        assert!(answers.iter().all(|(_, a)| matches!(a, Err(Error::Latched(_)))));
    });
}
