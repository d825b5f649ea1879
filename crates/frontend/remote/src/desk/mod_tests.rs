use super::*;
use std::thread::{scope, sleep, yield_now};

fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        yield_now();
    }
}

/// A thread waits at the desk. It is not called while the one that had it comes back, and gets it
/// when that one has no more use for it.
#[test]
fn who_lays_it_down_takes_it_up_again() {
    let desk = Desk::attended(0);
    let held = desk.take();
    scope(|scope| {
        let follower = scope.spawn(|| *desk.take());
        wait_for(|| desk.waiting() == 1);
        let mut held = held;
        for _ in 0..3 {
            *held += 1;
            held.lay_down();
            sleep(Duration::from_millis(20));
            held = desk.try_take(|_| true).expect("nobody was called");
        }
        drop(held);
        assert_eq!(follower.join().unwrap(), 3);
    });
}

#[test]
fn what_lies_is_given_to_one_that_is_called() {
    let desk = Desk::attended(());
    let held = desk.take();
    scope(|scope| {
        scope.spawn(|| drop(desk.take()));
        wait_for(|| desk.waiting() == 1);
        held.lay_down();
        desk.call();
    });
}

#[test]
fn only_what_fits_is_taken() {
    let desk = Desk::attended(1);
    assert!(desk.try_take(|it| *it == 2).is_none());
    let held = desk.try_take(|it| *it == 1).expect("it lies there");
    assert!(desk.try_take(|_| true).is_none(), "one thread has it");
    drop(held);
    assert!(desk.try_take(|_| true).is_some());
}

/// The desk's own thread leaves it to others while these come back for it, takes it when it has
/// lain for too long, and does so also after others had it for so long that it looked no more.
#[test]
fn the_desks_own_thread_takes_what_lies_for_too_long() {
    let desk = Desk::attended(());
    for _ in 0..2 {
        let held = desk.take();
        scope(|scope| {
            let own = scope.spawn(|| drop(desk.attend()));
            wait_for(|| desk.lock().rests);
            held.lay_down();
            own.join().unwrap();
        });
    }
}

/// It need not lie for long where it is asked for.
#[test]
fn the_desks_own_thread_comes_when_it_is_called() {
    let desk = Desk::attended(());
    desk.take().lay_down();
    assert!(!desk.lock().called);
    desk.call();
    assert!(desk.lock().called);
    let held = desk.attend();
    assert!(!desk.lock().called, "it has come");
    drop(held);
    assert!(desk.lock().called, "it is to come again");
    desk.take().lay_down();
    assert!(!desk.lock().called, "another thread took it");
}
