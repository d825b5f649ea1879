//! What is owed follows its request from thread to thread, and no other request.

use super::*;
use siftfs_proto::Notice;

#[test]
fn what_is_owed_belongs_to_the_request_that_is_carried_out() {
    let (one, other) = (Arc::new(Owing::default()), Arc::new(Owing::default()));
    let mut owed = Owed::default();
    let notice = Notice::new(&mut owed);
    let later = during(Some(one.clone()), || {
        during(Some(other.clone()), || {});
        owe(owed.clone());
        carried(|owed: Owed| owe(owed))
    });
    assert!(other.take().is_settled());
    let first = one.take();
    assert!(!first.is_settled());
    let more = owed.clone();
    std::thread::spawn(move || later(more)).join().unwrap();
    assert!(!one.take().is_settled(), "it goes on on another thread");
    drop(notice);
    assert!(first.is_settled());
}

#[test]
fn without_a_request_the_thread_waits() {
    let mut owed = Owed::default();
    let notice = Notice::new(&mut owed);
    let waits = std::thread::spawn(move || owe(owed));
    drop(notice);
    waits.join().unwrap();
}
