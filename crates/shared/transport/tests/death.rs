//! Peers that are real processes, and are killed or stopped.

mod support;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use siftfs_base::Error;
use siftfs_transport::{Address, Received, TransportOptions, connect, reach};
use siftfs_wire::{BlockProtocol, ToService};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use support::{Acquainted, DeviceEnd, HostEnd, OUTSIDE, Way, bulk, keys_in, patient, samples};

const ADDRESS: &str = "SIFTFS_TEST_ADDRESS";
const WAY: &str = "SIFTFS_TEST_WAY";
const KEYS: &str = "SIFTFS_TEST_KEYS";

/// Ends the process it stands for, however a test ends.
struct Killed(Child);

impl Killed {
    /// Stops it, and comes back when it runs no more: its threads stop one by one, and one that
    /// waits for a message may still get it after the signal was sent.
    fn stop(&self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Gives up no peer for minutes, and says often enough for the others that it lives.
fn lasting() -> TransportOptions {
    TransportOptions { heartbeat: Duration::from_millis(50), ..patient() }
}

fn short() -> TransportOptions {
    TransportOptions {
        heartbeat: Duration::from_millis(50),
        stall: Duration::from_millis(1000),
        handshake: Duration::from_secs(60),
        ..Default::default()
    }
}

/// A connection from a process that does what `role` says.
fn child(way: Way, role: &str, options: &TransportOptions) -> (Killed, DeviceEnd) {
    let acquainted = Acquainted::new();
    let (listener, dir) = match way {
        Way::Secret => (acquainted.listen(&way.options(options)), None),
        _ => {
            let (listener, dir) = way.listen(options);
            (listener, Some(dir))
        }
    };
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--ignored"])
        .env(ADDRESS, listener.address().to_string())
        .env(KEYS, acquainted.folder())
        .env(WAY, format!("{way:?}"))
        .spawn()
        .unwrap();
    let child = Killed(child);
    let device = listener.accept(None).unwrap().unwrap();
    drop(dir);
    (child, device)
}

fn in_child(options: TransportOptions) -> HostEnd {
    let way = std::env::var(WAY).unwrap();
    let way = OUTSIDE.into_iter().find(|w| format!("{w:?}") == way).unwrap();
    let address: Address = std::env::var(ADDRESS).unwrap().parse().unwrap();
    let options = way.options(&options);
    if way != Way::Secret {
        return connect::<BlockProtocol>(&address, &options).unwrap();
    }
    let keys = keys_in(Path::new(&std::env::var(KEYS).unwrap()));
    let secured = keys.secure(&address, &options, None).unwrap();
    reach::<BlockProtocol>(&address, &options, secured.as_ref()).unwrap()
}

#[test]
#[ignore = "the process that other tests of this file start"]
fn sends_without_end() {
    let host = in_child(lasting());
    while host.sender.send(bulk(64, 1)).is_ok() {}
}

#[test]
#[ignore = "the process that other tests of this file start"]
fn sends_one_and_waits() {
    let mut host = in_child(lasting());
    host.sender.send(ToService::Statistics).unwrap();
    // Ends when the test has seen enough.
    let _ = host.receiver.recv(None);
}

/// Receives until something else comes; the number of messages and what came.
fn drain(device: &mut DeviceEnd) -> (usize, siftfs_base::Result<Received<ToService>>) {
    let mut n = 0;
    loop {
        match device.receiver.recv(None) {
            Ok(Received::Message(message)) => {
                assert_eq!(message, bulk(64, 1));
                n += 1;
            }
            other => return (n, other),
        }
    }
}

#[test]
fn a_peer_killed_while_it_sends_is_noticed_and_nothing_half_arrives() {
    for way in OUTSIDE {
        let (child, mut device) = child(way, "sends_without_end", &lasting());
        for _ in 0..5 {
            device.receiver.recv(None).unwrap();
        }
        drop(child);
        let (_, end) = drain(&mut device);
        let named = matches!(&end, Err(Error::Link(m)) if m.contains(" ended "));
        assert!(named, "{way:?}: {end:?}");
        let error = device.sender.send(samples::from_service().remove(0));
        assert!(error.is_err(), "{way:?}: sent to a dead peer");
    }
}

#[test]
fn a_peer_killed_while_it_is_idle_is_noticed() {
    for way in OUTSIDE {
        // The patience is minutes: it is the end of the process that is noticed.
        let (child, mut device) = child(way, "sends_one_and_waits", &lasting());
        assert!(matches!(device.receiver.recv(None), Ok(Received::Message(_))));
        drop(child);
        let end = device.receiver.recv(None);
        let named = matches!(&end, Err(Error::Link(m)) if m.contains("without closing"));
        assert!(named, "{way:?}: {end:?}");
    }
}

#[test]
fn a_peer_that_is_stopped_is_given_up_by_a_receiver() {
    for way in OUTSIDE {
        let (child, mut device) = child(way, "sends_one_and_waits", &short());
        assert!(matches!(device.receiver.recv(None), Ok(Received::Message(_))));
        child.stop();
        let end = device.receiver.recv(None);
        let named = matches!(&end, Err(Error::Link(m)) if m.contains("was silent for 1s"));
        assert!(named, "{way:?}: {end:?}");
    }
}

#[test]
fn a_peer_that_is_stopped_is_given_up_by_a_sender_that_nobody_receives_beside() {
    for way in OUTSIDE {
        let (child, mut device) = child(way, "sends_one_and_waits", &short());
        assert!(matches!(device.receiver.recv(None), Ok(Received::Message(_))));
        child.stop();
        // Fills whatever lies between the two, and then waits.
        let lane_tails = vec![7; 1 << 16];
        let message = siftfs_wire::FromService::Reclaimed {
            seq: siftfs_base::TxnSeq(1),
            journal_tail: 1,
            lane_tails,
        };
        let error = loop {
            if let Err(e) = device.sender.send(message.clone()) {
                break e;
            }
        };
        assert!(matches!(&error, Error::Link(m) if m.contains("was silent")), "{way:?}: {error}");
    }
}

#[test]
fn two_sides_that_only_send_do_not_wait_for_each_other_for_ever() {
    for way in OUTSIDE {
        let options = TransportOptions { queue: 2, ..short() };
        let (child, device) = child(way, "sends_without_end", &options);
        let lane_tails = vec![7; 1 << 16];
        let message = siftfs_wire::FromService::Reclaimed {
            seq: siftfs_base::TxnSeq(1),
            journal_tail: 1,
            lane_tails,
        };
        let error = loop {
            if let Err(e) = device.sender.send(message.clone()) {
                break e;
            }
        };
        assert!(matches!(error, Error::Link(_)), "{way:?}: {error}");
        drop(child);
    }
}
