//! A device process hears of its host's small fsyncs (`docs/design/block-protocol.md`, "Hints"),
//! and of each question.

#[path = "support/calls.rs"]
mod calls;

use calls::*;
use serde_json::Value;
use siftfs_base::{Error, ManualClock, Result, TxnSeq};
use siftfs_device::{Device, FaultDevice, SharedDevice};
use siftfs_placement::{
    Connector, DeviceEnd, HostEnd, LocalVolume, Media, MkfsOptions, OpenOptions, Server,
    ServerOptions, ServicePlace, Threads, mkfs_on,
};
use siftfs_proto::*;
use siftfs_transport::{Received, TransportOptions, in_process};
use siftfs_wire::{BlockProtocol, FromService, PROTOCOL_VERSION, ToService};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const SMALL: usize = 4096;
const BULK: usize = 128 << 10;
const MS: u64 = 1_000_000;

/// What runs at the device's end of each connection; `None`: no process can be reached.
type Serve = Box<dyn Fn(DeviceEnd) + Send + Sync>;

struct Road {
    serve: Option<Arc<Serve>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Road {
    fn join(&self) {
        self.threads.lock().unwrap().drain(..).for_each(|t| t.join().unwrap());
    }
}

impl Connector for Road {
    fn connect(&self) -> Result<HostEnd> {
        let serve = self.serve.clone().ok_or_else(|| Error::Refused("nobody is there".into()))?;
        let (host, device) =
            in_process::<BlockProtocol>(TransportOptions { queue: QUEUE, ..Default::default() });
        self.threads.lock().unwrap().push(std::thread::spawn(move || serve(device)));
        Ok(host)
    }
    fn address(&self) -> String {
        "the device process".into()
    }
}

const QUEUE: usize = 8;

/// A volume whose medium says what it was told, and its host.
struct Rig {
    device: Arc<FaultDevice>,
    shared: SharedDevice,
    clock: Arc<ManualClock>,
}

impl Rig {
    fn new() -> Self {
        let device = Arc::new(FaultDevice::new(24 << 20, 1));
        let any: Arc<dyn Device> = device.clone();
        let opts = MkfsOptions { log_size: Some(6 << 20), lanes: 1, ..MkfsOptions::default() };
        mkfs_on(any.clone(), &opts).expect("mkfs");
        let shared = SharedDevice::new(device.clone());
        Self { device, shared, clock: Arc::new(ManualClock::new(1_700_000_000)) }
    }

    fn server(&self) -> Serve {
        let shared = self.shared.clone();
        let open = move || Ok(Media::from(shared.open()));
        let options = ServerOptions { patience: Duration::from_secs(20), ..Default::default() };
        let server = Server::new(Box::new(open), options);
        Box::new(move |end| server.session(end))
    }

    /// The host's volume, and the way on which it reaches its device process.
    fn open(&self, serve: Option<Serve>, fallback: Option<Duration>) -> (LocalVolume, Arc<Road>) {
        let road = Arc::new(Road { serve: serve.map(Arc::new), threads: Mutex::default() });
        let connector: Arc<dyn Connector> = road.clone();
        let service = Some(ServicePlace { connector, fallback });
        (self.with(OpenOptions { service, ..OpenOptions::default() }), road)
    }

    fn with(&self, options: OpenOptions) -> LocalVolume {
        LocalVolume::open_on(self.shared.open(), self.clock.clone(), &options, Threads::None)
            .expect("open")
    }

