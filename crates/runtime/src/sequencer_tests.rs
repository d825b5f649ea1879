use super::*;
use crate::lane::Lane;
use siftfs_base::LaneId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn io() -> Error {
    Error::Io { op: "flush", offset: 0, len: 0, errno: libc::EIO }
}

/// Publishes a record of this number.
fn publish(seq: &Sequencer, lsn: u64) -> Published {
    let mut lane = Lane::new(1 << 20, 0);
    let place = lane.place(4096).expect("an empty lane has room");
    seq.publish(&lane.fix(place, LaneId(0), Lsn(lsn), 0, 64))
}

#[test]
fn a_record_alone_is_durable_with_its_own_write() {
    let seq = Sequencer::new(Duration::ZERO, Lsn(5));
    let six = publish(&seq, 6);
    assert_eq!((six.lsn(), six.mode()), (Lsn(6), WriteMode::Fua));
    seq.completed(six, Ok(())).expect("completes");
    let proof = seq.wait_durable(Lsn(6), || panic!("no flush is needed")).expect("durable");
    assert!(proof.covers(Lsn(6)) && !proof.covers(Lsn(7)));
}

/// Rule R3: the flush that acknowledges a record is issued only when every lower write is done.
#[test]
fn r03_no_acknowledgement_over_a_hole() {
    let seq = Arc::new(Sequencer::new(Duration::ZERO, Lsn(0)));
    let first = publish(&seq, 1);
    assert_eq!(first.mode(), WriteMode::Fua);
    let second = publish(&seq, 2);
    assert_eq!(second.mode(), WriteMode::Plain, "something lower is in flight");
    seq.completed(second, Ok(())).expect("completes");
    let flushes = Arc::new(AtomicU64::new(0));
    let waiter = {
        let (seq, flushes) = (seq.clone(), flushes.clone());
        std::thread::spawn(move || {
            seq.wait_durable(Lsn(2), || {
                flushes.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
        })
    };
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(flushes.load(Ordering::SeqCst), 0, "record 1 is still being written");
    assert!(seq.durable() < Lsn(2));
    seq.completed(first, Ok(())).expect("completes");
    waiter.join().expect("joins").expect("durable");
    assert_eq!(flushes.load(Ordering::SeqCst), 1);
    assert_eq!(seq.durable(), Lsn(2));
}

/// Rule R21: after a failed flush nothing is acknowledged, now or later.
#[test]
fn r21_a_failed_flush_is_latched() {
    let seq = Sequencer::new(Duration::ZERO, Lsn(0));
    let (one, two) = (publish(&seq, 1), publish(&seq, 2));
    seq.completed(one, Ok(())).expect("completes");
    seq.completed(two, Ok(())).expect("completes");
    assert!(seq.wait_durable(Lsn(2), || Err(io())).is_err());
    assert!(seq.wait_durable(Lsn(2), || Ok(())).is_err(), "a later flush proves nothing");
    assert_eq!(seq.durable(), Lsn(1), "the first was alone, the second's flush failed");
    assert!(matches!(seq.check(), Err(Error::Latched(_))));
}

/// A failed write ends everything too: what lies behind it can never be acknowledged.
#[test]
fn a_failed_write_is_latched() {
    let seq = Sequencer::new(Duration::ZERO, Lsn(0));
    let one = publish(&seq, 1);
    assert!(seq.completed(one, Err(io())).is_err());
    assert!(seq.wait_durable(Lsn(1), || Ok(())).is_err());
}

/// Many writers, slow flushes: every acknowledged record is covered by a flush that began after
/// its write, and flushes are shared.
#[test]
fn flushes_are_shared() {
    let seq = Arc::new(Sequencer::new(Duration::from_micros(500), Lsn(0)));
    let order = Arc::new(Mutex::new(0u64));
    let flushes = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (seq, order, flushes) = (seq.clone(), order.clone(), flushes.clone());
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let published = {
                        let mut last = order.lock().expect("not poisoned");
                        *last += 1;
                        publish(&seq, *last)
                    };
                    let lsn = published.lsn();
                    seq.completed(published, Ok(())).expect("completes");
                    seq.wait_durable(lsn, || {
                        flushes.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(1));
                        Ok(())
                    })
                    .expect("durable");
                    assert!(seq.durable() >= lsn);
                }
            })
        })
        .collect();
    for t in threads {
        t.join().expect("joins");
    }
    assert!(flushes.load(Ordering::SeqCst) <= 400, "never more than one each");
}

/// Two callers whose flush takes half a second: they come together.
fn two_share_a_flush(seq: &Sequencer) {
    let (one, two) = (publish(seq, 1), publish(seq, 2));
    seq.completed(one, Ok(())).expect("completes");
    assert_eq!(seq.durable(), Lsn(1), "the first was alone");
    seq.completed(two, Ok(())).expect("completes");
    let three = publish(seq, 3);
    assert_eq!(three.mode(), WriteMode::Plain, "the second is not durable");
    seq.completed(three, Ok(())).expect("completes");
    std::thread::scope(|s| {
        for lsn in [2, 3] {
            s.spawn(move || {
                let flush = || {
                    while seq.depths().1 < 2 {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(500));
                    Ok(())
                };
                seq.wait_durable(Lsn(lsn), flush).expect("durable");
            });
        }
    });
    assert_eq!(seq.durable(), Lsn(3));
}

#[test]
fn who_came_together_is_waited_for() {
    let seq = Sequencer::new(Duration::from_secs(60), Lsn(0));
    two_share_a_flush(&seq);
    let flushes = AtomicU64::new(0);
    let go = || {
        flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    std::thread::scope(|s| {
        let four = publish(&seq, 4);
        assert_eq!(four.mode(), WriteMode::Plain, "company is expected");
        seq.completed(four, Ok(())).expect("completes");
        let first = s.spawn(|| seq.wait_durable(Lsn(4), go));
        while seq.lock().gathering.is_none() {
            std::thread::yield_now();
        }
        let five = publish(&seq, 5);
        seq.completed(five, Ok(())).expect("completes");
        seq.wait_durable(Lsn(5), go).expect("durable");
        first.join().expect("joins").expect("durable");
    });
    assert_eq!(flushes.load(Ordering::SeqCst), 1, "one flush served both");
}

#[test]
fn a_caller_left_alone_waits_in_vain_once() {
    let seq = Sequencer::new(Duration::from_millis(20), Lsn(0));
    two_share_a_flush(&seq);
    for (lsn, mode) in [(4, WriteMode::Plain), (5, WriteMode::Fua), (6, WriteMode::Fua)] {
        let published = publish(&seq, lsn);
        assert_eq!(published.mode(), mode);
        seq.completed(published, Ok(())).expect("completes");
        seq.wait_durable(Lsn(lsn), || Ok(())).expect("durable");
    }
}

#[test]
fn without_a_wait_nobody_is_waited_for() {
    let seq = Sequencer::new(Duration::ZERO, Lsn(0));
    two_share_a_flush(&seq);
    assert_eq!(publish(&seq, 4).mode(), WriteMode::Fua);
}
