use super::super::Desk;
use super::*;
use std::thread::{scope, sleep, yield_now};
use std::time::Duration;

/// What the thread that laid it down does not take up again another one gets, without its help:
/// while the clerk looks, and when it has come to rest.
#[test]
fn what_lies_for_too_long_is_given_to_one_that_waits() {
    let clerk = Clerk::new();
    let desk = Desk::new((), &clerk);
    for rests in [false, true, false, true] {
        let held = desk.take();
        while rests && !clerk.looks.rests.load(Ordering::SeqCst) {
            yield_now();
        }
        scope(|scope| {
            scope.spawn(|| drop(desk.take()));
            while desk.waiting() == 0 {
                yield_now();
            }
            held.lay_down();
        });
    }
}

/// Threads that carry out for longer than the clerk waits: each of them gives the receiver away so,
/// and all of them come to an end.
#[test]
fn many_desks_are_looked_at() {
    let clerk = Clerk::new();
    let desks: Vec<_> = (0..8).map(|n| Desk::new(n, &clerk)).collect();
    scope(|scope| {
        for desk in desks.iter().cycle().take(24) {
            scope.spawn(move || {
                for _ in 0..5 {
                    desk.take().lay_down();
                    sleep(Duration::from_millis(3));
                }
            });
        }
    });
    let looked = || clerk.looks.desks.lock().unwrap().len();
    assert_eq!(looked(), 8);
    drop(desks);
    clerk.looks.look();
    assert_eq!(looked(), 0, "those that are gone are forgotten");
}

/// Without a clerk nothing lies there without a thread being called.
#[test]
fn without_a_clerk_each_is_called() {
    let mut clerk = Clerk::new();
    clerk.looks.over.store(true, Ordering::SeqCst);
    clerk.looks.wake();
    clerk.thread.take().unwrap().join().unwrap();
    let desk = Desk::new((), &clerk);
    let held = desk.take();
    scope(|scope| {
        scope.spawn(|| drop(desk.take()));
        while desk.waiting() == 0 {
            yield_now();
        }
        held.lay_down();
    });
}
