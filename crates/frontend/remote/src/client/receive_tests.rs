use super::super::aside::Aside;
use super::super::slots::{Slots, Then};
use super::*;
use crate::desk::Desk;
use siftfs_calls::FileProtocol;
use siftfs_transport::{Connection, ServerEnd, TransportOptions, in_process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::channel;

/// A connection without the session's own thread, and its server's end.
fn link() -> (Arc<Link>, ServerEnd<FileProtocol>) {
    let (caller, server) = in_process::<FileProtocol>(TransportOptions::default());
    let Connection { sender, receiver, peer, .. } = caller;
    let link = Link {
        sender,
        desk: Desk::attended(Incoming::new(receiver)),
        slots: Slots::new(2, 100),
        cache: None,
        looked_up: None,
        holder: None,
        answers: Arc::new(Aside::start("answers").unwrap()),
        peer,
        calls: AtomicU64::new(0),
        leaving: AtomicBool::new(false),
        all_answered: AtomicBool::new(false),
        watch: None,
    };
    (Arc::new(link), server)
}

/// Between a caller's look for its answer and its taking of the receiver, another thread may have
/// received that answer, and have laid the receiver down. Nothing more comes then.
#[test]
fn a_caller_that_takes_the_receiver_late_does_not_wait_for_an_answer_that_came() {
    let (link, server) = link();
    let (slot, number) = link.slots.enter(0).begin(Then::Wake).unwrap();
    let result = Ok(Box::new(Reply::Flags(7)));
    let (done, proofs) = (None, None);
    server.sender.send(FromServer::Answer { slot, number, result, done, proofs }).unwrap();
    let mut other = link.desk.try_take(|_| true).expect("it lies there");
    assert!(matches!(link.next(&mut other), Came::Answer));
    other.lay_down();
    let (theirs, (tell, told)) = (link.clone(), channel());
    let late = std::thread::spawn(move || {
        theirs.receive_for(slot);
        tell.send(()).unwrap();
    });
    let came_back = told.recv_timeout(Duration::from_secs(10)).is_ok();
    drop(server);
    late.join().unwrap();
    assert!(came_back, "it waits for what came before");
    assert_eq!(link.slots.enter(0).wait(slot, || ()).0, Ok(Reply::Flags(7)));
}
