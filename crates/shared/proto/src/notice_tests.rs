//! What is owed is settled by the last acknowledgement, and not before.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

fn counter() -> (Arc<AtomicUsize>, impl Fn() -> Then) {
    let count = Arc::new(AtomicUsize::new(0));
    let own = count.clone();
    let then = move || -> Then {
        let count = own.clone();
        Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        })
    };
    (count, then)
}

#[test]
fn nothing_is_owed_without_a_notice() {
    let (count, then) = counter();
    let owed = Owed::default();
    owed.wait();
    assert!(owed.is_settled());
    owed.then(then());
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn the_last_notice_of_all_changes_settles() {
    let (count, then) = counter();
    let (mut first, mut second) = (Owed::default(), Owed::default());
    let notices = [Notice::new(&mut first), Notice::new(&mut first), Notice::new(&mut second)];
    first.add(second);
    first.clone().then(then());
    first.clone().then(then());
    for (i, notice) in notices.into_iter().enumerate() {
        assert_eq!(count.load(Ordering::SeqCst), 0, "before notice {i}");
        assert!(!first.is_settled());
        drop(notice);
    }
    assert!(first.is_settled());
    assert_eq!(count.load(Ordering::SeqCst), 2);
    first.then(then());
    assert_eq!(count.load(Ordering::SeqCst), 3, "what is settled stays so");
}

#[test]
fn a_thread_waits_for_another_ones_acknowledgement() {
    let mut owed = Owed::default();
    let notice = Notice::new(&mut owed);
    let waits = owed.clone();
    let waiter = std::thread::spawn(move || waits.wait());
    assert!(!owed.is_settled());
    drop(notice);
    waiter.join().unwrap();
    assert!(owed.is_settled());
}
