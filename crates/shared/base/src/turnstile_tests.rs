use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// One who wants to be alone waits for all that are inside, whatever thread they leave by, and
/// keeps others out from when it began to wait.
#[test]
fn one_who_is_alone_is_so() {
    let turnstile = Arc::new(Turnstile::default());
    let (first, second) = (turnstile.enter(), turnstile.try_enter().unwrap());
    let was_alone = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _alone = turnstile.alone();
            assert!(turnstile.try_enter().is_none());
            was_alone.store(true, Ordering::SeqCst);
        });
        while turnstile.lock().wishes == 0 {
            thread::yield_now();
        }
        assert!(turnstile.try_enter().is_none(), "one waits to be alone");
        scope.spawn(move || drop(second));
        thread::sleep(Duration::from_millis(20));
        assert!(!was_alone.load(Ordering::SeqCst));
        drop(first);
        drop(turnstile.enter());
        assert!(was_alone.load(Ordering::SeqCst), "one who waited first was first");
    });
    assert!(turnstile.try_enter().is_some());
}

/// Nobody is beside one who is alone, with many threads.
#[test]
fn nobody_is_beside_one_who_is_alone() {
    let (turnstile, torn) = (Arc::new(Turnstile::default()), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (turnstile, torn) = (&turnstile, &torn);
            scope.spawn(move || {
                for round in 0..2000 {
                    if (round + thread) % 8 == 0 {
                        let _alone = turnstile.alone();
                        torn.store(true, Ordering::SeqCst);
                        thread::yield_now();
                        torn.store(false, Ordering::SeqCst);
                    } else {
                        let _inside = turnstile.enter();
                        assert!(!torn.load(Ordering::SeqCst));
                    }
                }
            });
        }
    });
}
