use super::*;
use crate::state::log::lane::Lane;
use siftfs_base::{LaneId, SystemClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn io() -> Error {
    Error::Io { op: "flush", offset: 0, len: 0, errno: libc::EIO }
}

/// Every record up to `start` is durable; a shared flush is the way.
fn sequencer(wait: Duration, start: u64) -> Sequencer {
    with(wait, start, Way::Shared)
}

fn with(wait: Duration, start: u64, way: Way) -> Sequencer {
    Sequencer::new(wait, Lsn(start), Group::Fixed(way), Arc::new(SystemClock::default()))
}

/// Publishes a record of this number.
fn publish(seq: &Sequencer, lsn: u64) -> Published {
    let mut lane = Lane::new(1 << 20, 0);
    let place = lane.place(4096).expect("an empty lane has room");
    seq.publish(&lane.fix(place, LaneId(0), Lsn(lsn), 0, 64), Writer::Caller)
}

#[test]
fn a_record_alone_is_durable_with_its_own_write() {
    let seq = sequencer(Duration::ZERO, 5);
    let six = publish(&seq, 6);
    assert_eq!((six.lsn(), six.mode()), (Lsn(6), WriteMode::Fua));
    seq.completed(six, Ok(())).expect("completes");
    let proof = seq.wait_durable(Lsn(6), |_| panic!("no flush is needed")).expect("durable");
    assert!(proof.covers(Lsn(6)) && !proof.covers(Lsn(7)));
}

/// Rule R3: the flush that acknowledges a record is issued only when every lower write is done.
#[test]
fn r03_no_acknowledgement_over_a_hole() {
    let seq = Arc::new(sequencer(Duration::ZERO, 0));
    let first = publish(&seq, 1);
    assert_eq!(first.mode(), WriteMode::Fua);
    let second = publish(&seq, 2);
    assert_eq!(second.mode(), WriteMode::Plain, "something lower is in flight");
    seq.completed(second, Ok(())).expect("completes");
    let flushes = Arc::new(AtomicU64::new(0));
    let waiter = {
        let (seq, flushes) = (seq.clone(), flushes.clone());
        std::thread::spawn(move || {
            seq.wait_durable(Lsn(2), |_| {
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
    let seq = sequencer(Duration::ZERO, 0);
    let (one, two) = (publish(&seq, 1), publish(&seq, 2));
    seq.completed(one, Ok(())).expect("completes");
    seq.completed(two, Ok(())).expect("completes");
    assert!(seq.wait_durable(Lsn(2), |_| Err(io())).is_err());
    assert!(seq.wait_durable(Lsn(2), |_| Ok(())).is_err(), "a later flush proves nothing");
    assert_eq!(seq.durable(), Lsn(1), "the first was alone, the second's flush failed");
    assert!(matches!(seq.check(), Err(Error::Latched(_))));
}

/// A failed write ends everything too: what lies behind it can never be acknowledged.
#[test]
fn a_failed_write_is_latched() {
    let seq = sequencer(Duration::ZERO, 0);
    let one = publish(&seq, 1);
    assert!(seq.completed(one, Err(io())).is_err());
    assert!(seq.wait_durable(Lsn(1), |_| Ok(())).is_err());
}

/// Many writers, slow flushes: every acknowledged record is covered by a flush that began after
/// its write, and flushes are shared.
#[test]
fn flushes_are_shared() {
    let seq = Arc::new(sequencer(Duration::from_micros(500), 0));
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
                    seq.wait_durable(lsn, |_| {
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
                let flush = |_| {
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
    let seq = sequencer(Duration::from_secs(60), 0);
    two_share_a_flush(&seq);
    let flushes = AtomicU64::new(0);
    let go = |_| {
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
    let seq = sequencer(Duration::from_millis(20), 0);
    two_share_a_flush(&seq);
    for (lsn, mode) in [(4, WriteMode::Plain), (5, WriteMode::Fua), (6, WriteMode::Fua)] {
        let published = publish(&seq, lsn);
        assert_eq!(published.mode(), mode);
        seq.completed(published, Ok(())).expect("completes");
        seq.wait_durable(Lsn(lsn), |_| Ok(())).expect("durable");
    }
}

#[test]
fn without_a_wait_nobody_is_waited_for() {
    let seq = sequencer(Duration::ZERO, 0);
    two_share_a_flush(&seq);
    assert_eq!(publish(&seq, 4).mode(), WriteMode::Fua);
}

/// Publishes a record of a ticket.
fn publish_ticket(seq: &Sequencer, lsn: u64) -> Published {
    let mut lane = Lane::new(1 << 20, 0);
    let place = lane.place(4096).expect("an empty lane has room");
    seq.publish(&lane.fix(place, LaneId(0), Lsn(lsn), 0, 64), Writer::Ticket)
}

/// Rule R3: the record of a ticket is in flight until it is written, and one flush serves it and
/// what came after it.
#[test]
fn r03_no_acknowledgement_over_a_ticket() {
    for way in [Way::Shared, Way::Parallel] {
        let seq = with(Duration::ZERO, 0, way);
        let ticket = publish_ticket(&seq, 1);
        assert_eq!(ticket.mode(), WriteMode::Plain, "though it is alone");
        let fsync = publish(&seq, 2);
        assert_eq!(fsync.mode(), WriteMode::Plain, "a flush is needed anyway");
        seq.completed(fsync, Ok(())).expect("completes");
        assert!(seq.proof(Lsn(1)).expect("no failure").is_none());
        seq.completed_together([ticket], &Ok(()));
        assert!(seq.proof(Lsn(2)).expect("no failure").is_none(), "nothing was flushed");
        let mut flushes = 0;
        let flush = |_| {
            flushes += 1;
            Ok(())
        };
        assert!(seq.wait_durable(Lsn(1), flush).expect("durable").covers(Lsn(2)));
        assert_eq!(flushes, 1);
        assert_eq!(publish(&seq, 3).mode(), WriteMode::Fua, "nothing is owed any more");
    }
}

/// A wait ends in time when another thread's write does not, and is in nobody's way afterwards.
#[test]
fn a_wait_ends_in_time() {
    let seq = sequencer(Duration::ZERO, 0);
    let [one, two] = [1, 2].map(|lsn| publish(&seq, lsn));
    seq.completed(two, Ok(())).expect("completes");
    let no_flush = |_| panic!("the first is not written");
    for most in [Duration::ZERO, Duration::from_millis(20)] {
        let start = std::time::Instant::now();
        assert!(seq.wait_durable_for(Lsn(2), most, no_flush).expect("no failure").is_none());
        assert!(start.elapsed() >= most);
    }
    assert_eq!(seq.depths(), (1, 0));
    seq.completed(one, Ok(())).expect("completes");
    let soon = Duration::from_secs(60);
    let proof = seq.wait_durable_for(Lsn(2), soon, |_| Ok(())).expect("no failure");
    assert!(proof.expect("flushed by itself").covers(Lsn(2)));
    assert!(seq.wait_durable_for(Lsn(1), Duration::ZERO, no_flush).expect("durable").is_some());
    seq.fail(&io());
    assert!(seq.wait_durable_for(Lsn(3), soon, no_flush).is_err());
}

/// Answers that were given, in order.
type Told = Arc<Mutex<Vec<(u64, Result<()>)>>>;

/// Records the answer for `lsn`.
fn tell(told: &Told, lsn: u64) -> impl FnOnce(Result<Flushed>) + Send + 'static {
    let told = told.clone();
    move |outcome| told.lock().expect("not poisoned").push((lsn, outcome.map(drop)))
}

fn numbers(told: &Told) -> Vec<u64> {
    told.lock().expect("not poisoned").iter().map(|(lsn, _)| *lsn).collect()
}

/// Rule R3: durable writes in parallel are acknowledged in the order of their numbers.
#[test]
fn r03_durable_writes_in_parallel() {
    let seq = with(Duration::ZERO, 0, Way::Parallel);
    let [one, two, three] = [1, 2, 3].map(|lsn| publish(&seq, lsn));
    for record in [&one, &two, &three] {
        assert_eq!(record.mode(), WriteMode::Fua);
    }
    let told = Told::default();
    let no_flush = |_| panic!("no flush is needed");
    seq.completed(three, Ok(())).expect("completes");
    seq.when_durable(Lsn(3), no_flush, tell(&told, 3));
    seq.completed(two, Ok(())).expect("completes");
    seq.when_durable(Lsn(2), no_flush, tell(&told, 2));
    assert_eq!((seq.durable(), numbers(&told)), (Lsn(0), vec![]), "over a hole");
    assert_eq!(seq.depths(), (1, 2));
    seq.completed(one, Ok(())).expect("completes");
    assert_eq!(seq.durable(), Lsn(3));
    let mut given = numbers(&told);
    given.sort_unstable();
    assert_eq!(given, [2, 3], "answered by the thread that filled the hole");
    seq.when_durable(Lsn(1), no_flush, tell(&told, 1));
    assert_eq!(numbers(&told).last(), Some(&1), "at once");
}

/// Rule R21: a durable write fails while others above it succeed: no record above it is
/// acknowledged.
#[test]
fn r21_a_failed_durable_write_takes_all_above_with_it() {
    let seq = with(Duration::ZERO, 0, Way::Parallel);
    let [one, two, three] = [1, 2, 3].map(|lsn| publish(&seq, lsn));
    let told = Told::default();
    seq.completed(three, Ok(())).expect("completes");
    seq.when_durable(Lsn(3), |_| Ok(()), tell(&told, 3));
    seq.completed(one, Ok(())).expect("completes");
    seq.when_durable(Lsn(1), |_| Ok(()), tell(&told, 1));
    assert!(seq.completed(two, Err(io())).is_err());
    let told = told.lock().expect("not poisoned");
    assert!(matches!(told[..], [(1, Ok(())), (3, Err(Error::Latched(_)))]), "{told:?}");
    assert_eq!(seq.durable(), Lsn(1));
}

/// A caller whose flush another thread runs leaves at once, and that thread answers it: by the next
/// flush, if the one under way began too early.
#[test]
fn who_leaves_is_answered_by_the_one_who_flushes() {
    let seq = sequencer(Duration::ZERO, 0);
    let (one, two, three) = (publish(&seq, 1), publish(&seq, 2), publish(&seq, 3));
    seq.completed(one, Ok(())).expect("completes");
    seq.completed(two, Ok(())).expect("completes");
    let told = Told::default();
    let flushes = AtomicU64::new(0);
    let mut late = Some(three);
    let flush = |_| {
        flushes.fetch_add(1, Ordering::SeqCst);
        if let Some(three) = late.take() {
            // Another thread, as far as the sequencer can see.
            seq.completed(three, Ok(())).expect("completes");
            seq.when_durable(Lsn(3), |_| panic!("somebody flushes"), tell(&told, 3));
            assert_eq!(seq.depths(), (0, 2));
        }
        Ok(())
    };
    seq.when_durable(Lsn(2), flush, tell(&told, 2));
    assert_eq!((numbers(&told), seq.durable()), (vec![2, 3], Lsn(3)));
    assert_eq!(flushes.load(Ordering::SeqCst), 2);
    assert_eq!(seq.depths(), (0, 0));
}

/// An answer that asks for more does not run inside the one before: chains of any length need no
/// stack.
#[test]
fn answers_do_not_nest() {
    fn again(seq: &Arc<Sequencer>, lsn: u64, depth: &Arc<AtomicU64>) {
        let record = publish(seq, lsn);
        seq.completed(record, Ok(())).expect("completes");
        let (next, inside) = (seq.clone(), depth.clone());
        seq.when_durable(
            Lsn(lsn),
            |_| Ok(()),
            move |outcome| {
                outcome.expect("durable");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "inside another answer");
                if lsn < 10_000 {
                    again(&next, lsn + 1, &inside);
                }
                inside.fetch_sub(1, Ordering::SeqCst);
            },
        );
    }
    let seq = Arc::new(sequencer(Duration::ZERO, 0));
    again(&seq, 1, &Arc::default());
    assert_eq!(seq.durable(), Lsn(10_000));
}

/// A failure from elsewhere answers the callers that left, by the thread that has their duty.
#[test]
fn r21_who_left_is_told_of_a_failure() {
    let seq = sequencer(Duration::ZERO, 0);
    let (one, two) = (publish(&seq, 1), publish(&seq, 2));
    let three = publish(&seq, 3);
    for record in [one, two, three] {
        seq.completed(record, Ok(())).expect("completes");
    }
    let told = Told::default();
    let flush = |_| {
        seq.when_durable(Lsn(3), |_| panic!("somebody flushes"), tell(&told, 3));
        seq.fail(&io());
        assert!(numbers(&told).is_empty(), "not by the one who failed, who may hold locks");
        Err(io())
    };
    seq.when_durable(Lsn(2), flush, tell(&told, 2));
    let told = told.lock().expect("not poisoned");
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(_, outcome)| outcome.is_err()));
}

/// The thread that was answered itself is let go by the next that comes, which flushes in its
/// place.
#[test]
fn the_duty_is_handed_over() {
    let seq = Arc::new(sequencer(Duration::ZERO, 0));
    let told = Told::default();
    let mut records: Vec<_> = (1..=4).map(|lsn| Some(publish(&seq, lsn))).collect();
    let mut write = |lsn: usize| {
        let record = records[lsn - 1].take().expect("once");
        seq.completed(record, Ok(())).expect("completes");
    };
    write(1);
    write(2);
    let (mut flushes, mut other) = (0, None);
    let flush = |_| {
        flushes += 1;
        write(2 + flushes);
        if flushes == 1 {
            seq.when_durable(Lsn(3), |_| panic!("somebody flushes"), tell(&told, 3));
            return Ok(());
        }
        assert_eq!(numbers(&told), [2], "answered, and flushing for the third");
        let (here, told) = (seq.clone(), told.clone());
        other = Some(std::thread::spawn(move || {
            here.when_durable(Lsn(4), |_| Ok(()), tell(&told, 4));
        }));
        while seq.lock().free.is_empty() {
            std::thread::yield_now();
        }
        Ok(())
    };
    seq.when_durable(Lsn(2), flush, tell(&told, 2));
    assert_eq!(flushes, 2, "the fourth is not this one's");
    other.expect("came").join().expect("joins");
    // Each of the two answers the callers it served, after it let go of the duty: in any order.
    let mut told = numbers(&told);
    told.sort_unstable();
    assert_eq!((told, seq.durable()), (vec![2, 3, 4], Lsn(4)));
}
