use super::*;
use rustix::net::{SocketFlags, socketpair};
use std::os::fd::AsRawFd;

fn pair() -> (Packets, Packets) {
    let flags = SocketFlags::CLOEXEC;
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    (a.into(), b.into())
}

#[test]
fn packets_keep_apart_and_bring_descriptors() {
    let (a, b) = pair();
    let file = std::fs::File::open("/dev/null").unwrap();
    a.send(b"one", &[file.as_fd(), file.as_fd()]).unwrap();
    a.send(b"two", &[]).unwrap();
    let one = b.receive(64, true).unwrap().unwrap();
    assert_eq!((&one.bytes[..], one.descriptors.len()), (&b"one"[..], 2));
    let two = b.receive(64, true).unwrap().unwrap();
    assert_eq!((&two.bytes[..], two.descriptors.len()), (&b"two"[..], 0));
}

#[test]
fn descriptors_that_nobody_wants_are_closed() {
    let (a, b) = pair();
    let (read, write) = rustix::pipe::pipe().unwrap();
    a.send(b"one", &[write.as_fd()]).unwrap();
    drop(write);
    let one = b.receive(64, false).unwrap().unwrap();
    assert!(one.descriptors.is_empty());
    // The last writer of the pipe has gone.
    assert_eq!(rustix::io::read(&read, &mut [0; 1]).unwrap(), 0, "{}", read.as_raw_fd());
}

#[test]
fn a_packet_that_is_too_long_is_an_error() {
    let (a, b) = pair();
    a.send(&[1; 65], &[]).unwrap();
    assert!(b.receive(64, false).is_err());
}

#[test]
fn a_peer_that_takes_nothing_holds_up_nobody() {
    let (a, _b) = pair();
    let full = (0..1_000_000).map(|_| a.send(&[1; 64], &[])).find_map(Result::err);
    assert_eq!(full.and_then(|e| e.raw_os_error()), Some(libc::EAGAIN));
}

#[test]
fn an_end_is_seen() {
    let (a, b) = pair();
    assert!(!a.is_over() && !a.wait(Duration::ZERO).unwrap());
    drop(b);
    assert!(a.is_over() && a.wait(Duration::ZERO).unwrap());
    assert!(a.receive(64, false).unwrap().is_none());
    let (a, b) = pair();
    let waits = std::thread::spawn(move || b.receive(64, false).unwrap().is_none());
    a.cut();
    assert!(waits.join().unwrap());
}

/// The side that stops receiving wakes its own thread, and the peer sees no end yet.
#[test]
fn an_end_is_not_seen_before_it_is_there() {
    let (a, b) = pair();
    let b = std::sync::Arc::new(b);
    let other = b.clone();
    let waits = std::thread::spawn(move || other.receive(64, false).unwrap().is_none());
    b.stop_receiving();
    assert!(waits.join().unwrap());
    assert!(!a.is_over());
    b.cut();
    assert!(a.is_over());
}
