//! A host and a device process that lie to each other: refused with one message on both sides,
//! counted, nothing written, and the volume goes on.

use siftfs_base::{Epoch, ManualClock, Result, TxnSeq};
use siftfs_device::{MemDevice, SharedDevice};
use siftfs_log::Transaction;
use siftfs_placement::{
    Connector, HostEnd, LocalVolume, Media, OpenOptions, Server, ServerOptions, ServicePlace,
    Threads,
};
use siftfs_proto::*;
use siftfs_transport::{Received, Sender, TransportOptions, in_process};
use siftfs_volume::read_headers;
use siftfs_wire::{BlockProtocol, FromService, PROTOCOL_VERSION, ToService, Urgency};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

mod support;
use support::World;

type Lie = fn(FromService) -> FromService;

/// A device process on shared storage, whose answers may be changed.
struct Town {
    shared: SharedDevice,
    server: Arc<Server>,
    lie: Lie,
    /// One lie is to be told.
    lying: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Changes answers on their way, once.
struct Liar {
    inner: Arc<dyn Sender<FromService>>,
    lie: Lie,
    lying: Arc<AtomicBool>,
}

impl Sender<FromService> for Liar {
    fn send(&self, message: FromService) -> Result<()> {
        let told = (self.lie)(message.clone());
        let changed = format!("{told:?}") != format!("{message:?}");
        let lie = changed && self.lying.swap(false, Ordering::SeqCst);
        self.inner.send(if lie { told } else { message })
    }
    fn try_send(&self, message: FromService) -> bool {
        self.inner.try_send(message)
    }
    fn close(&self) {
        self.inner.close();
    }
}

impl Town {
    fn new(dev: &Arc<MemDevice>, lie: Lie) -> Arc<Self> {
        let shared = SharedDevice::new(dev.clone());
        let opener = shared.clone();
        let open = move || Ok(Media::from(opener.open()));
        let options = ServerOptions { patience: Duration::from_secs(20), ..Default::default() };
        let server = Arc::new(Server::new(Box::new(open), options));
        let (lying, threads) = (Arc::default(), Mutex::default());
        Arc::new(Self { shared, server, lie, lying, threads })
    }

    fn host(self: &Arc<Self>) -> LocalVolume {
        self.try_host().expect("open")
    }

    fn try_host(self: &Arc<Self>) -> Result<LocalVolume> {
        let connector: Arc<dyn Connector> = Arc::new(Road(self.clone()));
        let service = Some(ServicePlace { connector, fallback: None });
        let opts = OpenOptions { service, ..OpenOptions::default() };
        let clock = Arc::new(ManualClock::new(1_700_000_000));
        LocalVolume::open_on(self.shared.open(), clock, &opts, Threads::None)
    }

