//! What every transport does alike.

mod support;

use siftfs_base::Error;
use siftfs_transport::{
    Address, Received, TransportOptions, Trust, connect, nobody_listens, reach,
};
use siftfs_wire::{BlockProtocol, FromService, ToService};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::samples;
use support::*;

/// Peers that say nothing, and peers that stop in the middle of their greeting, more of both than
/// are greeted at a time: one that comes behind them is greeted nevertheless, whatever time they
/// would have had.
#[test]
fn peers_that_say_nothing_keep_nobody_out() {
    for way in [Way::Unix, Way::Tcp, Way::Secret] {
        let acquainted = Acquainted::new();
        let (listener, _dir) = match way {
            Way::Secret => (acquainted.listen(&way.options(&patient())), None),
            _ => {
                let (listener, dir) = way.listen(&patient());
                (listener, Some(dir))
            }
        };
        let address = listener.address();
        let accepted = std::thread::spawn(move || {
            let end = loop {
                if let Ok(Some(end)) = listener.accept(None) {
                    break end;
                }
            };
            drop(listener);
            end
        });
        let mut peers: Vec<OwnedFd> = Vec::new();
        for at in 0..120 {
            let said: &[u8] = if at < 60 { b"" } else { &[22, 3] };
            let mut said = std::io::Cursor::new(said);
            peers.push(match &address {
                Address::Unix(path) => {
                    let mut peer = UnixStream::connect(path).unwrap();
                    std::io::copy(&mut said, &mut peer).unwrap();
                    peer.into()
                }
                Address::Tcp { host, port } | Address::Rdma { host, port } => {
                    let mut peer = TcpStream::connect((&host[..], *port)).unwrap();
                    std::io::copy(&mut said, &mut peer).unwrap();
                    peer.into()
                }
            });
        }
        let ours = match way {
            Way::Secret => {
                let options = patient();
                let secured = acquainted.keys().secure(&address, &options, None).unwrap();
                reach::<BlockProtocol>(&address, &options, secured.as_ref())
            }
            _ => connect::<BlockProtocol>(&address, &way.options(&patient())),
        };
        let mut theirs = accepted.join().unwrap();
        ours.unwrap().sender.send(ToService::Statistics).unwrap();
        assert_eq!(to_device(&mut theirs), ToService::Statistics, "{way:?}");
        assert_eq!(theirs.key.is_some(), way == Way::Secret);
        drop(peers);
    }
}

/// A key that is not admitted, a server with another key, and each side without TLS where the other
/// has it: one message on each side.
#[test]
fn keys_that_do_not_fit_are_refused() {
    let (ours, strangers) = (Acquainted::new(), Acquainted::new());
    let options = TransportOptions { shared_memory: 0, ..patient() };
    let listener = ours.listen(&options);
    let address = listener.address();
    let refused = |keys: &Trust| {
        let secured = keys.secure(&address, &options, None).unwrap();
        std::thread::scope(|scope| {
            let there = scope.spawn(|| listener.accept(None).unwrap_err().to_string());
            let here = reach::<BlockProtocol>(&address, &options, secured.as_ref());
            (here.unwrap_err().to_string(), there.join().unwrap())
        })
    };
    let own = ours.keys();
    let (here, there) = refused(&Trust { key: strangers.keys().key, ..own.clone() });
    assert!(here.contains("does not admit the key"), "{here}");
    assert!(there.contains("authorized does not list it"), "{there}");
    let (here, there) =
        refused(&Trust { fingerprint: strangers.keys().fingerprint, ..own.clone() });
    assert!(here.contains("the mount was told"), "{here}");
    assert!(there.contains("handshake"), "{there}");
    std::thread::scope(|scope| {
        let there = scope.spawn(|| listener.accept(None).unwrap_err().to_string());
        // By then the server has gone, or has said something of TLS.
        let here = connect::<BlockProtocol>(&address, &options).unwrap_err().to_string();
        assert!(here.contains("greeting") || here.contains("does not speak SiftFS"), "{here}");
        let there = there.join().unwrap();
        assert!(there.contains("does not speak TLS"), "{there}");
    });
    let (plain, _dir) = Way::Tcp.listen(&options);
    let address = plain.address();
    let secured = own.secure(&address, &options, None).unwrap();
    std::thread::scope(|scope| {
        let there = scope.spawn(|| plain.accept(None).unwrap_err().to_string());
        let here = reach::<BlockProtocol>(&address, &options, secured.as_ref());
        let here = here.unwrap_err().to_string();
        assert!(here.contains("does not speak TLS"), "{here}");
        let there = there.join().unwrap();
        assert!(there.contains("does not speak SiftFS"), "{there}");
    });
}

