use super::*;
use siftfs_transport::{CallerEnd, ServerEnd, TransportOptions, in_process};
use siftfs_wire::{BlockProtocol, StorageCall, ToService};

const EACH_WAY: Duration = Duration::from_millis(100);

fn pair() -> (CallerEnd<BlockProtocol>, ServerEnd<BlockProtocol>) {
    let (caller, server) = in_process::<BlockProtocol>(TransportOptions::default());
    (caller, delayed(server, EACH_WAY))
}

fn message(id: u64) -> ToService {
    let call = StorageCall::Flush { device: 0 };
    ToService::Storage { id, call }
}

/// A message takes both ways' time. Others that come meanwhile take it beside the first one, in
/// their order.
#[test]
fn messages_are_late_and_in_order() {
    let (caller, mut server) = pair();
    let begun = Instant::now();
    (0..5).for_each(|id| caller.sender.send(message(id)).unwrap());
    for id in 0..5 {
        let within = if id == 0 { None } else { Some(Duration::ZERO) };
        let came = server.receiver.recv(within).unwrap();
        assert!(matches!(came, Received::Message(ToService::Storage { id: own, .. }) if own == id));
        if id == 0 {
            assert!(begun.elapsed() >= 2 * EACH_WAY);
            thread::sleep(2 * EACH_WAY);
        }
    }
}

/// A timeout is kept whether something is on its way or not, and what was late comes later.
#[test]
fn timeouts_are_kept() {
    let (caller, mut server) = pair();
    let mut within = |time| server.receiver.recv(Some(time)).unwrap();
    assert!(matches!(within(Duration::from_millis(1)), Received::Timeout));
    caller.sender.send(message(1)).unwrap();
    assert!(matches!(within(Duration::ZERO), Received::Timeout));
    assert!(matches!(within(Duration::from_millis(5)), Received::Timeout));
    assert!(matches!(within(20 * EACH_WAY), Received::Message(_)));
}

/// What was sent before the end comes first.
#[test]
fn an_end_comes_behind_what_was_sent() {
    let (caller, mut server) = pair();
    caller.sender.send(message(1)).unwrap();
    caller.sender.close();
    assert!(matches!(server.receiver.recv(None).unwrap(), Received::Message(_)));
    assert!(matches!(server.receiver.recv(None).unwrap(), Received::Closed));
    let (caller, mut server) = pair();
    drop(caller);
    assert!(server.receiver.recv(None).is_err(), "a peer that has died");
}
