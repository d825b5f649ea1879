use super::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const SLOTS: u32 = 4;

fn sockets() -> (Socket, Socket) {
    let flags = SocketFlags::CLOEXEC;
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    (Socket::new(a).unwrap(), Socket::new(b).unwrap())
}

fn greeting<'a>(socket: &'a Socket, stop: &'a AtomicBool) -> Greeting<'a> {
    let patience = Duration::from_secs(60);
    Greeting {
        channel: socket,
        peer: "the peer",
        deadline: Instant::now() + patience,
        patience,
        stop,
    }
}

/// A Service and a Runtime that passes `memory` and three of its bells more or less.
fn passes(memory: &OwnedFd, fds: usize) -> (Result<Shared>, Result<()>) {
    let (host, device) = sockets();
    let device = std::thread::spawn(move || {
        greeting(&device, &AtomicBool::new(false)).take_memory(Layout::new(SLOTS, false))
    });
    let stop = AtomicBool::new(false);
    let host = greeting(&host, &stop);
    let fds = vec![memory.as_fd(); fds];
    assert_eq!(host.channel.write_fds(&NOTE, &fds).unwrap(), NOTE.len());
    let told = host.conclude(Ok(()));
    (device.join().unwrap(), told)
}

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create("test", flags).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn memory_of_the_wrong_size_unsealed_or_of_another_kind_is_refused_on_both_sides() {
    let len = Layout::new(SLOTS, false).len();
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    ftruncate(&file, len).unwrap();
    for (fd, why) in [
        (memfd(len - 4096, both), "bytes instead of"),
        (memfd(len + 4096, both), "bytes instead of"),
        (memfd(0, both), "has 0 bytes"),
        (memfd(len, SealFlags::empty()), "is not sealed"),
        (memfd(len, SealFlags::GROW), "is not sealed"),
        (memfd(len, SealFlags::SHRINK), "is not sealed"),
        (memfd(len, both | SealFlags::WRITE), "cannot be mapped"),
        (file, "is not"),
    ] {
        let (device, host) = passes(&fd, MAX_FDS);
        let error = device.err().expect("refused").to_string();
        assert!(error.contains(why) && error.starts_with("the peer: the shared memory"), "{error}");
        let told = host.unwrap_err().to_string();
        assert!(told.contains(&error), "the peer was told {told}");
    }
    assert!(passes(&memfd(len, both), MAX_FDS).0.is_ok());
}

#[test]
fn another_number_of_descriptors_is_refused() {
    let len = Layout::new(SLOTS, false).len();
    let fd = memfd(len, SealFlags::SHRINK | SealFlags::GROW);
    for n in [1, MAX_FDS - 1] {
        let error = passes(&fd, n).0.err().expect("refused").to_string();
        assert!(error.contains(&format!("{n} descriptors instead of 5")), "{error}");
    }
}

#[test]
fn a_bell_that_is_full_or_no_socket_holds_nobody() {
    let (ours, theirs) = Bell::pair().unwrap();
    // Far more than its buffer takes.
    (0..100_000).for_each(|_| ours.ring());
    assert!(theirs.quiet(), "it rang");
    let no_bell = Bell(memfd(0, SealFlags::empty()));
    no_bell.ring();
    assert!(!no_bell.quiet(), "a file is waited for as if it could ring");
    let (ours, theirs) = Bell::pair().unwrap();
    assert!(theirs.quiet(), "silent, and not broken");
    drop(ours);
    assert!(!theirs.quiet(), "closed");
}