    fn expected(&self) -> Option<Duration> {
        self.device.stats().expected
    }
}

fn until(v: &LocalVolume, what: &str) {
    while status(v)["link"][what] != true {
        std::thread::yield_now();
    }
}

/// Hints sent, and received.
fn hints(v: &LocalVolume) -> (u64, u64) {
    let s = status(v);
    let at = |path| s.pointer(path).and_then(Value::as_u64).expect("a count");
    (at("/link/hints"), at("/service/device/hints"))
}

#[test]
fn a_device_process_hears_of_small_fsyncs_once_per_interval() {
    let rig = Rig::new();
    let (v, road) = rig.open(Some(rig.server()), None);
    until(&v, "connected");
    let ino = create(&v, "f");
    write_synced(&v, ino, BULK);
    assert_eq!((hints(&v), rig.expected()), ((0, 0), None), "that one is bulk itself");
    for round in 1..4 {
        for _ in 0..10 {
            write_synced(&v, ino, SMALL);
        }
        assert_eq!(hints(&v), (round, round));
        assert_eq!(rig.expected(), Some(Duration::from_millis(100)));
        rig.clock.advance(19 * MS);
        write_synced(&v, ino, SMALL);
        assert_eq!(hints(&v), (round, round), "19 ms after the last one");
        rig.clock.advance(MS);
    }
    v.close().unwrap();
    road.join();
}

#[test]
fn a_service_in_the_host_needs_no_hints() {
    let rig = Rig::new();
    let v = rig.with(OpenOptions::default());
    let ino = create(&v, "f");
    write_synced(&v, ino, SMALL);
    assert!(status(&v)["link"]["hints"].is_null());
    v.close().unwrap();
    // Nor one that does a device process's work meanwhile.
    let (v, road) = rig.open(None, Some(Duration::ZERO));
    let ino = match call(&v, Request::Lookup { parent: ROOT_INO, name: "f".into() }) {
        Reply::Entry(attr) => attr.ino,
        other => panic!("{other:?}"),
    };
    until(&v, "fallback");
    for _ in 0..3 {
        write_synced(&v, ino, SMALL);
        rig.clock.advance(20 * MS);
    }
    assert_eq!(hints(&v), (0, 0));
    // What an emergency takes back was never said.
    assert!(rig.expected().is_none_or(|time| time.is_zero()));
    v.close().unwrap();
    road.join();
}

/// A question that is asked as soon as the one before is answered has an answer of its own.
#[test]
fn questions_in_a_row_are_all_answered() {
    let rig = Rig::new();
    let (v, road) = rig.open(Some(rig.server()), None);
    until(&v, "connected");
    let messages = |v: &LocalVolume| status(v)["link"]["messages"].as_u64().expect("a count");
    let before = messages(&v);
    for _ in 0..2000 {
        status(&v);
    }
    assert!(messages(&v) - before >= 2000, "each one reached the device process");
    v.close().unwrap();
    road.join();
}

/// A device process that answers questions until it is told to take nothing any more, and then
/// counts the hints that were on their way to it.
fn deaf(mut end: DeviceEnd, steps: &Receiver<()>, tell: &Sender<usize>) {
    // The host may come again when the first connection is over, and be gone before it is heard.
    let Ok(Received::Message(ToService::Hello { .. })) = end.receiver.recv(None) else { return };
    let (journaled, checkpointed) = (TxnSeq(0), TxnSeq(0));
    let welcome = FromService::Welcome { version: PROTOCOL_VERSION, journaled, checkpointed };
    let tails = FromService::Reclaimed { seq: TxnSeq(0), journal_tail: 0, lane_tails: vec![0] };
    let greeting = [welcome, tails];
    if greeting.into_iter().any(|m| end.sender.send(m).is_err()) {
        return;
    }
    while steps.try_recv().is_err() {
        match end.receiver.recv(Some(Duration::from_millis(1))) {
            Ok(Received::Message(ToService::Statistics)) => {
                let answer = FromService::Statistics(Box::default());
                if end.sender.send(answer).is_err() {
                    return;
                }
            }
            Ok(Received::Closed) | Err(_) => return,
            Ok(_) => {}
        }
    }
    tell.send(0).expect("a test");
    steps.recv().expect("a test");
    let left = std::iter::from_fn(|| match end.receiver.recv(Some(Duration::ZERO)) {
        Ok(Received::Message(message)) => Some(message),
        _ => None,
    });
    let hints = left.filter(|m| matches!(m, ToService::ExpectUrgent { .. })).count();
    tell.send(hints).expect("a test");
}

/// fsyncs go on while a device process takes no messages, and hints that do not leave are dropped.
#[test]
fn no_fsync_waits_for_a_hint() {
    let rig = Rig::new();
    let (step, steps) = channel();
    let (tell, heard) = channel();
    let steps = Mutex::new(steps);
    let serve = Box::new(move |end| deaf(end, &steps.lock().unwrap(), &tell));
    let (v, road) = rig.open(Some(serve), None);
    until(&v, "connected");
    let ino = create(&v, "f");
    step.send(()).unwrap();
    assert_eq!(heard.recv(), Ok(0));
    for _ in 0..3 * QUEUE {
        write_synced(&v, ino, SMALL);
        rig.clock.advance(20 * MS);
    }
    step.send(()).unwrap();
    assert_eq!(heard.recv(), Ok(QUEUE), "as many as are on their way");
    v.abandon();
    road.join();
}
