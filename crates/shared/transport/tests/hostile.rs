//! A recorded conversation, damaged: an error, never a panic, never a large allocation, and
//! never a message that was not sent.
#![allow(unsafe_code)]

mod support;

use siftfs_transport::{Address, Received, TransportOptions, connect};
use siftfs_wire::{BlockProtocol, ToService};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Listener, patient, samples};

/// Notes the largest allocation.
struct Watching;
static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all of it is the system's allocator; the note does not allocate.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

fn options() -> TransportOptions {
    // No heartbeat falls into the recording.
    let heartbeat = std::time::Duration::from_secs(90);
    TransportOptions { shared_memory: 0, heartbeat, ..patient() }
}

fn messages() -> Vec<ToService> {
    let mut messages = samples::to_service();
    messages.truncate(5);
    messages
}

/// Every byte that a Runtime sends when it sends [`messages`] and closes.
fn recorded(dir: &Path) -> Vec<u8> {
    let (at_host, at_device) = (dir.join("host"), dir.join("device"));
    let between = UnixListener::bind(&at_host).unwrap();
    let listener = Listener::bind(&Address::Unix(at_device.clone()), &options()).unwrap();
    let host = std::thread::spawn(move || {
        let host = connect::<BlockProtocol>(&Address::Unix(at_host), &options()).unwrap();
        messages().into_iter().for_each(|m| host.sender.send(m).unwrap());
        host.sender.close();
    });
    let device = std::thread::spawn(move || {
        let mut device = listener.accept(None).unwrap().unwrap();
        while !matches!(device.receiver.recv(None).unwrap(), Received::Closed) {}
    });
    let (mut from_host, _) = between.accept().unwrap();
    let mut to_device = UnixStream::connect(at_device).unwrap();
    let (mut answers, mut back) = (to_device.try_clone().unwrap(), from_host.try_clone().unwrap());
    let answers = std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
    let mut recording = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = from_host.read(&mut buffer).unwrap();
        if n == 0 {
            break;
        }
        recording.extend_from_slice(&buffer[..n]);
        to_device.write_all(&buffer[..n]).unwrap();
    }
    host.join().unwrap();
    device.join().unwrap();
    // It ends with the connection, by an error or not.
    let _ = answers.join().unwrap();
    recording
}

/// What a Service gets when `bytes` are sent: the messages, and how it ended.
fn replay(listener: &Listener, path: &Path, bytes: &[u8]) -> (Vec<ToService>, Result<(), String>) {
    let mut peer = UnixStream::connect(path).unwrap();
    // The Service may refuse before it has read everything.
    let _ = peer.write_all(bytes);
    let _ = peer.shutdown(Shutdown::Write);
    let mut device = match listener.accept(None) {
        Ok(device) => device.expect("no timeout"),
        Err(e) => return (Vec::new(), Err(e.to_string())),
    };
    let mut received = Vec::new();
    loop {
        match device.receiver.recv(None) {
            Ok(Received::Message(message)) => received.push(message),
            Ok(Received::Closed) => return (received, Ok(())),
            Ok(Received::Timeout) => panic!("no timeout was given"),
            Err(e) => return (received, Err(e.to_string())),
        }
    }
}

/// Nothing arrives that was not sent, in its order, and the end is an error.
fn broken(listener: &Listener, path: &Path, bytes: &[u8], what: &str) {
    let (received, end) = replay(listener, path, bytes);
    assert!(end.is_err(), "{what}: closed as if nothing had happened");
    assert!(messages().starts_with(&received), "{what}: a message that was not sent");
    let largest = LARGEST.load(Ordering::Relaxed);
    assert!(largest < 1 << 20, "{what}: an allocation of {largest} bytes");
}

#[test]
fn a_conversation_damaged_at_any_byte_ends_in_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = recorded(dir.path());
    let path = dir.path().join("replay");
    let listener = Listener::bind(&Address::Unix(path.clone()), &options()).unwrap();
    let (received, end) = replay(&listener, &path, &bytes);
    assert_eq!((received, end), (messages(), Ok(())), "the recording itself");
    // Everything but the insides of blocks, which are one long checksummed run each.
    let blocks: Vec<usize> = (0..bytes.len()).filter(|at| in_block(&bytes, *at)).collect();
    for at in 0..bytes.len() {
        if at % 331 != 0 && blocks.binary_search(&at).is_ok() {
            continue;
        }
        let flip = if at % 2 == 0 { 0xff } else { 1 << (at % 8) };
        bytes[at] ^= flip;
        broken(&listener, &path, &bytes, &format!("byte {at} ^ {flip}"));
        bytes[at] ^= flip;
        // What follows the end of a conversation is not read any more.
        if at + 1 < bytes.len() {
            let twice = [&bytes[..at + 1], &bytes[at..]].concat();
            broken(&listener, &path, &twice, &format!("byte {at} repeated"));
        }
        broken(&listener, &path, &bytes[..at], &format!("cut at {at}"));
    }
    // And the listener still works.
    assert_eq!(replay(&listener, &path, &bytes), (messages(), Ok(())));
}

/// Whether `at` lies in one of the sample blocks, and not near its ends.
fn in_block(bytes: &[u8], at: usize) -> bool {
    let (from, to) = (at.saturating_sub(16), (at + 16).min(bytes.len()));
    let step = |w: &[u8]| {
        let guess = |i: usize, seed: u8| (i as u8).wrapping_mul(31) ^ seed;
        (0..=255u8).any(|seed| {
            (0..256).any(|i| w.iter().enumerate().all(|(k, b)| *b == guess(i + k, seed)))
        })
    };
    to - from == 32 && step(&bytes[from..to])
}
