use super::*;
use proptest::prelude::*;
use siftfs_keys::known::Expect;
use siftfs_keys::{ClientTls, KeyPair, ServerTls};
use std::net::{TcpListener, TcpStream};

const WITHIN: Duration = Duration::from_secs(60);

/// The two ends of a connection with keys, and both sockets below.
fn ends() -> (Secret, Secret, TcpStream, TcpStream) {
    let dir = tempfile::tempdir().unwrap();
    let (server, caller) =
        (KeyPair::generate("server").unwrap(), KeyPair::generate("caller").unwrap());
    let authorized = dir.path().join("authorized");
    std::fs::write(&authorized, format!("role=client {}\n", caller.line())).unwrap();
    let tls = ServerTls::new(&server, &authorized).unwrap();
    let expect =
        Expect::Fingerprint { address: "here".into(), fingerprint: server.public().fingerprint() };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    let (a, b) = (ours.try_clone().unwrap(), theirs.try_clone().unwrap());
    let serves = std::thread::spawn(move || {
        let (connection, _) = tls.accept(&theirs, WITHIN).unwrap();
        Secret::new(Socket::new(theirs.into()).unwrap(), connection.into())
    });
    let connection = ClientTls::new(&caller).unwrap().connect(&expect, &ours, WITHIN).unwrap();
    let ours = Secret::new(Socket::new(ours.into()).unwrap(), connection.into());
    (ours, serves.join().unwrap(), a, b)
}

fn send(channel: &Secret, mut bytes: &[u8], part: usize) {
    while !bytes.is_empty() {
        let now = bytes.len().min(part);
        let (front, rest) = bytes.split_at(now).0.split_at(now / 3);
        match channel.write(&[IoSlice::new(front), IoSlice::new(rest)]).unwrap() {
            0 => channel.wait_writable(WITHIN).unwrap(),
            n => bytes = &bytes[n..],
        }
    }
    while !channel.flush().unwrap() {
        channel.wait_writable(WITHIN).unwrap();
    }
}

fn receive(channel: &Secret, len: usize, part: usize) -> Vec<u8> {
    let mut got = Vec::new();
    let mut space = vec![0; part];
    while got.len() < len {
        let (front, rest) = space.split_at_mut(part / 2);
        match channel.read(&mut [IoSliceMut::new(front), IoSliceMut::new(rest)]).unwrap() {
            Took::Bytes(n) => got.extend_from_slice(&space[..n]),
            Took::Nothing => channel.wait_readable(WITHIN).unwrap(),
            Took::End => panic!("it ended after {} of {len} bytes", got.len()),
        }
    }
    got
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Both directions at once, in pieces of any length, more than socket and TLS take: no end
    /// waits for the other to be read.
    #[test]
    fn bytes_arrive_in_order(len in 1usize..3_000_000, out in 1usize..200_000, inn in 2usize..200_000) {
        let (ours, theirs, ..) = ends();
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| send(&ours, &bytes, out));
            scope.spawn(|| send(&theirs, &bytes, inn));
            let there = scope.spawn(|| receive(&theirs, len, inn));
            let here = receive(&ours, len, out.max(2));
            assert!(here == bytes && there.join().unwrap() == bytes);
        });
    }
}

/// The server's end, in whose socket a whole record of these bytes has arrived.
fn with_a_record(bytes: &[u8]) -> (Secret, Secret) {
    let (ours, theirs, _, socket) = ends();
    assert_eq!(ours.write(&[IoSlice::new(bytes)]).unwrap(), bytes.len());
    assert!(ours.flush().unwrap());
    let (mut seen, begun) = (vec![0; 2 * bytes.len()], std::time::Instant::now());
    while socket.peek(&mut seen).unwrap_or(0) < bytes.len() {
        assert!(begun.elapsed() < WITHIN, "the record does not arrive");
        std::thread::yield_now();
    }
    (ours, theirs)
}

/// A worker that is told once that something came reads until nothing is there. The begin of a
/// record is not nothing.
#[test]
fn a_record_that_is_there_is_read_at_once() {
    let bytes = vec![7; 16_000];
    let (_ours, theirs) = with_a_record(&bytes);
    let mut space = vec![0; bytes.len()];
    let found = theirs.read(&mut [IoSliceMut::new(&mut space)]).unwrap();
    assert!(matches!(found, Took::Bytes(n) if n > 0), "{found:?}");
    assert!(matches!(theirs.read(&mut [IoSliceMut::new(&mut space)]), Ok(Took::Nothing)));
}

/// What is decrypted lies in no socket, and so wakes nobody.
#[test]
fn none_sleeps_beside_bytes_that_are_decrypted() {
    let bytes = vec![7; 16_000];
    let (_ours, theirs) = with_a_record(&bytes);
    let mut space = vec![0; bytes.len()];
    let (front, rest) = space.split_at_mut(100);
    assert!(matches!(theirs.read(&mut [IoSliceMut::new(front)]), Ok(Took::Bytes(100))));
    assert!(!theirs.arm().unwrap(), "a sleep is begun beside bytes");
    assert!(matches!(theirs.read(&mut [IoSliceMut::new(rest)]), Ok(Took::Bytes(15_900))));
    assert!(theirs.arm().unwrap());
}

/// What the other end does not read is bounded, and is not lost.
#[test]
fn a_full_connection_takes_nothing() {
    let (ours, theirs, ..) = ends();
    assert!(ours.has_room());
    let piece = vec![7u8; 64 << 10];
    let mut sent = 0;
    loop {
        match ours.write(&[IoSlice::new(&piece)]).unwrap() {
            0 => break,
            n => sent += n,
        }
        assert!(sent < 64 << 20, "without a bound");
    }
    assert!(!ours.has_room() && !ours.flush().unwrap());
    let got = std::thread::scope(|scope| {
        let there = scope.spawn(|| receive(&theirs, sent, 1 << 16));
        send(&ours, &[], 1);
        there.join().unwrap()
    });
    assert!(got.len() == sent && got.iter().all(|byte| *byte == 7));
    assert!(ours.has_room());
}

/// An end in order, a cut, and bytes that were changed or put in on the way.
#[test]
fn ends_are_told_apart_from_lies() {
    let nothing = |channel: &Secret| channel.read(&mut [IoSliceMut::new(&mut [0; 64])]);
    let wait = |channel: &Secret| channel.wait_readable(WITHIN).unwrap();
    let (ours, theirs, ..) = ends();
    assert!(matches!(nothing(&theirs), Ok(Took::Nothing)));
    send(&ours, b"last", 64);
    ours.end(Duration::ZERO);
    assert_eq!(receive(&theirs, 4, 64), b"last");
    wait(&theirs);
    assert!(matches!(nothing(&theirs), Ok(Took::End)));

    let (ours, theirs, ..) = ends();
    ours.cut();
    wait(&theirs);
    assert!(matches!(nothing(&theirs), Ok(Took::End)));
    assert!(ours.write(&[IoSlice::new(b"x")]).is_err());

    // A third party that can write to the connection, but has no key.
    let (_ours, theirs, mut below, _) = ends();
    below.set_nonblocking(false).unwrap();
    let record = [&[23, 3, 3, 0, 32][..], &[0; 32]].concat();
    below.write_all(&record).unwrap();
    wait(&theirs);
    let error = nothing(&theirs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}
