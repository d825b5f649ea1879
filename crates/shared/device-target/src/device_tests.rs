//! Against a target that a test plays, call by call: what goes over the wire, and what becomes of
//! answers that nobody asked for.

use super::*;
use crate::{Target, TargetPlace};
use siftfs_transport::{Address, Listener, Received, ServerEnd, TransportOptions};
use siftfs_wire::{BlockProtocol, FromService, ToService};
use std::thread::{self, JoinHandle};

const SIZE: u64 = 1 << 20;

/// A target that a test plays.
struct Stage {
    listener: Listener<BlockProtocol>,
    _dir: tempfile::TempDir,
}

/// The played target's end of one connection.
struct Played(ServerEnd<BlockProtocol>);

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Unix(dir.path().join("s"));
        let listener = Listener::bind(&address, &TransportOptions::default()).unwrap();
        Self { listener, _dir: dir }
    }

    fn place(&self) -> TargetPlace {
        let (address, options) = (self.listener.address(), TransportOptions::default());
        TargetPlace { address, volume: "v".into(), options, secured: None }
    }

    fn accept(&self) -> Played {
        let end = self.listener.accept(Some(Duration::from_secs(20))).unwrap();
        Played(end.expect("a host comes"))
    }

    /// An open storage of one device, and the target's end of its connection.
    fn open(&self) -> (Arc<Target>, Arc<dyn Device>, Played) {
        self.open_at(self.place())
    }

    fn open_at(&self, place: TargetPlace) -> (Arc<Target>, Arc<dyn Device>, Played) {
        let opening = thread::spawn(move || Target::open(place, true));
        let mut played = self.accept();
        played.opens();
        let target = opening.join().unwrap().unwrap();
        let asking = thread::spawn({
            let target = target.clone();
            move || target.devices().area
        });
        let (id, call) = played.next();
        assert_eq!(call, StorageCall::Describe { device: 0 });
        let info = DeviceInfo { kind: "disk".into(), ..DeviceInfo::default() };
        played.answer(id, StorageAnswer::Described { info });
        (target, asking.join().unwrap(), played)
    }
}

fn part(size: u64) -> StorageDevice {
    StorageDevice { size, medium: Medium::Block, discards: None }
}

fn opened(devices: Vec<StorageDevice>) -> StorageAnswer {
    StorageAnswer::Opened { log: false, record_area: false, devices }
}

impl Played {
    fn next(&mut self) -> (u64, StorageCall) {
        match self.0.receiver.recv(Some(Duration::from_secs(20))) {
            Ok(Received::Message(ToService::Storage { id, call })) => (id, call),
            other => panic!("{other:?}"),
        }
    }

    fn answer(&self, id: u64, answer: StorageAnswer) {
        self.0.sender.send(FromService::Storage { id, answer }).unwrap();
    }

    fn opens(&mut self) {
        let (id, call) = self.next();
        assert!(matches!(call, StorageCall::Open { .. }), "{call:?}");
        self.answer(id, opened(vec![part(SIZE)]));
    }

    /// Answers the next call as done, and gives it.
    fn does(&mut self) -> StorageCall {
        let (id, call) = self.next();
        self.answer(id, StorageAnswer::Done);
        call
    }

    fn is_quiet(&mut self) -> bool {
        matches!(self.0.receiver.recv(Some(Duration::from_millis(50))), Ok(Received::Timeout))
    }
}

fn beside<T: Send + 'static>(
    device: &Arc<dyn Device>,
    call: impl FnOnce(&dyn Device) -> T + Send + 'static,
) -> JoinHandle<T> {
    let device = device.clone();
    thread::spawn(move || call(&*device))
}

/// A durable write is one message there and one back, and so is a flush.
#[test]
fn a_durable_write_is_one_round_trip() {
    let stage = Stage::new();
    let (_target, device, mut played) = stage.open();
    let writing = beside(&device, |device| device.write(5, &[7; 5000], true));
    let (id, call) = played.next();
    let StorageCall::Write { device: 0, offset: 5, len: 5000, durable: true, blocks } = call else {
        panic!("{call:?}")
    };
    assert_eq!((blocks.len(), blocks[0][0], blocks[1][903], blocks[1][904]), (2, 7, 7, 0));
    played.answer(id, StorageAnswer::Done);
    writing.join().unwrap().unwrap();
    let flushing = beside(&device, |device| device.flush());
    assert_eq!(played.does(), StorageCall::Flush { device: 0 });
    flushing.join().unwrap().unwrap();
    assert!(played.is_quiet());
}

