use super::*;
use siftfs_base::TxnSeq;
use siftfs_wire::{BlockProtocol, FromService, ToService};
use std::sync::atomic::AtomicU64;

fn pair(queue: usize) -> (CallerEnd<BlockProtocol>, ServerEnd<BlockProtocol>) {
    in_process::<BlockProtocol>(TransportOptions { queue, ..Default::default() })
}

fn journaled(n: u64) -> FromService {
    FromService::Journaled { seq: TxnSeq(n), bytes: n, image_pos: n }
}

const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn messages_arrive_in_order_and_a_closed_side_is_no_broken_one() {
    let (mut host, mut device) = pair(8);
    host.sender.send(ToService::Statistics).unwrap();
    assert!(matches!(device.receiver.recv(None), Ok(Received::Message(ToService::Statistics))));
    assert!(matches!(device.receiver.recv(NOW), Ok(Received::Timeout)));
    for n in 1..=3 {
        device.sender.send(journaled(n)).unwrap();
    }
    device.sender.close();
    assert!(device.sender.send(journaled(4)).is_err(), "sent after closing");
    for n in 1..=3 {
        let Ok(Received::Message(FromService::Journaled { seq, .. })) = host.receiver.recv(None)
        else {
            panic!("message {n} is missing")
        };
        assert_eq!(seq.0, n);
    }
    assert!(matches!(host.receiver.recv(None), Ok(Received::Closed)));
    assert!(matches!(host.receiver.recv(NOW), Ok(Received::Closed)));
}

#[test]
fn a_side_dropped_without_closing_is_a_broken_peer() {
    let (mut host, device) = pair(8);
    drop(device);
    let error = host.receiver.recv(None).unwrap_err();
    assert!(matches!(&error, Error::Link(m) if m.contains("without closing")), "{error}");
    assert!(matches!(host.sender.send(ToService::Statistics), Err(Error::Link(_))));
}

#[test]
fn a_full_queue_makes_the_sender_wait() {
    const QUEUE: usize = 3;
    let (host, mut device) = pair(QUEUE);
    let sent = Arc::new(AtomicU64::new(0));
    let (sender, count) = (host.sender.clone(), sent.clone());
    let thread = std::thread::spawn(move || {
        for _ in 0..100 {
            sender.send(ToService::Statistics).unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    for received in 1..=100u64 {
        assert!(matches!(device.receiver.recv(None), Ok(Received::Message(_))));
        // A sender counts after it has sent, so this can only lag behind.
        let ahead = sent.load(Ordering::SeqCst).saturating_sub(received);
        assert!(ahead <= QUEUE as u64, "{ahead} messages on their way");
    }
    thread.join().unwrap();
}
