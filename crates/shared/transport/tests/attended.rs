//! Connections that one thread waits for together.

mod support;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use siftfs_base::{Error, SharedBlock};
use siftfs_transport::{Awaited, Received, TransportOptions};
use siftfs_wire::{FromService, StorageAnswer, ToService};
use std::time::{Duration, Instant};
use support::*;

fn hint(number: u32) -> ToService {
    ToService::ExpectUrgent { ms: number }
}

/// Whether something happens within this time.
fn happens(awaited: &Awaited, within: Duration) -> bool {
    let mut fds: Vec<PollFd<'_>> =
        awaited.descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    poll(&mut fds, Some(&Timespec::try_from(within).unwrap())).unwrap() > 0
}

/// What comes within a second by sleeping as one who attends does.
fn next(end: &mut DeviceEnd, awaited: &Awaited) -> Option<ToService> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        match end.receiver.recv(Some(Duration::ZERO)).unwrap() {
            Received::Message(message) => return Some(message),
            Received::Timeout => {}
            Received::Closed => return None,
        }
        if end.receiver.arm().unwrap() {
            happens(awaited, Duration::from_secs(1));
            end.receiver.woken().unwrap();
        }
    }
    None
}

/// One who sleeps by the descriptors is woken by each message, and by nothing else.
#[test]
fn messages_wake_one_who_attends() {
    for way in OUTSIDE {
        let (host, mut device) = pair(way, &patient());
        let awaited = device.receiver.attend().unwrap().unwrap();
        assert!(device.receiver.arm().unwrap());
        assert!(!happens(&awaited, Duration::from_millis(20)), "{way:?}");
        for number in 0..50 {
            let sleeps = number % 7 == 0;
            assert!(!sleeps || device.receiver.arm().unwrap());
            host.sender.send(hint(number)).unwrap();
            if sleeps {
                assert!(happens(&awaited, Duration::from_secs(5)), "{way:?}");
                device.receiver.woken().unwrap();
            }
            let came = next(&mut device, &awaited);
            assert!(matches!(came, Some(ToService::ExpectUrgent { ms }) if ms == number));
        }
        host.sender.close();
        assert!(next(&mut device, &awaited).is_none());
        assert!(!device.receiver.arm().unwrap(), "there is nothing to sleep for");
    }
    let (_host, mut device) = pair(Way::InProcess, &patient());
    assert!(device.receiver.attend().unwrap().is_none());
}

/// The end of a peer wakes, too, and is an error.
#[test]
fn a_peer_that_dies_wakes_one_who_attends() {
    for way in OUTSIDE {
        let (host, mut device) = pair(way, &patient());
        let awaited = device.receiver.attend().unwrap().unwrap();
        assert!(device.receiver.arm().unwrap());
        host.sender.cut();
        assert!(happens(&awaited, Duration::from_secs(5)), "{way:?}");
        device.receiver.woken().unwrap();
        let died = device.receiver.recv(Some(Duration::ZERO));
        assert!(matches!(died, Err(Error::Link(_))), "{way:?}: {died:?}");
    }
}

/// What a peer does not take is kept, and nobody waits for it; later all of it arrives, in order.
#[test]
fn what_is_not_taken_is_kept() {
    for way in OUTSIDE {
        let (mut host, mut device) = pair(way, &TransportOptions { queue: 1, ..patient() });
        device.receiver.attend().unwrap().unwrap();
        let answer = |id: u64| {
            let blocks = (0..64).map(|_| SharedBlock::from([id as u8; 4096])).collect();
            FromService::Storage { id, answer: StorageAnswer::Data { blocks } }
        };
        let (mut sent, begun) = (0, Instant::now());
        let kept = loop {
            let kept = device.sender.post(answer(sent)).unwrap();
            sent += 1;
            if kept > 4 << 20 {
                break kept;
            }
        };
        assert!(begun.elapsed() < Duration::from_secs(10), "{way:?}");
        assert!(device.sender.push().unwrap() <= kept);
        let mut left = kept;
        for number in 0..sent {
            let came = loop {
                left = device.sender.push().unwrap();
                match host.receiver.recv(Some(Duration::from_millis(1))).unwrap() {
                    Received::Timeout => assert!(begun.elapsed() < Duration::from_secs(60)),
                    came => break came,
                }
            };
            let Received::Message(FromService::Storage { id, answer }) = came else { panic!() };
            let StorageAnswer::Data { blocks } = answer else { panic!() };
            assert_eq!((id, blocks.len()), (number, 64));
            let mut block = [0; 4096];
            blocks.iter().for_each(|own| {
                own.copy_to(&mut block);
                assert!(block.iter().all(|byte| *byte == number as u8), "{way:?}");
            });
        }
        assert_eq!(left, 0);
        // A call that waits comes behind what is kept.
        while device.sender.post(answer(0)).unwrap() == 0 {}
        let waits = device.sender.clone();
        let last = std::thread::spawn(move || waits.send(answer(77)));
        while let Ok(Received::Message(FromService::Storage { id, .. })) = host.receiver.recv(None)
        {
            if id == 77 {
                break;
            }
        }
        last.join().unwrap().unwrap();
    }
}

/// One who attends says that it is there, and gives up who is silent.
#[test]
fn one_who_attends_tends() {
    for way in OUTSIDE {
        let options = TransportOptions {
            heartbeat: Duration::from_millis(100),
            stall: Duration::from_millis(600),
            ..patient()
        };
        let (mut host, mut device) = pair(way, &options);
        device.receiver.attend().unwrap().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1200) {
            device.receiver.tend();
            assert!(matches!(
                device.receiver.recv(Some(Duration::ZERO)).unwrap(),
                Received::Timeout
            ));
            std::thread::sleep(Duration::from_millis(20));
        }
        // Its thread has ended: without the calls it is silent, and given up.
        let lost = host.receiver.recv(Some(Duration::from_secs(10)));
        assert!(matches!(lost, Err(Error::Link(_))), "{way:?}: {lost:?}");
    }
}