/// The pieces of a batch are all under way before one of them is answered, and answers may come in
/// any order.
#[test]
fn a_batch_is_one_wait() {
    let stage = Stage::new();
    let (_target, device, mut played) = stage.open();
    let reading = beside(&device, |device| {
        let mut bytes = vec![0; 3 * PIECE];
        device.read(0, &mut bytes).map(|()| bytes)
    });
    let mut calls: Vec<_> = (0..3).map(|_| played.next()).collect();
    calls.reverse();
    for (id, call) in calls {
        let StorageCall::Read { offset, len, .. } = call else { panic!("{call:?}") };
        let block = SharedBlock::from([(offset / PIECE as u64) as u8 + 1; BLOCK_SIZE]);
        let blocks = vec![block; (len as usize).div_ceil(BLOCK_SIZE)];
        played.answer(id, StorageAnswer::Data { blocks });
    }
    let bytes = reading.join().unwrap().unwrap();
    let wanted: Vec<u8> = [1, 2, 3].into_iter().flat_map(|n| vec![n; PIECE]).collect();
    assert!(bytes == wanted);
}

/// Several callers share the connection: each gets its own answer.
#[test]
fn each_caller_gets_its_own_answer() {
    let stage = Stage::new();
    let (_target, device, mut played) = stage.open();
    let callers: Vec<_> = (0..8u64)
        .map(|n| {
            beside(&device, move |device| {
                let mut bytes = [0; 16];
                device.read(n * 512, &mut bytes).map(|()| (n, bytes))
            })
        })
        .collect();
    for _ in 0..8 {
        let (id, call) = played.next();
        let StorageCall::Read { offset, .. } = call else { panic!("{call:?}") };
        let blocks = vec![SharedBlock::from([(offset / 512) as u8; BLOCK_SIZE])];
        played.answer(id, StorageAnswer::Data { blocks });
    }
    for caller in callers {
        let (n, bytes) = caller.join().unwrap().unwrap();
        assert_eq!(bytes, [n as u8; 16]);
    }
}

/// Answers that do not answer the call: the storage is given up, and nothing panics.
#[test]
fn answers_that_nobody_asked_for() {
    type Lie = fn(&Played, u64);
    let lies: [Lie; 7] = [
        |p, id| p.answer(id + 1, StorageAnswer::Done),
        |p, id| p.answer(id, StorageAnswer::Data { blocks: vec![] }),
        |p, id| p.answer(id, StorageAnswer::Data { blocks: vec![SharedBlock::zeroed(); 3] }),
        |p, id| p.answer(id, StorageAnswer::Done),
        |p, id| p.answer(id, opened(vec![])),
        |p, id| p.answer(id, StorageAnswer::Described { info: DeviceInfo::default() }),
        |p, _| p.0.sender.send(FromService::Bye).unwrap(),
    ];
    for lie in lies {
        let stage = Stage::new();
        let (_target, device, mut played) = stage.open();
        let reading = beside(&device, |device| device.read(0, &mut [0; 4097]));
        let (id, _) = played.next();
        lie(&played, id);
        let error = reading.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Link(_)), "{error}");
        assert!(matches!(device.write(0, &[1], true), Err(Error::Link(_))), "it goes on");
    }
}

#[test]
fn storage_that_opens_as_something_else() {
    let odd: [StorageAnswer; 4] = [
        opened(vec![]),
        opened(vec![part(SIZE); 2]),
        StorageAnswer::Opened { log: true, record_area: true, devices: vec![part(SIZE)] },
        StorageAnswer::Done,
    ];
    for answer in odd {
        let stage = Stage::new();
        let place = stage.place();
        let opening = thread::spawn(move || Target::open(place, true).map(drop));
        let mut played = stage.accept();
        let (id, _) = played.next();
        played.answer(id, answer);
        assert!(matches!(opening.join().unwrap(), Err(Error::Link(_))));
    }
}

/// What the target refuses is the caller's answer, and the storage goes on.
#[test]
fn what_is_refused_is_said() {
    let stage = Stage::new();
    let (_target, device, mut played) = stage.open();
    let writing = beside(&device, |device| device.write(0, &[1; 10], false));
    let (id, _) = played.next();
    let error = Error::Io { op: "write", offset: 0, len: 10, errno: 28 };
    played.answer(id, StorageAnswer::Failed { error: error.clone() });
    assert_eq!(writing.join().unwrap(), Err(error));
    let flushing = beside(&device, |device| device.flush());
    played.does();
    flushing.join().unwrap().unwrap();
}

