//! Clients that break the protocol: each loses its own session, and nobody else notices.

#[path = "../../../crates/shared/calls/src/samples.rs"]
#[allow(dead_code, missing_docs)]
mod samples;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use siftfs_base::SystemClock;
use siftfs_calls::{Claim, FileProtocol, FromServer, Leases, Opening, ToServer};
use siftfs_codec::{Encoded, Message};
use siftfs_device::MemDevice;
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Credentials, FileService, Handle, LockAsk, LockKind, LockPlace, LockWait, Request, Rights,
    WaitUntil,
};
use siftfs_remote::Client;
use siftfs_served::{Setup, Way};
use siftfs_transport::{CallerEnd, Received, reach};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

fn volume() -> LocalVolume {
    let device = Arc::new(MemDevice::new(64 << 20));
    let device = device as Arc<dyn siftfs_device::Device>;
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions::default();
    LocalVolume::open_on(device, Arc::new(SystemClock::default()), &options, Threads::Real).unwrap()
}

fn raw(setup: &Setup) -> CallerEnd<FileProtocol> {
    reach::<FileProtocol>(&setup.address, &setup.options, setup.secured.as_ref()).unwrap()
}

fn opening(claim: Claim) -> ToServer {
    let (volume, caches, leases, returning) = (String::new(), false, Leases::None, None);
    ToServer::Open(Box::new(Opening { volume, claim, caches, leases, returning }))
}

fn opened(setup: &Setup, claim: Claim) -> CallerEnd<FileProtocol> {
    let mut end = raw(setup);
    end.sender.send(opening(claim)).unwrap();
    let answer = end.receiver.recv(LIMIT).unwrap();
    assert!(matches!(answer, Received::Message(FromServer::Opened { .. })), "{answer:?}");
    end
}

fn call(slot: u32, number: u64, request: Request) -> ToServer {
    let (credentials, request) = (Credentials::default(), Box::new(request));
    ToServer::Call { slot, number, credentials, request, change: None, proofs: None }
}

/// What the server says before it ends the connection.
fn last_word(mut end: CallerEnd<FileProtocol>) -> String {
    let mut last = String::new();
    loop {
        match end.receiver.recv(LIMIT) {
            Ok(Received::Message(
                FromServer::Ended { reason, .. } | FromServer::Refused { reason },
            )) => {
                last = reason;
            }
            Ok(Received::Message(_)) => {}
            Ok(Received::Timeout) => panic!("the connection does not end"),
            Ok(Received::Closed) | Err(_) => return last,
        }
    }
}

/// Somebody else's session goes on all the time.
fn others_go_on(setup: &Setup) {
    let client = setup.client(Claim::Owner).unwrap();
    client.call(&Credentials::default(), Request::StatFs).unwrap();
}

#[test]
fn a_client_that_breaks_a_rule_loses_its_session() {
    let local = volume();
    for way in Way::TRUSTED {
        let setup = Setup::new(&local, way);
        let broken: [(&[ToServer], &str); 5] = [
            (&[opening(Claim::Owner)], "it opens a second session"),
            (&[call(0, 1, Request::StatFs)], "call 1 in slot 0 instead of 0"),
            (&[call(64, 0, Request::StatFs)], "slot 64, which does not exist"),
            (
                // The second has the first one's number, whether that is answered or not.
                &[call(3, 0, Request::StatFs), call(3, 0, Request::StatFs)],
                "in slot 3",
            ),
            (&[ToServer::Taken { notice: 5 }], "notice 5"),
        ];
        for (messages, why) in broken {
            let end = opened(&setup, Claim::Owner);
            messages.iter().for_each(|message| end.sender.send(message.clone()).unwrap());
            let said = last_word(end);
            assert!(said.contains(why), "{said}");
            others_go_on(&setup);
        }
        assert_eq!(setup.server.counts().ended, 5);
    }
    local.close().unwrap();
}