const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn every_message_arrives_as_it_was_on_every_transport() {
    for way in WAYS {
        let (mut host, mut device) = pair(way, &patient());
        for message in samples::to_service() {
            host.sender.send(message.clone()).unwrap();
            assert_eq!(to_device(&mut device), message, "{way:?}");
        }
        for message in samples::from_service() {
            device.sender.send(message.clone()).unwrap();
            assert_eq!(to_host(&mut host), message, "{way:?}");
        }
    }
}

#[test]
fn asking_without_waiting_and_closing_in_order() {
    for way in WAYS {
        let (mut host, mut device) = pair(way, &patient());
        assert!(matches!(device.receiver.recv(NOW), Ok(Received::Timeout)), "{way:?}");
        let a_while = Some(Duration::from_millis(5));
        assert!(matches!(device.receiver.recv(a_while), Ok(Received::Timeout)), "{way:?}");
        host.sender.send(ToService::Statistics).unwrap();
        host.sender.close();
        host.sender.close();
        assert!(host.sender.send(ToService::Statistics).is_err(), "{way:?}: sent after closing");
        assert_eq!(to_device(&mut device), ToService::Statistics, "{way:?}");
        for _ in 0..2 {
            assert!(matches!(device.receiver.recv(None), Ok(Received::Closed)), "{way:?}");
        }
        // The other direction is still open.
        let answer = samples::from_service().remove(0);
        device.sender.send(answer.clone()).unwrap();
        device.sender.close();
        drop(device);
        assert_eq!(to_host(&mut host), answer, "{way:?}");
        assert!(matches!(host.receiver.recv(None), Ok(Received::Closed)), "{way:?}");
    }
}

#[test]
fn what_was_sent_before_a_side_closed_and_left_still_arrives() {
    for way in WAYS {
        let (mut host, device) = pair(way, &patient());
        // Unread messages of the host lie in the device's buffers when it leaves.
        for _ in 0..3 {
            host.sender.send(ToService::Statistics).unwrap();
        }
        let all = samples::from_service();
        all.iter().take(5).for_each(|m| device.sender.send(m.clone()).unwrap());
        device.sender.close();
        drop(device);
        for message in all.into_iter().take(5) {
            assert_eq!(to_host(&mut host), message, "{way:?}");
        }
        assert!(matches!(host.receiver.recv(None), Ok(Received::Closed)), "{way:?}");
    }
}

#[test]
fn a_side_that_leaves_without_closing_is_a_broken_peer() {
    for way in WAYS {
        let (mut host, device) = pair(way, &patient());
        drop(device);
        for _ in 0..2 {
            let error = host.receiver.recv(None).unwrap_err();
            let named = matches!(&error, Error::Link(m) if m.contains("without closing"));
            assert!(named, "{way:?}: {error}");
        }
        assert!(host.sender.send(ToService::Statistics).is_err(), "{way:?}");
    }
}

