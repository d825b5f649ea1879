use super::*;
use siftfs_base::errno;
use std::sync::Arc;
use std::sync::mpsc::channel;

#[test]
fn answers_go_to_their_calls_whatever_their_order() {
    let slots = Slots::new(2, 100);
    let (first, second) = (slots.enter(0), slots.enter(0));
    let (a, b) = (first.begin(Then::Wake).unwrap(), second.begin(Then::Wake).unwrap());
    assert_eq!((a, b), ((0, 0), (1, 0)));
    assert!(slots.answer(1, 0, (Ok(Reply::Flags(1)), Noted::default())));
    assert!(!slots.answer(1, 0, (Ok(Reply::Done), Noted::default())), "answered twice");
    assert!(!slots.answer(0, 1, (Ok(Reply::Done), Noted::default())), "a number that was not sent");
    assert!(!slots.answer(2, 0, (Ok(Reply::Done), Noted::default())), "a slot that does not exist");
    assert!(slots.answer(0, 0, (Err(errno(5)), Noted::default())));
    assert_eq!(second.wait(1, || ()).0, Ok(Reply::Flags(1)));
    assert_eq!(first.wait(0, || ()).0, Err(errno(5)));
    assert_eq!(slots.enter(0).begin(Then::Wake).unwrap(), (0, 1));
}

/// A third call waits for a slot, and one with much data for the data of others.
#[test]
fn calls_wait_for_room() {
    let slots = Arc::new(Slots::new(2, 100));
    let (sent, received) = channel();
    slots.enter(60).begin(Then::Wake).unwrap();
    let theirs = slots.clone();
    let waits = std::thread::spawn(move || {
        let call = theirs.enter(60).begin(Then::Wake).unwrap();
        sent.send(()).unwrap();
        call
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(received.try_recv().is_err(), "60 and 60 bytes are more than 100");
    assert!(slots.answer(0, 0, (Ok(Reply::Done), Noted::default())));
    assert_eq!(slots.enter(60).wait(0, || ()).0, Ok(Reply::Done));
    assert_eq!(waits.join().unwrap(), (0, 1));
    // What is more than all goes alone, and not never.
    assert!(slots.answer(0, 1, (Ok(Reply::Done), Noted::default())));
    assert_eq!(slots.enter(0).wait(0, || ()).0, Ok(Reply::Done));
    slots.enter(1 << 40).begin(Then::Wake).unwrap();
}

#[test]
fn what_was_not_sent_has_no_number() {
    let slots = Slots::new(1, 100);
    let entry = slots.enter(0);
    assert_eq!(entry.begin(Then::Wake).unwrap(), (0, 0));
    slots.unsent(0, errno(7));
    assert_eq!(entry.wait(0, || ()).0, Err(errno(7)));
    assert_eq!(entry.begin(Then::Wake).unwrap(), (0, 0));
}

#[test]
fn all_calls_learn_that_the_connection_is_gone() {
    let slots = Slots::new(2, 100);
    let (sent, received) = channel();
    let done = Box::new(move |result| sent.send(result).unwrap());
    assert!(slots.enter(0).begin_then(done).is_ok());
    let entry = slots.enter(0);
    let (slot, _) = entry.begin(Then::Wake).unwrap();
    let gone = Error::Link("gone".into());
    slots.broke(&gone);
    assert_eq!(received.recv().unwrap(), Err(gone.clone()));
    assert_eq!(entry.wait(slot, || ()).0, Err(gone.clone()));
    assert_eq!(slots.enter(0).begin(Then::Wake), Err(gone));
}

/// Calls that wait for other programs leave slots for what these do.
#[test]
fn waits_for_others_do_not_take_all_slots() {
    let slots = Slots::new(16, 100);
    for _ in 0..10 {
        slots.enter_long(libc::ENOLCK).begin(Then::Wake).unwrap();
    }
    assert_eq!(slots.enter_long(libc::ENOLCK).begin(Then::Wake), Err(errno(libc::ENOLCK)));
    let (slot, number) = slots.enter(0).begin(Then::Wake).unwrap();
    assert!(slots.answer(slot, number, (Ok(Reply::Done), Noted::default())));
    assert_eq!(slots.enter(0).wait(slot, || ()).0, Ok(Reply::Done));
    // One that is answered makes room for another.
    assert!(slots.answer(0, 0, (Ok(Reply::Done), Noted::default())));
    assert_eq!(slots.enter_long(libc::ENOLCK).wait(0, || ()).0, Ok(Reply::Done));
    slots.enter_long(libc::ENOLCK).begin(Then::Wake).unwrap();
}