#[test]
fn a_connection_without_a_session_is_refused() {
    let local = volume();
    let setup = Setup::new(&local, Way::Unix);
    let end = raw(&setup);
    end.sender.send(call(0, 0, Request::StatFs)).unwrap();
    assert!(last_word(end).contains("it opens no session"));
    let (silent, since) = (raw(&setup), Instant::now());
    others_go_on(&setup);
    let said = last_word(silent);
    assert!(said.contains("opened no session within 5s"), "{said}");
    assert!(since.elapsed() > Duration::from_secs(4));
    // Bytes that are no greeting at all, and half a greeting.
    let siftfs_remote::Address::Unix(path) = &setup.address else { panic!("a unix socket") };
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SiftLink\0\0"] {
        UnixStream::connect(path).unwrap().write_all(bytes).unwrap();
        others_go_on(&setup);
    }
    let _held: Vec<_> = (0..100).map(|_| UnixStream::connect(path)).collect();
    drop(_held);
    others_go_on(&setup);
    assert!(setup.server.counts().refused >= 2);
    drop(setup);
    local.close().unwrap();
}

/// Passes on what a client sends, up to some bytes from now on, and everything that it is sent.
struct Half {
    address: siftfs_remote::Address,
    left: Arc<AtomicUsize>,
    _dir: tempfile::TempDir,
}

impl Half {
    fn before(setup: &Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("half.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let siftfs_remote::Address::Unix(server) = setup.address.clone() else { panic!("unix") };
        let left = Arc::new(AtomicUsize::new(usize::MAX / 2));
        let may = left.clone();
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = UnixStream::connect(server).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut bytes) {
                    let passes = n.min(may.load(Ordering::SeqCst));
                    may.fetch_sub(passes, Ordering::SeqCst);
                    if to.write_all(&bytes[..passes]).is_err() {
                        return;
                    }
                }
            });
            let _ = std::io::copy(&mut &server, &mut &client);
            let _ = client.shutdown(Shutdown::Both);
        });
        Self { address: siftfs_remote::Address::Unix(path), left, _dir: dir }
    }
}

/// Half a frame, and then nothing at all, as long as the server has patience: what the session had
/// is free afterwards, and nobody else waits for it before.
#[test]
fn half_a_frame_and_then_silence_ends_the_session() {
    let local = volume();
    let setup = Setup::new(&local, Way::Unix);
    let half = Half::before(&setup);
    let client = Client::connect(&half.address, (&setup.options, None), "", Claim::Owner, None);
    let client = Arc::new(client.unwrap());
    let root = Credentials::default();
    let (parent, name) = (siftfs_proto::ROOT_INO, b"f".to_vec());
    let create = Request::Create { parent, name: name.clone(), perm: 0o600 };
    let (_, theirs) = client.call(&root, create).unwrap().created().unwrap();
    let lock = |file: Handle, wait| {
        let (place, kind) = (LockPlace::Whole, Some(LockKind::Write));
        let ask = LockAsk { owner: 1, pid: 1, place, kind, wait };
        Request::SetLock { file: file.into(), ask }
    };
    client.call(&root, lock(theirs, None)).unwrap();
    half.left.store(30, Ordering::SeqCst);
    let (stuck, request) = (client.clone(), Request::write(theirs, 0, vec![7; 8192]));
    let stuck = std::thread::spawn(move || stuck.call(&Credentials::default(), request));
    let other = setup.client(Claim::Owner).unwrap();
    let ino = other.call(&root, Request::Lookup { parent, name }).unwrap().attr().unwrap().ino;
    let ours = other.call(&root, Request::open(ino, Access::Both)).unwrap().opened().unwrap();
    let again = other.call(&root, lock(ours, None));
    assert_eq!(again, Err(siftfs_base::errno(libc::EAGAIN)), "it has its lock for its term");
    let wait = Some(LockWait { number: 1, until: WaitUntil::File });
    let (tell, told) = std::sync::mpsc::channel();
    other.submit(&root, lock(ours, wait), Box::new(move |result| drop(tell.send(result))));
    assert_eq!(told.recv_timeout(LIMIT.unwrap()), Ok(Ok(siftfs_proto::Reply::Done)));
    assert!(matches!(stuck.join().unwrap(), Err(siftfs_base::Error::Link(_))));
    let read = Request::Read { file: ours.into(), offset: 0, len: 8192 };
    let there = other.call(&root, read).unwrap();
    assert!(matches!(there, siftfs_proto::Reply::Data(data) if data.is_empty()), "half a call");
    drop((client, other, setup));
    local.close().unwrap();
}

