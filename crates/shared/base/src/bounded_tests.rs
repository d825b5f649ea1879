use super::*;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

/// The most time that a query may take here, on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

#[test]
fn every_item_is_asked_once() {
    let mut answers = ask_each((0..1000).collect(), |n: &u32| n * 2);
    answers.given.sort_unstable();
    assert_eq!(answers.given, (0..1000).map(|n| n * 2).collect::<Vec<_>>());
    assert!(answers.complete);
    let none = ask_each(Vec::<u32>::new(), |n| *n);
    assert_eq!(none, Answers { given: Vec::new(), complete: true });
}

/// Asks `0..count`, of which those that `hangs` says are answered only when the query is over.
fn ask_with(count: u32, hangs: fn(u32) -> bool) -> Answers<u32> {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let closed = gate.clone();
    let start = Instant::now();
    let answers = ask_each((0..count).collect(), move |n: &u32| {
        if hangs(*n) {
            let (open, changed) = &*closed;
            let open = open.lock().unwrap();
            drop(changed.wait_while(open, |open| !*open).unwrap());
        }
        *n
    });
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    answers
}

#[test]
fn one_that_hangs_is_passed_over() {
    let mut answers = ask_with(20, |n| n == 7);
    answers.given.sort_unstable();
    assert_eq!(answers.given, (0..20).filter(|n| *n != 7).collect::<Vec<_>>());
    assert!(!answers.complete);
}

#[test]
fn many_that_hang_end_it() {
    let answers = ask_with(20, |n| n >= 2);
    assert_eq!(answers, Answers { given: vec![0, 1], complete: false });
}