/// The steps behind a lost connection, and their order: the header is seen, the roles are taken, it
/// is seen again, what was not flushed is written, and then the call goes on that found out.
#[test]
fn a_lost_connection_is_made_again() {
    let stage = Stage::new();
    let (target, device, mut played) = stage.open();
    target.keep(Box::new(|opened| opened.area.read(0, &mut [0; 8])));
    let writing = beside(&device, |device| {
        device.write(0, &[1; 100], false)?;
        device.write(4096, &[2; 100], true)?;
        device.write(50, &[3; 100], true)
    });
    (0..3).for_each(|_| drop(played.does()));
    writing.join().unwrap().unwrap();
    let flushing = beside(&device, |device| device.flush());
    assert!(matches!(played.next().1, StorageCall::Flush { .. }));
    assert_eq!(device.describe().kind, "disk at a target");
    drop(played);
    let mut played = stage.accept();
    // A report waits for nobody.
    assert!(device.describe().kind.ends_with("which is LOST: waiting for it"));
    let (id, call) = played.next();
    assert!(matches!(call, StorageCall::Open { access: siftfs_wire::Access::Shared, .. }));
    played.answer(id, opened(vec![part(SIZE)]));
    let looks = |played: &mut Played| {
        let (id, call) = played.next();
        assert_eq!(call, StorageCall::Read { device: 0, offset: 0, len: 8 });
        played.answer(id, StorageAnswer::Data { blocks: vec![SharedBlock::zeroed()] });
    };
    looks(&mut played);
    for role in Role::ALL {
        let call = played.does();
        assert!(matches!(call, StorageCall::Claim { role: claimed, .. } if claimed == role));
    }
    looks(&mut played);
    for (place, byte) in [(0, 1), (50, 3)] {
        match played.does() {
            StorageCall::Write { offset, durable: false, blocks, .. } => {
                assert_eq!((offset, blocks[0][0]), (place, byte));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(played.does(), StorageCall::Flush { device: 0 });
    flushing.join().unwrap().unwrap();
    // All of it is durable: another loss has nothing to write again.
    let flushing = beside(&device, |device| device.flush());
    played.next();
    drop(played);
    let mut played = stage.accept();
    played.opens();
    looks(&mut played);
    (0..2).for_each(|_| assert!(matches!(played.does(), StorageCall::Claim { .. })));
    looks(&mut played);
    assert_eq!(played.does(), StorageCall::Flush { device: 0 });
    flushing.join().unwrap().unwrap();
}

/// A lost storage, and a flush that has found out: its host has connected again, and waits for the
/// answer to its first call.
struct Found {
    target: Arc<Target>,
    device: Arc<dyn Device>,
    flushing: JoinHandle<Result<()>>,
    played: Played,
    /// The first call's number.
    id: u64,
}

impl Found {
    fn at(stage: &Stage) -> Self {
        let (target, device, played) = stage.open();
        target.keep(Box::new(|_| Ok(())));
        drop(played);
        let flushing = beside(&device, |device| device.flush());
        let mut played = stage.accept();
        let (id, _) = played.next();
        Self { target, device, flushing, played, id }
    }
}

/// A host that closes its storage while that is lost waits for nothing.
#[test]
fn what_is_closed_is_not_waited_for() {
    let stage = Stage::new();
    let Found { target, device, flushing, mut played, id } = Found::at(&stage);
    target.close();
    played.answer(id, opened(vec![part(SIZE)]));
    (0..2).for_each(|_| assert!(matches!(played.does(), StorageCall::Claim { .. })));
    let error = flushing.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("it was closed"), "{error}");
    assert!(device.read(0, &mut [0]).is_err());
}

/// Another storage in the place of the lost one is not this host's.
#[test]
fn other_storage_is_given_up() {
    let stage = Stage::new();
    let Found { device, flushing, played, id, .. } = Found::at(&stage);
    played.answer(id, opened(vec![part(SIZE / 2)]));
    let error = flushing.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("others than before"), "{error}");
    assert!(device.read(0, &mut [0]).is_err());
}

/// All threads send, and the target takes nothing before its answers are taken: it goes on, because
/// the connection keeps the answers that nobody receives.
#[test]
fn threads_that_all_send_do_not_wait_for_ever() {
    let stage = Stage::new();
    // Without shared memory: data goes where the words do.
    let options = TransportOptions { shared_memory: 0, ..TransportOptions::default() };
    let (target, device, played) = stage.open_at(TargetPlace { options, ..stage.place() });
    let Played(ServerEnd::<BlockProtocol> { sender, mut receiver, .. }) = played;
    // A target of one thread: it answers before it takes the next call.
    let playing = thread::spawn(move || {
        while let Ok(Received::Message(ToService::Storage { id, call })) = receiver.recv(None) {
            let answer = match call {
                StorageCall::Read { len, .. } => {
                    let blocks = vec![SharedBlock::zeroed(); (len as usize).div_ceil(BLOCK_SIZE)];
                    StorageAnswer::Data { blocks }
                }
                StorageCall::Describe { .. } => {
                    StorageAnswer::Described { info: DeviceInfo::default() }
                }
                _ => StorageAnswer::Done,
            };
            if sender.send(FromService::Storage { id, answer }).is_err() {
                return;
            }
        }
    });
    // Sixteen long answers, and as much to send before one of them is received.
    let read = StorageCall::Read { device: 0, offset: 0, len: PIECE as u32 };
    let blocks = vec![SharedBlock::zeroed(); STORAGE_MAX_BLOCKS];
    let (len, durable) = (PIECE as u32, false);
    let write = StorageCall::Write { device: 0, offset: 0, len, durable, blocks };
    let answers = target.calls(&[vec![read; WINDOW], vec![write; WINDOW]].concat()).unwrap();
    assert_eq!(answers.len(), 2 * WINDOW);
    drop(device);
    target.close();
    drop(target);
    playing.join().unwrap();
}
