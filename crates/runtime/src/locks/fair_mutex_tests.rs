//! A thread that takes the lock again and again yields to the waiters, and a waiter spins before it
//! sleeps.

use super::*;
use siftfs_base::{ManualClock, SystemClock};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// A lock under the machine's clock.
fn fair<S>(state: S) -> FairMutex<S> {
    FairMutex::new(state, Arc::new(SystemClock::default()))
}

/// Steps of a thread that works under the lock all the time while another thread wants it once.
fn steps_meanwhile() -> u32 {
    let turns = fair(0u32);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut st = turns.lock();
        scope.spawn(|| {
            let steps = *turns.lock();
            done.store(true, Ordering::SeqCst);
            steps
        });
        while turns.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let start = Instant::now();
        while !done.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(10) {
            *st += 1;
            drop(st);
            turns.give_way();
            st = turns.lock();
        }
        assert!(done.load(Ordering::SeqCst), "the waiter never had its turn");
        *st
    })
}

#[test]
fn a_waiter_has_its_turn_soon() {
    for _ in 0..20 {
        // One, if a processor is free: no thread gives way for longer than `LONGEST`. Without
        // giving way it is thousands.
        let steps = steps_meanwhile();
        assert!(steps <= 100, "{steps}");
    }
}

#[test]
fn nobody_waits_for_nobody() {
    let turns = fair(());
    for _ in 0..1000 {
        drop(turns.lock());
        turns.give_way();
    }
    let counts = [&turns.waiting, &turns.served].map(|n| n.load(Ordering::SeqCst));
    assert_eq!(counts, [0, 0]);
}

/// A waiter that finds the lock taken spins until it is free, or for as long as it may.
#[test]
fn a_waiter_looks_before_it_sleeps() {
    for (spin, found) in [(Duration::from_secs(60), true), (Duration::ZERO, false)] {
        let turns = FairMutex { spin, ..fair(()) };
        std::thread::scope(|scope| {
            let guard = turns.lock();
            let waiter = scope.spawn(|| turns.spin().is_some());
            if found {
                std::thread::sleep(Duration::from_millis(5));
                drop(guard);
            }
            assert_eq!(waiter.join().unwrap(), found);
        });
    }
}

/// Neither a waiter nor the thread that gives way goes on without end where the clock stands still.
#[test]
fn a_clock_that_stands_still_holds_nobody() {
    let turns = FairMutex {
        spin: SPIN,
        waiting: AtomicU32::new(1),
        ..FairMutex::new((), Arc::new(ManualClock::new(0)))
    };
    let guard = turns.lock();
    assert!(turns.spin().is_none());
    drop(guard);
    turns.give_way();
    assert_eq!(turns.served.load(Ordering::SeqCst), 0);
}

#[test]
fn a_panic_does_not_close_it() {
    let turns = fair(1);
    let died = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _guard = turns.lock();
            panic!("on purpose");
        });
        holder.join()
    });
    assert!(died.is_err());
    assert_eq!(*turns.lock(), 1);
}
