use super::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use siftfs_wire::{BlockProtocol, PROTOCOL_VERSION};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn sockets() -> (Socket, UnixStream) {
    let flags = SocketFlags::CLOEXEC;
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    (Socket::new(a).unwrap(), UnixStream::from(b))
}

fn options() -> TransportOptions {
    TransportOptions { handshake: Duration::from_secs(60), ..Default::default() }
}

fn agree(socket: &Socket, end: End, options: &TransportOptions) -> Result<Agreement> {
    agree_on(Carrier::Local, socket, end, options)
}

fn agree_on(
    carrier: Carrier,
    socket: &Socket,
    end: End,
    options: &TransportOptions,
) -> Result<Agreement> {
    let deadline = Instant::now() + options.handshake;
    let stop = &AtomicBool::new(false);
    let greeting =
        Greeting { channel: socket, peer: "the peer", deadline, patience: options.handshake, stop };
    greeting.agree::<BlockProtocol>(end, options, carrier)
}

/// A Service meets a peer that sends `bytes`: what the Service says, and what the peer is told.
fn meets(bytes: &[u8], options: &TransportOptions) -> (Result<Agreement>, String) {
    let (socket, mut peer) = sockets();
    peer.write_all(bytes).unwrap();
    let outcome = agree(&socket, End::Server, options);
    drop(socket);
    let mut told = Vec::new();
    // The Service may have closed with our bytes unread.
    let _ = peer.read_to_end(&mut told);
    let reason = told.get(size_of::<Hello>() + size_of::<Verdict>()..).unwrap_or(&[]);
    (outcome, String::from_utf8(reason.to_vec()).unwrap())
}

/// A Runtime's greeting with a change, its checksum right, and its agreement.
fn greeting(change: impl FnOnce(&mut Hello)) -> Vec<u8> {
    let mut hello = Hello::new::<BlockProtocol>(End::Caller, &options(), Carrier::Local);
    change(&mut hello);
    hello.crc = hello.computed_crc().into();
    [hello.as_bytes(), &verdict(None)].concat()
}

#[test]
fn both_sides_agree_on_the_smaller_limits() {
    let (a, b) = sockets();
    let b = Socket::new(b.into()).unwrap();
    let small = TransportOptions { shared_memory: 9 * 4096 + 1, max_message: 5000, ..options() };
    let device = std::thread::spawn(move || agree(&b, End::Server, &small));
    let host = agree(&a, End::Caller, &options()).unwrap();
    assert_eq!(
        host,
        Agreement { version: PROTOCOL_VERSION, max_message: 5000, slots: 9, rdma: false }
    );
    assert_eq!(device.join().unwrap().unwrap(), host);
}

/// A caller that is to use RDMA uses nothing else; a server that has it serves others, too.
#[test]
fn rdma_is_used_where_both_sides_say_so() {
    let meet = |caller, server| {
        let (a, b) = sockets();
        let b = Socket::new(b.into()).unwrap();
        let served = std::thread::spawn(move || agree_on(server, &b, End::Server, &options()));
        (agree_on(caller, &a, End::Caller, &options()), served.join().unwrap())
    };
    for (caller, rdma) in [(Carrier::Rdma, true), (Carrier::Stream, false)] {
        let (ours, theirs) = meet(caller, Carrier::Rdma);
        assert_eq!(ours.as_ref().unwrap().rdma, rdma);
        assert_eq!(ours.unwrap(), theirs.unwrap());
    }
    let (ours, theirs) = meet(Carrier::Rdma, Carrier::Stream);
    for error in [ours, theirs].map(|outcome| outcome.unwrap_err().to_string()) {
        assert!(error.contains("it has to listen at rdma:HOST:PORT"), "{error}");
    }
}

#[test]
fn unknown_features_are_ignored_and_missing_ones_not_used() {
    let (outcome, _) = meets(&greeting(|h| h.features = u64::MAX.into()), &options());
    assert_eq!(outcome.unwrap().slots, 4096);
    let (outcome, _) = meets(&greeting(|h| h.features = (!SHARED_MEMORY).into()), &options());
    assert_eq!(outcome.unwrap().slots, 0);
}

#[test]
fn each_wrong_peer_is_refused_with_one_message_on_both_sides() {
    type Change = fn(&mut Hello);
    let cases: [(Change, &str); 7] = [
        (|h| h.magic = *b"HTTP/1.1", "does not speak SiftFS's block protocol"),
        (|h| (h.oldest, h.newest) = (70.into(), 90.into()), "speaks versions 70 to 90"),
        (|h| (h.oldest, h.newest) = (0.into(), 0.into()), "speaks versions 0 to 0"),
        (|h| (h.oldest, h.newest) = (1.into(), 0.into()), "speaks versions 1 to 0"),
        (|h| h.role = 2.into(), "is not a Runtime: Service was connected to Service"),
        (|h| h.role = 7.into(), "is not a Runtime: something unknown"),
        (|h| h.heartbeat_ms = 60_000.into(), "sign of life every 60s"),
    ];
    for (change, why) in cases {
        let (outcome, told) = meets(&greeting(change), &options());
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(told, error, "the peer was told something else");
    }
}

#[test]
fn a_range_of_versions_that_overlaps_is_enough() {
    let (outcome, _) = meets(&greeting(|h| h.newest = 90.into()), &options());
    assert_eq!(outcome.unwrap().version, PROTOCOL_VERSION);
}

#[test]
fn two_of_the_same_role_refuse_each_other() {
    let (a, b) = sockets();
    let b = Socket::new(b.into()).unwrap();
    let other = std::thread::spawn(move || agree(&b, End::Caller, &options()));
    for outcome in [agree(&a, End::Caller, &options()), other.join().unwrap()] {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("is not a Service: Runtime was connected to Runtime"), "{error}");
    }
}

#[test]
fn a_peers_refusal_is_its_own_words_without_control_characters() {
    let refused = verdict(Some(&Error::Refused("busy\x1b[2J with another".into())));
    let hello = Hello::new::<BlockProtocol>(End::Caller, &options(), Carrier::Local);
    let (outcome, _) = meets(&[hello.as_bytes(), &refused].concat(), &options());
    let error = outcome.unwrap_err().to_string();
    assert_eq!(error, "the peer refused the connection: busy?[2J with another");
}

#[test]
fn a_greeting_damaged_at_any_byte_or_cut_short_is_refused() {
    let mut bytes = greeting(|_| ());
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            bytes[at] ^= flip;
            let (socket, mut peer) = sockets();
            peer.write_all(&bytes).unwrap();
            // A longer reason than follows is not waited for.
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(agree(&socket, End::Server, &options()).is_err(), "byte {at} ^ {flip}");
            bytes[at] ^= flip;
        }
        let (socket, mut peer) = sockets();
        peer.write_all(&bytes[..at]).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let error = agree(&socket, End::Server, &options()).unwrap_err().to_string();
        assert!(error.contains("the peer ended during the greeting"), "cut at {at}: {error}");
    }
}

#[test]
fn a_peer_that_says_nothing_is_given_up() {
    let (socket, _peer) = sockets();
    let short = TransportOptions { handshake: Duration::from_millis(30), ..Default::default() };
    let error = agree(&socket, End::Server, &short).unwrap_err().to_string();
    assert!(error.contains("did not finish its greeting within 30ms"), "{error}");
}