/// A client that dies in the middle of calls, with answers that it never takes.
#[test]
fn a_client_that_goes_is_forgotten() {
    let local = volume();
    for way in Way::TRUSTED {
        let setup = Setup::new(&local, way);
        for _ in 0..20 {
            let end = opened(&setup, Claim::Owner);
            for slot in 0..64 {
                let file = siftfs_proto::Target::Inode(2);
                let request =
                    if slot % 2 == 0 { Request::StatFs } else { Request::GetAttr { file } };
                end.sender.send(call(slot, 0, request)).unwrap();
            }
        }
        others_go_on(&setup);
    }
    local.close().unwrap();
}

/// A client that takes no answers keeps neither memory without a bound nor the server.
#[test]
fn a_client_that_takes_no_answers_is_cut_off() {
    let local = volume();
    for way in Way::TRUSTED {
        let setup = Setup::new(&local, way);
        let end = opened(&setup, Claim::Owner);
        let create = Request::Create {
            parent: siftfs_proto::ROOT_INO,
            name: format!("{way:?}").into(),
            perm: 0o600,
        };
        end.sender.send(call(0, 0, create)).unwrap();
        let client = setup.client(Claim::Kernel).unwrap();
        let ask = |request| client.call(&Credentials::default(), request);
        let lookup =
            Request::Lookup { parent: siftfs_proto::ROOT_INO, name: format!("{way:?}").into() };
        let attr = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            ask(lookup.clone()).and_then(siftfs_proto::Reply::attr).ok()
        });
        let ino = attr.unwrap().ino;
        ask(Request::write(ino, 0, vec![7; 1 << 20])).unwrap();
        drop(client);
        // The handle that was made is the session's first, whatever its number: it opens another.
        let raw = opened(&setup, Claim::Kernel);
        for slot in 0..64 {
            let file = siftfs_proto::Target::Inode(ino);
            raw.sender
                .send(call(slot, 0, Request::Read { file, offset: 0, len: 1 << 20 }))
                .unwrap();
        }
        others_go_on(&setup);
        std::thread::sleep(Duration::from_millis(200));
        let since = Instant::now();
        drop(setup);
        assert!(since.elapsed() < Duration::from_secs(30), "the server waits for a client");
        drop((end, raw));
    }
    local.close().unwrap();
}

/// Requests with any bytes in the place of right ones, of users and of a kernel's session: each is
/// answered or refused, the server goes on, and the volume is whole.
#[test]
fn damaged_requests_are_answered() {
    let local = volume();
    let setup = Setup::new(&local, Way::Shared);
    let rights = Rights::all();
    let claims = [Claim::Owner, Claim::User { uid: 0, gid: 0, rights }];
    let all = samples::requests();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(1000));
    let damage = (0..all.len(), any::<proptest::sample::Index>(), any::<u8>(), 0..claims.len());
    let clients = claims.clone().map(|claim| setup.client(claim).unwrap());
    let ran = runner.run(&damage, |(which, at, byte, client)| {
        let call = call(0, 0, all[which].clone());
        let Encoded { mut head, blocks } = call.encode().unwrap();
        let at = 27 + at.index(head.len() - 27);
        head[at] = byte;
        let Ok(ToServer::Call { request, .. }) = ToServer::decode(&head, blocks) else {
            return Ok(());
        };
        // These end the session, or wait for what never comes.
        let ends = matches!(*request, Request::EndSession | Request::Wait { .. });
        if !ends {
            let _ = clients[client].call(&Credentials::default(), *request);
        }
        Ok(())
    });
    ran.unwrap();
    drop(clients);
    others_go_on(&setup);
    drop(setup);
    local.close().unwrap();
}