#[test]
fn messages_keep_their_order_and_a_slow_receiver_bounds_what_is_on_its_way() {
    const MESSAGES: u64 = 150;
    const BLOCKS: u64 = 64;
    for way in WAYS {
        let options = TransportOptions { queue: 2, shared_memory: 1 << 20, ..patient() };
        let (host, mut device) = pair(way, &options);
        let sent = Arc::new(AtomicU64::new(0));
        let (count, sender) = (sent.clone(), host.sender.clone());
        let thread = std::thread::spawn(move || {
            for i in 0..MESSAGES {
                sender.send(bulk(BLOCKS, i as u8)).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut most = 0;
        for i in 0..MESSAGES {
            if i % 16 == 0 {
                std::thread::sleep(Duration::from_millis(3));
            }
            assert_eq!(to_device(&mut device), bulk(BLOCKS, i as u8), "{way:?}");
            most = most.max(sent.load(Ordering::SeqCst).saturating_sub(i + 1));
        }
        thread.join().unwrap();
        // The queue's messages, and what fits into socket buffers or rings and arena.
        let bound = match way {
            Way::InProcess => 2,
            Way::Unix => 2 + 4,
            Way::Shared => 2 + 8,
            Way::Tcp | Way::Secret => 2 + 50,
        };
        assert!(most <= bound, "{way:?}: {most} messages of 256 KiB on their way");
    }
}

#[test]
fn concurrent_senders_take_turns() {
    for way in WAYS {
        let (host, mut device) = pair(way, &patient());
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let sender = host.sender.clone();
                std::thread::spawn(move || {
                    for n in 0..50u64 {
                        let upto = siftfs_base::TxnSeq(n);
                        let urgency = siftfs_wire::Urgency::Background;
                        sender.send(ToService::Checkpoint { id: thread, upto, urgency }).unwrap();
                    }
                })
            })
            .collect();
        let mut next = [0; 4];
        for _ in 0..200 {
            let ToService::Checkpoint { id, upto, .. } = to_device(&mut device) else {
                panic!("{way:?}: another message")
            };
            assert_eq!(upto.0, next[id as usize], "{way:?}: thread {id}");
            next[id as usize] += 1;
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

#[test]
fn more_blocks_than_the_arena_has_slots_still_arrive() {
    let options = TransportOptions { shared_memory: 5 * 4096, ..patient() };
    let (host, mut device) = pair(Way::Shared, &options);
    let thread = std::thread::spawn(move || {
        for i in 0..20 {
            host.sender.send(bulk(7, i)).unwrap();
        }
        host
    });
    // Kept, so that their slots do not come back.
    let kept: Vec<ToService> = (0..20).map(|_| to_device(&mut device)).collect();
    thread.join().unwrap();
    for (i, message) in kept.into_iter().enumerate() {
        assert_eq!(message, bulk(7, i as u8));
    }
}

#[test]
fn a_message_that_is_too_long_is_refused_and_the_connection_goes_on() {
    for way in OUTSIDE {
        let small = TransportOptions { max_message: 64 << 10, ..patient() };
        // The smaller limit counts, whichever side has it.
        let (mut host, mut device) = pair_with(way, &patient(), &small);
        let error = host.sender.send(bulk(16, 1)).unwrap_err();
        let named = matches!(&error, Error::Refused(m) if m.contains("agreed on at most 65536"));
        assert!(named, "{way:?}: {error}");
        host.sender.send(bulk(15, 2)).unwrap();
        assert_eq!(to_device(&mut device), bulk(15, 2), "{way:?}");
        device.sender.send(samples::from_service().remove(0)).unwrap();
        to_host(&mut host);
    }
}

#[test]
fn a_peer_that_has_nothing_to_say_stays_connected() {
    for way in OUTSIDE {
        let short = TransportOptions {
            heartbeat: Duration::from_millis(20),
            stall: Duration::from_millis(2000),
            ..Default::default()
        };
        let (mut host, mut device) = pair(way, &short);
        // Longer than the stall; no thread receives on the device's side.
        let longer = Some(Duration::from_millis(3000));
        assert!(matches!(host.receiver.recv(longer), Ok(Received::Timeout)), "{way:?}");
        host.sender.send(ToService::Statistics).unwrap();
        assert_eq!(to_device(&mut device), ToService::Statistics);
        device.sender.send(FromService::Statistics(Box::default())).unwrap();
        to_host(&mut host);
    }
}

/// Waits until this process has `n` threads that tend connections. A thread takes its name, and
/// leaves the list, a moment after its waiters go on.
fn until_threads(n: usize, what: &str) {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        // A thread that ends between the two reads has no name any more.
        tasks.filter_map(|t| name(t.unwrap()).ok()).filter(|n| n == "siftfs-link\n").count()
    };
    for _ in 0..3000 {
        if threads() == n {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: {} threads instead of {n}", threads());
}

#[test]
fn threads_end_with_their_connection() {
    // In a process of its own: other tests have connections, too.
    if !child::is_child() {
        return child::run("threads_end_with_their_connection");
    }
    for way in OUTSIDE {
        let (host, device) = pair(way, &patient());
        until_threads(2, &format!("{way:?} connected"));
        drop((host, device));
        until_threads(0, &format!("{way:?} dropped"));
    }
}

mod child {
    const MARK: &str = "SIFTFS_TEST_CHILD";
    pub fn is_child() -> bool {
        std::env::var_os(MARK).is_some()
    }
    pub fn run(test: &str) {
        let program = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(program);
        let status = command.args(["--exact", test]).env(MARK, "1").status().unwrap();
        assert!(status.success(), "{test} in a process of its own: {status}");
    }
}

fn refusal(address: &Address) -> String {
    match connect::<BlockProtocol>(address, &patient()) {
        Ok(_) => panic!("{address} was connected to"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn addresses_where_nobody_listens_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Address::Unix(dir.path().join("missing.sock"));
    assert!(refusal(&missing).contains("missing.sock: nobody listens there"));
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let closed = Address::Tcp { host: "127.0.0.1".into(), port: free };
    assert!(refusal(&closed).contains("nobody listens there"));
}

fn bind_error(address: &Address) -> String {
    match Listener::bind(address, &patient()) {
        Ok(_) => panic!("{address} was bound"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn a_socket_in_use_or_another_file_is_not_replaced_and_a_stale_one_is() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let address = Address::Unix(path.clone());
    let first = Listener::bind(&address, &patient()).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "others may connect");
    assert!(bind_error(&address).contains("another process listens there"));
    drop(first);
    assert!(!path.exists(), "the socket stayed");

    std::fs::write(&path, "precious").unwrap();
    assert!(bind_error(&address).contains("exists and is not a socket"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();

    // Left behind by a process that died: bound, and no process listens.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let second = Listener::bind(&address, &patient()).unwrap();
    drop(second);
}

#[test]
fn accepting_waits_no_longer_than_it_was_told() {
    for way in [Way::Unix, Way::Tcp] {
        let (listener, _dir) = way.listen(&patient());
        assert!(matches!(listener.accept(NOW), Ok(None)));
        assert!(matches!(listener.accept(Some(Duration::from_millis(5))), Ok(None)));
    }
}

/// A socket that is left behind, a path without one, a port that no process has: and one that
/// listens.
#[test]
fn whether_nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let unix = Address::Unix(dir.path().join("socket"));
    assert!(nobody_listens(&unix), "no socket");
    let options = TransportOptions::default();
    let listener = Listener::bind(&unix, &options).unwrap();
    assert!(!nobody_listens(&unix));
    drop(listener);
    let left = std::os::unix::net::UnixListener::bind(dir.path().join("left")).unwrap();
    let there = Address::Unix(dir.path().join("left"));
    assert!(!nobody_listens(&there), "it listens, and does not answer");
    drop(left);
    assert!(nobody_listens(&there), "the socket of a process that died");
    let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let tcp = listener.address();
    assert!(!nobody_listens(&tcp));
    drop(listener);
    assert!(nobody_listens(&tcp));
}

const HINT: ToService = ToService::ExpectUrgent { ms: 100 };

#[test]
fn a_small_message_leaves_at_once_or_not_at_all() {
    for way in WAYS {
        let options = TransportOptions { queue: 2, shared_memory: 1 << 20, ..patient() };
        let (host, mut device) = pair(way, &options);
        assert!(host.sender.try_send(HINT), "{way:?}");
        assert_eq!(to_device(&mut device), HINT, "{way:?}");
        // No thread receives: hints stop leaving, and a try does not wait.
        let left = (0u64..).take_while(|_| host.sender.try_send(HINT)).count();
        assert!(left > 0, "{way:?}");
        assert!(!host.sender.try_send(HINT), "{way:?}");
        for _ in 0..left {
            assert_eq!(to_device(&mut device), HINT, "{way:?}: none is half");
        }
        host.sender.send(ToService::Statistics).unwrap();
        assert_eq!(to_device(&mut device), ToService::Statistics, "{way:?}");
        host.sender.close();
        assert!(!host.sender.try_send(HINT), "{way:?}: sent after closing");
    }
}

/// Another's message is on its way and does not get on: a sender that may not wait does not queue
/// behind it.
#[test]
fn a_small_message_does_not_wait_its_turn() {
    for way in OUTSIDE {
        let options = TransportOptions { queue: 1, shared_memory: 1 << 20, ..patient() };
        let (host, mut device) = pair(way, &options);
        let sender = host.sender.clone();
        let begun = Arc::new(AtomicU64::new(0));
        let count = begun.clone();
        let thread = std::thread::spawn(move || {
            for i in 0..40 {
                count.store(i, Ordering::SeqCst);
                sender.send(bulk(256, i as u8)).unwrap();
            }
        });
        let mut sent = 0;
        // It stands still when it does not begin another one while many hints are refused.
        let (mut stood, mut at) = (0, u64::MAX);
        while stood < 200 {
            let now = begun.load(Ordering::SeqCst);
            let left = host.sender.try_send(HINT);
            sent += usize::from(left);
            stood = if left || now != at { 0 } else { stood + 1 };
            at = now;
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(at < 39, "{way:?}: it waits for a receiver");
        let mut hints = 0;
        for _ in 0..40 {
            while matches!(to_device(&mut device), ToService::ExpectUrgent { .. }) {
                hints += 1;
            }
        }
        thread.join().unwrap();
        assert!(hints <= sent, "{way:?}");
    }
}

#[test]
fn only_small_messages_are_tried() {
    for way in OUTSIDE {
        let (host, mut device) = pair(way, &patient());
        assert!(!host.sender.try_send(bulk(1, 1)), "{way:?}");
        assert!(!host.sender.try_send(ToService::Objection { reason: "x".repeat(2000) }));
        assert!(host.sender.try_send(HINT), "{way:?}");
        assert_eq!(to_device(&mut device), HINT, "{way:?}");
        drop(device);
        while host.sender.send(HINT).is_ok() {}
        assert!(!host.sender.try_send(HINT), "{way:?}: the peer is gone");
    }
}

/// Where this machine's end has no RDMA device, or the program has no RDMA, both sides say so, and
/// the listener goes on: a caller that says `tcp:` is served at the same port.
#[test]
fn a_side_without_a_device_of_rdma_says_so_to_both() {
    let options = patient();
    let rdma = |port| Address::Rdma { host: "127.0.0.1".into(), port };
    let listener = Listener::bind(&rdma(0), &options).unwrap();
    let Some((_, port)) = listener.address().network() else { panic!("a port") };
    let calls = |address: Address| {
        std::thread::scope(|scope| {
            let ours = scope.spawn(|| connect::<BlockProtocol>(&address, &options));
            (listener.accept(Some(Duration::from_secs(60))), ours.join().unwrap())
        })
    };
    let (theirs, ours) = calls(rdma(port));
    for error in [theirs.unwrap_err(), ours.unwrap_err()] {
        assert!(matches!(&error, Error::Refused(why) if why.contains("RDMA")), "{error}");
    }
    let (theirs, ours) = calls(Address::Tcp { host: "127.0.0.1".into(), port });
    ours.unwrap().sender.send(ToService::Statistics).unwrap();
    let mut theirs = theirs.unwrap().expect("a caller");
    assert_eq!(to_device(&mut theirs), ToService::Statistics);
    assert!(!theirs.peer.contains("RDMA"), "{}", theirs.peer);
}

/// A server has one key at a port: one that is known there is known for RDMA, too.
#[test]
fn a_key_that_is_known_is_known_for_rdma() {
    let (acquainted, options) = (Acquainted::new(), patient());
    let listener = acquainted.listen(&options);
    let address = listener.address();
    let Some((host, port)) = address.network() else { panic!("a port") };
    let rdma = Address::Rdma { host: host.into(), port };
    let secured = acquainted.keys().secure(&rdma, &options, None).unwrap().expect("keys");
    let said = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| listener.accept(Some(Duration::from_secs(60))));
        let ours = reach::<BlockProtocol>(&rdma, &options, Some(&secured));
        (ours.unwrap_err().to_string(), theirs.join().unwrap().unwrap_err().to_string())
    });
    let why = "it has to listen at rdma:HOST:PORT";
    assert!(said.0.contains(why) && said.1.contains(why), "{said:?}");
}
