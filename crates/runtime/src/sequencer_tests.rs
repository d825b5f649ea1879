use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn io() -> Error {
    Error::Io { op: "flush", offset: 0, len: 0, errno: libc::EIO }
}

#[test]
fn a_record_alone_is_durable_with_its_own_write() {
    let seq = Sequencer::new(Duration::ZERO, Lsn(5));
    assert_eq!(seq.publish(Lsn(6)), WriteMode::Fua);
    seq.completed(Lsn(6), WriteMode::Fua, Ok(())).expect("completes");
    seq.wait_durable(Lsn(6), || panic!("no flush is needed")).expect("durable");
}

/// Rule R3: the flush that acknowledges a record is issued only when every lower write is done.
#[test]
fn r03_no_acknowledgement_over_a_hole() {
    let seq = Arc::new(Sequencer::new(Duration::ZERO, Lsn(0)));
    let first = seq.publish(Lsn(1));
    assert_eq!(first, WriteMode::Fua);
    let second = seq.publish(Lsn(2));
    assert_eq!(second, WriteMode::Plain, "something lower is in flight");
    seq.completed(Lsn(2), second, Ok(())).expect("completes");
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
    seq.completed(Lsn(1), first, Ok(())).expect("completes");
    waiter.join().expect("joins").expect("durable");
    assert_eq!(flushes.load(Ordering::SeqCst), 1);
    assert_eq!(seq.durable(), Lsn(2));
}

/// Rule R21: after a failed flush nothing is acknowledged, now or later.
#[test]
fn r21_a_failed_flush_is_latched() {
    let seq = Sequencer::new(Duration::ZERO, Lsn(0));
    let _ = seq.publish(Lsn(1));
    let two = seq.publish(Lsn(2));
    seq.completed(Lsn(1), WriteMode::Plain, Ok(())).expect("completes");
    seq.completed(Lsn(2), two, Ok(())).expect("completes");
    assert!(seq.wait_durable(Lsn(2), || Err(io())).is_err());
    assert!(seq.wait_durable(Lsn(2), || Ok(())).is_err(), "a later flush proves nothing");
    assert_eq!(seq.durable(), Lsn(0));
    assert!(matches!(seq.check(), Err(Error::Latched(_))));
}

/// A failed write ends everything too: what lies behind it can never be acknowledged.
#[test]
fn a_failed_write_is_latched() {
    let seq = Sequencer::new(Duration::ZERO, Lsn(0));
    let mode = seq.publish(Lsn(1));
    assert!(seq.completed(Lsn(1), mode, Err(io())).is_err());
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
                    let (lsn, mode) = {
                        let mut last = order.lock().expect("not poisoned");
                        *last += 1;
                        (Lsn(*last), seq.publish(Lsn(*last)))
                    };
                    seq.completed(lsn, mode, Ok(())).expect("completes");
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
