use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::*;

#[test]
fn waiters_share_the_next_flush() {
    let gate = FlushGate::default();
    let runs = AtomicU32::new(0);
    thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                gate.run(|| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(50));
                    Ok(())
                })
                .unwrap();
            });
        }
    });
    // The first runs alone; the others arrived while it ran and share one or, at worst, two.
    assert!((1..=3).contains(&runs.load(Ordering::SeqCst)));
    gate.run(|| {
        runs.store(100, Ordering::SeqCst);
        Ok(())
    })
    .unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 100, "a flush is never answered by an older one");
}

#[test]
fn a_failure_reaches_everyone_and_stays() {
    let gate = FlushGate::default();
    let calls = AtomicU32::new(0);
    // As the kernel: the first call reports the failure, later ones claim success.
    let flush = || {
        thread::sleep(Duration::from_millis(30));
        if calls.fetch_add(1, Ordering::SeqCst) == 0 { Err(libc::EIO) } else { Ok(()) }
    };
    thread::scope(|s| {
        let all: Vec<_> = (0..6).map(|_| s.spawn(|| gate.run(flush))).collect();
        for one in all {
            assert_eq!(one.join().unwrap(), Err(libc::EIO));
        }
    });
    assert_eq!(gate.run(flush), Err(libc::EIO));
    assert_eq!(gate.check(), Err(libc::EIO));
}

#[test]
fn refused_writes_do_not_latch() {
    let gate = FlushGate::default();
    gate.note_failure(libc::ENOSPC);
    assert_eq!(gate.run(|| Ok(())), Ok(()));
    gate.note_failure(libc::EIO);
    assert_eq!(gate.run(|| Ok(())), Err(libc::EIO));
}