    fn join(&self) {
        for thread in self.threads.lock().unwrap().drain(..) {
            thread.join().unwrap();
        }
    }
}

struct Road(Arc<Town>);

impl Connector for Road {
    fn connect(&self) -> Result<HostEnd> {
        let (host, mut device) = in_process::<BlockProtocol>(TransportOptions::default());
        let town = &self.0;
        let inner = device.sender;
        device.sender = Arc::new(Liar { inner, lie: town.lie, lying: town.lying.clone() });
        let server = town.server.clone();
        town.threads.lock().unwrap().push(std::thread::spawn(move || server.session(device)));
        Ok(host)
    }
    fn address(&self) -> String {
        "the device process".into()
    }
}

fn call(v: &LocalVolume, req: Request) -> Reply {
    v.endpoint().call(&Credentials::default(), req).expect("a call")
}

fn file(v: &LocalVolume, name: &str) {
    let new = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
    let Reply::Created { attr, handle } = call(v, new) else { panic!("not created") };
    let (ino, data) = (attr.ino, vec![7; 9000]);
    call(v, Request::write(ino, 0, data));
    call(v, Request::Fsync { file: ino.into(), datasync: false });
    call(v, Request::Release { handle });
    call(v, Request::Forget { ino, count: 1 });
}

fn status(v: &LocalVolume) -> serde_json::Value {
    match call(v, Request::Status) {
        Reply::Status(status) => serde_json::to_value(status).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn caught(lie: Lie) {
    let world = World::new(1);
    let town = Town::new(&world.dev, lie);
    let v = town.host();
    file(&v, "a");
    v.commit(true).unwrap();
    town.lying.store(true, Ordering::SeqCst);
    file(&v, "b");
    v.commit(true).unwrap();
    v.checkpoint().unwrap();
    assert!(!town.lying.load(Ordering::SeqCst), "it lied");
    let status = status(&v);
    assert_eq!(status["link"]["objections"], 1, "{}", status["link"]);
    assert_eq!(status["service"]["device"]["refusals"], 1);
    assert_eq!(status["service"]["device"]["hosts"], 2);
    assert!(status["failed"].is_null());
    file(&v, "c");
    v.close().expect("close");
    town.join();
    world.e2fsck();
}

#[test]
fn too_many_credits() {
    caught(|m| match m {
        FromService::Reclaimed { seq, journal_tail, lane_tails } => {
            let lane_tails = lane_tails.iter().map(|t| t + 4096).collect();
            FromService::Reclaimed { seq, journal_tail, lane_tails }
        }
        m => m,
    });
}

#[test]
fn a_transaction_that_was_not_sent() {
    caught(|m| match m {
        FromService::Journaled { seq, bytes, image_pos } => {
            FromService::Journaled { seq: TxnSeq(seq.0 + 1), bytes, image_pos }
        }
        m => m,
    });
}

#[test]
fn a_record_outside_the_journal() {
    caught(|m| match m {
        FromService::Journaled { seq, bytes, image_pos } => {
            FromService::Journaled { seq, bytes, image_pos: image_pos + 1 }
        }
        m => m,
    });
}

#[test]
fn credits_for_what_was_never_sent() {
    caught(|m| match m {
        FromService::Reclaimed { seq, journal_tail, lane_tails } => {
            FromService::Reclaimed { seq: TxnSeq(seq.0 + 9), journal_tail, lane_tails }
        }
        m => m,
    });
}

#[test]
fn a_checkpoint_that_nobody_asked_for() {
    caught(|m| match m {
        FromService::CheckpointDone { id, urgency, report } => {
            FromService::CheckpointDone { id: id + 100, urgency, report }
        }
        m => m,
    });
}

/// A device process of another version is not believed, whatever it agreed to before.
#[test]
fn a_welcome_of_another_version() {
    let world = World::new(1);
    let town = Town::new(&world.dev, |m| match m {
        FromService::Welcome { journaled, checkpointed, .. } => {
            FromService::Welcome { version: PROTOCOL_VERSION + 1, journaled, checkpointed }
        }
        m => m,
    });
    town.lying.store(true, Ordering::SeqCst);
    let error = town.try_host().map(drop).unwrap_err().to_string();
    let both = format!(
        "speaks version {} of the block protocol, this host version {}",
        PROTOCOL_VERSION + 1,
        PROTOCOL_VERSION
    );
    assert!(error.contains(&both), "{error}");
    town.join();
    // The mount was taken back.
    world.e2fsck();
    let v = town.host();
    v.checkpoint().unwrap();
    assert_eq!(status(&v)["service"]["device"]["refusals"], 1, "the objection was heard");
    v.close().unwrap();
    town.join();
}

/// A question is answered and nothing is locked for it, whichever host has the volume.
#[test]
fn an_inquiry_says_whether_a_hello_would_be_heard() {
    let world = World::new(1);
    let town = Town::new(&world.dev, |m| m);
    let v = town.host();
    let volume = read_headers(&*world.dev).unwrap().header.volume;
    let before = world.dev.snapshot();
    let ask = |version, volume| {
        let mut end = Road(town.clone()).connect().unwrap();
        end.sender.send(ToService::Inquire { version, volume }).unwrap();
        answer(&mut end)
    };
    assert_eq!(ask(PROTOCOL_VERSION, volume), FromService::Bye);
    for (version, volume, part) in [
        (PROTOCOL_VERSION, [9; 16], "serves the volume"),
        (PROTOCOL_VERSION - 1, volume, "version"),
    ] {
        match ask(version, volume) {
            FromService::Refused { reason } => assert!(reason.contains(part), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(world.dev.snapshot() == before, "something was written");
    file(&v, "a");
    v.checkpoint().unwrap();
    assert_eq!(status(&v)["service"]["device"]["refusals"], 2);
    v.close().unwrap();
    town.join();
    world.e2fsck();
}

fn answer(end: &mut HostEnd) -> FromService {
    match end.receiver.recv(Some(Duration::from_secs(30))).unwrap() {
        Received::Message(m) => m,
        other => panic!("{other:?}"),
    }
}

/// A volume whose host has died, and what a Hello of it says.
fn orphaned(world: &World, town: &Arc<Town>) -> ([u8; 16], Epoch) {
    let v = town.host();
    file(&v, "a");
    v.commit(true).unwrap();
    v.abandon();
    town.join();
    let view = read_headers(&*world.dev).unwrap();
    (view.header.volume, view.host.key.epoch)
}

#[test]
fn strangers_are_not_greeted_and_nothing_is_written() {
    let world = World::new(1);
    let town = Town::new(&world.dev, |m| m);
    let (volume, epoch) = orphaned(&world, &town);
    let before = world.dev.snapshot();
    let hello = |version, volume, epoch| ToService::Hello { version, volume, epoch };
    for (hello, part) in [
        (hello(PROTOCOL_VERSION + 1, volume, epoch), "version"),
        (hello(PROTOCOL_VERSION, [9; 16], epoch), "serves the volume"),
        (hello(PROTOCOL_VERSION, volume, Epoch(epoch.0 - 1)), "another host"),
        (hello(PROTOCOL_VERSION, volume, Epoch(epoch.0 + 1)), "another host"),
        (ToService::Statistics, "no Hello"),
    ] {
        let mut end = Road(town.clone()).connect().unwrap();
        end.sender.send(hello).unwrap();
        match answer(&mut end) {
            FromService::Refused { reason } => assert!(reason.contains(part), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    town.join();
    assert!(world.dev.snapshot() == before, "something was written");
    // And without a device process it is a volume like any other.
    world.open().close().unwrap();
    world.e2fsck();
}

#[test]
fn garbage_of_a_host_is_refused_and_not_written() {
    let world = World::new(1);
    let town = Town::new(&world.dev, |m| m);
    let (volume, epoch) = orphaned(&world, &town);
    let blocks = world.dev.snapshot().size() / 4096;
    let block = || siftfs_base::SharedBlock::from([1u8; 4096]);
    for which in 0..5 {
        let mut end = Road(town.clone()).connect().unwrap();
        end.sender.send(ToService::Hello { version: PROTOCOL_VERSION, volume, epoch }).unwrap();
        let mut next = match answer(&mut end) {
            FromService::Welcome { journaled, .. } => TxnSeq(journaled.0 + 1),
            other => panic!("{other:?}"),
        };
        while !matches!(answer(&mut end), FromService::Reclaimed { .. }) {}
        let before = world.dev.snapshot();
        let mut txn = Transaction { seq: next, lane_upto: vec![0], ..Transaction::default() };
        match which {
            // Nothing but a lane position of long ago.
            0 => {}
            1 => txn.lane_upto = vec![u64::MAX],
            2 => {
                (txn.images, txn.image_data) = (vec![blocks], vec![block()]);
            }
            3 => txn.lane_upto = vec![0; 40],
            _ => {
                next = TxnSeq(next.0 + 7);
                txn.seq = next;
            }
        }
        end.sender.send(ToService::Submit { txn: Box::new(txn), waited: false }).unwrap();
        match answer(&mut end) {
            FromService::Failed { error } => {
                assert!(error.to_string().contains("transaction"), "{which}: {error}");
            }
            other => panic!("{which}: {other:?}"),
        }
        town.join();
        assert!(world.dev.snapshot() == before, "{which}: something was written");
    }
    let urgency = Urgency::Background;
    let mut end = Road(town.clone()).connect().unwrap();
    end.sender.send(ToService::Checkpoint { id: 1, upto: TxnSeq(1), urgency }).unwrap();
    assert!(matches!(answer(&mut end), FromService::Refused { .. }));
    town.join();
    town.host().close().unwrap();
    town.join();
    world.e2fsck();
}
