//! The door for programs of any user, and hostile ones that come through it: they reach what a host
//! has granted to them, and nothing else, and nobody waits for them.

use crate::support::keys::Keys;
use crate::support::{SIFTFS, Setup};
use crate::{Device, address};
use rustix::process::Signal;
use siftfs::{Direct, Volume};
use siftfs_base::{BLOCK_SIZE, Error, InodeNr, Rng, SharedBlock};

use siftfs_proto::compound::Access;
use siftfs_proto::{
    Credentials, Direct as Granted, FileService, Handle, Holder, LeaseId, Reply, Request,
};
use siftfs_remote::{Client, claim_at};
use siftfs_rig::device::Device as Server;
use siftfs_rig::hostile::{NOBODY, become_user};
use siftfs_transport::{Address, CallerEnd, Received, TransportOptions, Trust, connect, reach};
use siftfs_wire::{
    BlockProtocol, FromService, GrantRun, PROTOCOL_VERSION, Place, StorageAnswer, StorageCall,
    ToService,
};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long hostile programs go on every day, and with `SIFTFS_LONG`.
const LENGTH: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];
/// What is in the canary, in each half block, and nowhere else.
const NEEDLE: &[u8] = b"only the canary says this, and root alone may read the canary";
/// Longest call of the honest.
const PATIENCE: Duration = Duration::from_secs(20);
/// Blocks of a file that a program has granted.
const BLOCKS: u64 = 16;
const BLOCK: u64 = BLOCK_SIZE as u64;

/// A target with a door for programs, and a host that every user may reach.
struct Ground {
    setup: Setup,
    target: Device,
    host: Server,
    programs: PathBuf,
}

impl Ground {
    fn new() -> Self {
        let setup = Setup::of_size("256M");
        let dir = setup.tmp.path();
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        let programs = dir.join("programs.sock");
        let target =
            Device::start(&setup, &["--programs", &format!("unix:{}", programs.display())]);
        let (listen, log) =
            (format!("unix:{}", dir.join("host.sock").display()), dir.join("host.log"));
        let place = format!("target:{}/volume", address(&setup));
        let host = Server::serve(Path::new(SIFTFS), Path::new(&place), &listen, &log, &[]).unwrap();
        let open = Permissions::from_mode(0o666);
        fs::set_permissions(dir.join("host.sock"), open).unwrap();
        let volume = Volume::connect(host.address()).unwrap();
        volume.create_dir("/pub", 0o1777).unwrap();
        volume.close().unwrap();
        Self { setup, target, host, programs }
    }

    fn end(self) {
        let Self { setup, target, host, .. } = self;
        host.end().unwrap();
        let log = target.log();
        let status = fs::read_to_string(format!("/proc/{}/status", target.child.id())).unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = memory.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kib < 512 << 10, "the target has {kib} KiB");
        assert!(!log.contains("panicked"), "{log}");
        assert!(log.lines().count() < 5000, "a log of {} lines", log.lines().count());
        assert_eq!(target.end(Signal::TERM), 0);
        setup.assert_plain_ext4();
    }
}

/// Carries work out as another user, on a thread of its own.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_user(NOBODY).expect("root may be anybody");
            work()
        });
        thread.join().unwrap()
    })
}

/// A user without any right to the target's storage has the blocks of his file there; and by that
/// door he is no host, whatever he says.
#[test]
fn programs_of_any_user() {
    let ground = Ground::new();
    as_nobody(|| {
        let direct = Direct::connect(ground.host.address(), "").unwrap();
        let file = direct.create("/pub/f", 0o600).unwrap();
        file.write_at(0, &[1; 300_000]).unwrap();
        file.sync_all().unwrap();
        crate::await_that("something is granted", || {
            file.write_durable_at(4096, &[2; 4096]).unwrap();
            file.is_direct()
        });
        assert!(file.read_at(4096, 5000).unwrap() == [vec![2; 4096], vec![1; 904]].concat());
        let hosts: Address = address(&ground.setup).parse().unwrap();
        let refused = connect::<BlockProtocol>(&hosts, &TransportOptions::default());
        assert!(refused.is_err(), "the hosts' door is the owner's");
        for access in [siftfs_wire::Access::ReadOnly, siftfs_wire::Access::Alone] {
            let open =
                StorageCall::Open { version: PROTOCOL_VERSION, volume: "volume".into(), access };
            assert!(Forger::new(&ground.programs).unwrap().ask(open).is_none(), "{access:?}");
        }
        let mut forger = Forger::new(&ground.programs).unwrap();
        let answer = forger.ask(StorageCall::Attach {
            version: PROTOCOL_VERSION,
            token: [7; 32],
            queue: 0,
            life: 1,
        });
        let Some(StorageAnswer::Failed { error: Error::Refused(why) }) = answer else {
            panic!("{answer:?}")
        };
        assert!(why.contains("nothing is granted so"), "{why}");
    });
    ground.end();
}

/// A server reaches the storage at a target with the key, and by the fingerprint, that it is told.
#[test]
fn a_server_reaches_its_target_by_the_key_that_it_is_told() {
    let (setup, dir) = (Setup::of_size("64M"), tempfile::tempdir().unwrap());
    let keys = Keys::new(dir.path(), "role=host volumes=volume");
    let admits = keys.admits();
    let admits: Vec<&str> = admits.iter().map(|word| &**word).collect();
    let target = Device::at(&setup, "tcp:127.0.0.1:0", setup.volume(), &admits);
    let place = format!("target:{}/volume", target.address);
    let listen = format!("unix:{}", dir.path().join("host.sock").display());
    let (key, known) = (keys.file("client"), keys.file("known_servers"));
    let words = ["--key", &key, "--known-servers", &known, "--fingerprint", keys.fingerprint()];
    let log = dir.path().join("host.log");
    let host = Server::serve(Path::new(SIFTFS), Path::new(&place), &listen, &log, &words).unwrap();
    let volume = Volume::connect(host.address()).unwrap();
    volume.create("/f", 0o600).unwrap().sync_all().unwrap();
    volume.close().unwrap();
    host.end().unwrap();
    assert_eq!(target.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
}

/// Over TCP any key gets in whose line names the volume, and no token is had by that; the hosts'
/// door is a host's.
#[test]
fn keys_at_the_door_for_programs() {
    let (setup, dir) = (Setup::of_size("64M"), tempfile::tempdir().unwrap());
    let keys = Keys::new(dir.path(), "role=client volumes=volume");
    let admits = keys.admits();
    let admits = admits.iter().map(|word| &**word);
    let more: Vec<&str> = ["--programs", "tcp:127.0.0.1:0"].into_iter().chain(admits).collect();
    let target = Device::at(&setup, "tcp:127.0.0.1:0", setup.volume(), &more);
    let trust = Trust {
        key: Some(keys.file("client").into()),
        known_servers: Some(keys.file("known_servers").into()),
        fingerprint: Some(keys.fingerprint().parse().unwrap()),
        ..Trust::default()
    };
    let attach = |address: &str| {
        let (address, options): (Address, _) =
            (address.parse().unwrap(), TransportOptions::default());
        let secured = trust.secure(&address, &options, None).unwrap();
        let end = reach::<BlockProtocol>(&address, &options, secured.as_ref()).unwrap();
        let call =
            StorageCall::Attach { version: PROTOCOL_VERSION, token: [7; 32], queue: 0, life: 1 };
        Forger { end, id: 0, number: 0 }.said(call)
    };
    let programs = target.programs.clone().unwrap();
    let said = attach(&programs);
    assert!(said.contains("nothing is granted so"), "{said}");
    let said = attach(&target.address);
    assert!(said.contains("is no host's"), "{said}");
    let known = fs::read_to_string(keys.file("client")).unwrap();
    keys.admit(&format!("role=client volumes=other {}\n", known.lines().next().unwrap()));
    let said = attach(&programs);
    assert!(said.contains("may not reach this volume"), "{said}");
    assert_eq!(target.end(Signal::TERM), 0);
}

/// Says what it likes to a target.
struct Forger {
    end: CallerEnd<BlockProtocol>,
    id: u64,
    /// The number of the next request of queue 0.
    number: u64,
}

impl Forger {
    fn new(door: &Path) -> Option<Self> {
        let address = Address::Unix(door.into());
        let end = connect::<BlockProtocol>(&address, &TransportOptions::default()).ok()?;
        Some(Self { end, id: 0, number: 0 })
    }

    /// What is answered, in words.
    fn said(&mut self, call: StorageCall) -> String {
        self.end.sender.send(ToService::Storage { id: 1, call }).unwrap();
        format!("{:?}", self.end.receiver.recv(Some(PATIENCE)))
    }

    /// What is answered; nothing, if the connection is over.
    fn ask(&mut self, call: StorageCall) -> Option<StorageAnswer> {
        self.id += 1;
        self.say(ToService::Storage { id: self.id, call })
    }

    /// As [`Forger::ask`], of a request of queue 0, in its order.
    fn request(&mut self, call: StorageCall) -> Option<StorageAnswer> {
        let place = Place { queue: 0, number: self.number, first: self.number };
        self.number += 1;
        self.place(place, call)
    }

    /// As [`Forger::ask`], of a request with any place.
    fn place(&mut self, place: Place, call: StorageCall) -> Option<StorageAnswer> {
        self.id += 1;
        self.say(ToService::Queued { id: self.id, place, call })
    }

    fn say(&mut self, message: ToService) -> Option<StorageAnswer> {
        self.end.sender.send(message).ok()?;
        match self.end.receiver.recv(Some(PATIENCE)) {
            Ok(Received::Message(FromService::Storage { answer, .. })) => Some(answer),
            _ => None,
        }
    }
}

/// A holder that returns nothing: what is recalled from it ends by its term.
struct Deaf;

impl Holder for Deaf {
    fn recall(&self, _lease: LeaseId) {}
}

/// What a hostile program has of its own file.
struct Own {
    session: Client,
    handle: Handle,
    /// Directory and name.
    name: (InodeNr, String),
    lease: Option<LeaseId>,
    granted: Granted,
}

fn ask(session: &Client, req: Request) -> Option<Reply> {
    session.call(&Credentials::default(), req).ok()
}

fn own(address: &str, name: &str, write: bool) -> Option<Own> {
    let address: Address = address.parse().unwrap();
    let options = TransportOptions::default();
    let connected =
        Client::connect_to_hold(&address, (&options, None), "", claim_at(&address), Arc::new(Deaf));
    let session = connected.ok()?;
    let look = Request::Lookup { parent: siftfs_proto::ROOT_INO, name: b"pub".to_vec() };
    let parent = ask(&session, look)?.attr().ok()?.ino;
    let new = Request::Create { parent, name: name.into(), perm: 0o600 };
    let (attr, handle) = ask(&session, new)?.created().ok()?;
    ask(&session, Request::write(handle, 0, vec![1; (BLOCKS * BLOCK) as usize]))?;
    ask(&session, Request::Fsync { file: handle.into(), datasync: false })?;
    let (lease, asks) = match write {
        true => {
            let leased =
                ask(&session, Request::Lease { file: handle.into(), writers: None, direct: None })?;
            let (lease, _) = leased.leased().ok()?;
            (Some(lease), Request::LeaseDirect { lease, file: handle.into(), room: 0 })
        }
        false => {
            let opened = ask(&session, Request::open(attr.ino, Access::Read))?.opened().ok()?;
            (None, Request::ReadDirect { file: opened.into() })
        }
    };
    let granted = ask(&session, asks)?.direct().ok()?;
    let name = (parent, name.to_string());
    Some(Own { session, handle, name, lease, granted })
}

/// One hostile program.
struct Hostile<'a> {
    ground: &'a Ground,
    rng: Rng,
    number: u64,
    /// Tokens that were its own.
    old: Vec<[u8; 32]>,
    /// Calls that were carried out, and what was refused.
    done: &'a AtomicU64,
    refused: &'a AtomicU64,
}

impl Hostile<'_> {
    fn attack(&mut self) {
        match self.rng.below(8) {
            0 => self.guesses(),
            1 => self.silence(),
            2 => self.noise(),
            3 => self.claims(),
            _ => self.forges(),
        }
    }

    /// Calls with any numbers, by a connection that is admitted.
    fn forges(&mut self) {
        self.number += 1;
        let (name, write) = (format!("h{}", self.number), self.rng.chance(60));
        let Some(own) = own(self.ground.host.address(), &name, write) else { return };
        let token = own.granted.token;
        let Some(mut forger) = Forger::new(&self.ground.programs) else { return };
        let version = PROTOCOL_VERSION;
        if forger.ask(StorageCall::Attach { version, token, queue: 0, life: 1 }).is_none() {
            return;
        }
        let runs = own.granted.runs.iter();
        let homes: Vec<u64> = runs.flat_map(|run| run.block..run.block + run.count).collect();
        for _ in 0..self.rng.below(60) {
            let (call, may) = self.forged(&homes, write, token);
            let what = format!("{call:?}").chars().take(100).collect::<String>();
            let answer = match self.rng.below(12) {
                0 => {
                    let (place, has_place) = self.misplaced(&forger);
                    let answer = forger.place(place, call);
                    let refused = matches!(answer, None | Some(StorageAnswer::Failed { .. }));
                    assert!(has_place || refused, "{place:?} for {what}");
                    answer
                }
                1 => forger.ask(call),
                _ => forger.request(call),
            };
            match answer {
                None => break,
                Some(StorageAnswer::Failed { .. }) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                Some(answer) => {
                    assert!(may, "{what} was carried out");
                    self.done.fetch_add(1, Ordering::Relaxed);
                    if let StorageAnswer::Data { blocks } = answer {
                        let own =
                            |b: &SharedBlock| b.iter().all(|byte| [0, 1, 0xee].contains(byte));
                        assert!(blocks.iter().all(own), "bytes of others: {what}");
                    }
                }
            }
        }
        self.leaves(own, forger);
    }

    /// A place that an honest program would not name; whether the target has such a place.
    fn misplaced(&mut self, forger: &Forger) -> (Place, bool) {
        let (any, low) = (self.rng.bits(), forger.number);
        let place = |number, first| Place { queue: 0, number, first };
        match self.rng.below(6) {
            0 => (Place { queue: 1 + any as u32 % 9, number: low, first: low }, false),
            1 => (place(low + 64 + any % 9, low), false),
            2 => (place(any | 1 << 63, any), false),
            3 => (place(low.saturating_sub(1 + any % 9), 0), low == 0),
            4 => (place(low, low + 1 + any % 9), false),
            // In no order.
            _ => (place(u64::MAX, any), true),
        }
    }

    /// In order, or not.
    fn leaves(&mut self, own: Own, mut forger: Forger) {
        let token = own.granted.token;
        match self.rng.below(4) {
            0 => drop(ask(&own.session, Request::Release { handle: own.handle })),
            1 => {
                if let Some(lease) = own.lease {
                    let _ = ask(&own.session, Request::LeaseReturn { lease });
                    // Nothing more is its own.
                    let late = forger.request(StorageCall::Flush { device: 0 });
                    assert!(!matches!(late, Some(StorageAnswer::Done)), "{late:?}");
                }
            }
            2 => drop(forger),
            _ => {
                // The newest life is the one that counts.
                let mut second = Forger::new(&self.ground.programs);
                let (version, life) = (PROTOCOL_VERSION, 1 + self.rng.bits());
                let attach = StorageCall::Attach { version, token, queue: 0, life };
                drop(second.as_mut().and_then(|second| second.ask(attach)));
            }
        }
        let (parent, name) = own.name;
        let _ = ask(&own.session, Request::Unlink { parent, name: name.into() });
        self.old.push(token);
        if self.old.len() > 32 {
            self.old.remove(0);
        }
    }

    fn forged(&mut self, homes: &[u64], write: bool, token: [u8; 32]) -> (StorageCall, bool) {
        let rng = &mut self.rng;
        let offset = match rng.below(4) {
            0 => rng.below(u64::MAX),
            1 => u64::MAX - rng.below(9000),
            2 if !homes.is_empty() => {
                homes[rng.below(homes.len() as u64) as usize] * BLOCK + rng.below(9000)
            }
            _ => rng.below(256 << 20),
        };
        let len = [0, 1, 512, 4096, 5000, 1 << 18, (1 << 18) + 1, u32::MAX][rng.below(8) as usize];
        let device = [0, 0, 0, 1, 255][rng.below(5) as usize];
        let given = (len as usize).div_ceil(BLOCK_SIZE).min(rng.below(80) as usize);
        let blocks = vec![SharedBlock::from([0xee; BLOCK_SIZE]); given];
        let mut touched = offset / BLOCK..offset.saturating_add(len.into()).div_ceil(BLOCK);
        let may = device == 0 && (len == 0 || touched.all(|block| homes.contains(&block)));
        match rng.below(13) {
            0 => (StorageCall::Discard { device, offset, len: len.into() }, false),
            12 => {
                let run = GrantRun { block: offset / BLOCK, len: 1, first: 1 << 20, fresh: false };
                (StorageCall::Extend { lease: rng.below(9), token, runs: vec![run] }, false)
            }
            1 => (
                StorageCall::Grant { lease: rng.below(9), file: 12, write: true, runs: vec![] },
                false,
            ),
            2 => (StorageCall::Revoke { lease: rng.below(9), token }, false),
            3 => (StorageCall::Settle { lease: rng.below(9), token }, false),
            4 => (StorageCall::Describe { device }, false),
            5 => (StorageCall::Flush { device }, write && device == 0),
            6..9 => (StorageCall::Read { device, offset, len }, may),
            _ => {
                let durable = rng.chance(30);
                (StorageCall::Write { device, offset, len, durable, blocks }, write && may)
            }
        }
    }

    /// Tokens that are nobody's, or that were.
    fn guesses(&mut self) {
        for _ in 0..10 {
            let Some(mut forger) = Forger::new(&self.ground.programs) else { return };
            let mut token = [0; 32];
            token.iter_mut().for_each(|byte| *byte = self.rng.bits() as u8);
            if let Some(old) = self.old.get(self.rng.below(33) as usize) {
                token = *old;
                if self.rng.chance(70) {
                    token[16 + self.rng.below(16) as usize] ^= 1 << self.rng.below(8);
                }
            }
            let version = [PROTOCOL_VERSION, 0, u32::MAX][self.rng.below(3) as usize];
            let (queue, life) = (self.rng.bits() as u32, self.rng.bits());
            let answer = forger.ask(StorageCall::Attach { version, token, queue, life });
            assert!(!matches!(answer, Some(StorageAnswer::Attached { .. })), "a guess");
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Connections that say nothing.
    fn silence(&mut self) {
        let greeted: Vec<_> = (0..40).map(|_| Forger::new(&self.ground.programs)).collect();
        let bare: Vec<_> = (0..40).map(|_| UnixStream::connect(&self.ground.programs)).collect();
        thread::sleep(Duration::from_millis(self.rng.below(1500)));
        drop((greeted, bare));
    }

    /// Bytes that are no messages.
    fn noise(&mut self) {
        let Ok(mut stream) = UnixStream::connect(&self.ground.programs) else { return };
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        let bytes: Vec<u8> = (0..self.rng.below(9000)).map(|_| self.rng.bits() as u8).collect();
        let _ = stream.write_all(&bytes);
        thread::sleep(Duration::from_millis(self.rng.below(100)));
    }

    /// To be a host, or a Runtime.
    fn claims(&mut self) {
        let Some(mut forger) = Forger::new(&self.ground.programs) else { return };
        use siftfs_wire::Access::{Alone, ReadOnly, Shared};
        let access = [Alone, ReadOnly, Shared][self.rng.below(3) as usize];
        let (version, volume) = (PROTOCOL_VERSION, "volume".to_string());
        let answer = forger.ask(StorageCall::Open { version, volume, access });
        assert!(answer.is_none(), "it is no host: {answer:?}");
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Direct files of an honest program: each block holds what was written last. How long the longest
/// call took.
fn honest(address: &str, over: &AtomicBool) -> (u64, Duration) {
    let direct = Direct::connect(address, "").unwrap();
    let file = direct.create("/honest", 0o600).unwrap();
    file.write_at(0, &[0; 64 << 12]).unwrap();
    file.sync_all().unwrap();
    let reads = direct.open_to_read("/canary/c").unwrap();
    let (mut rng, mut model, mut longest, mut calls) = (Rng::new(77), [0u8; 64], Duration::ZERO, 0);
    while !over.load(Ordering::SeqCst) {
        let (block, byte) = (rng.below(64), rng.bits() as u8);
        let begun = Instant::now();
        match rng.below(3) {
            0 => file.write_durable_at(block * BLOCK, &[byte; BLOCK_SIZE]).unwrap(),
            1 => {
                file.write_at(block * BLOCK, &[byte; BLOCK_SIZE]).unwrap();
                file.sync_data().unwrap();
            }
            _ => {
                let found = reads.read_at(block * BLOCK, NEEDLE.len()).unwrap();
                assert_eq!(found, NEEDLE, "the canary has changed");
                let found = file.read_at(block * BLOCK, BLOCK_SIZE).unwrap();
                assert_eq!(found, [model[block as usize]; BLOCK_SIZE], "block {block}");
                continue;
            }
        }
        longest = longest.max(begun.elapsed());
        (model[block as usize], calls) = (byte, calls + 1);
    }
    (calls, longest)
}

/// What the canary's file holds.
fn canary() -> Vec<u8> {
    let mut block = NEEDLE.to_vec();
    block.resize(BLOCK_SIZE / 2, b'.');
    block.repeat(512)
}

#[test]
fn hostile_programs_get_nothing_and_stop_nobody() {
    let length = LENGTH[usize::from(std::env::var_os("SIFTFS_LONG").is_some())];
    let ground = Ground::new();
    let volume = Volume::connect(ground.host.address()).unwrap();
    volume.create_dir("/canary", 0o700).unwrap();
    let file = volume.create("/canary/c", 0o600).unwrap();
    file.write_at(0, &canary()).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let (over, done, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (calls, longest) = thread::scope(|scope| {
        let honest = scope.spawn(|| honest(ground.host.address(), &over));
        let (over, done, refused, ground) = (&over, &done, &refused, &ground);
        for seed in 0..3 {
            scope.spawn(move || {
                become_user(NOBODY).expect("root may be anybody");
                let (rng, number, old) = (Rng::new(seed), seed << 40, Vec::new());
                let mut hostile = Hostile { ground, rng, number, old, done, refused };
                while !over.load(Ordering::SeqCst) {
                    hostile.attack();
                }
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < length && !honest.is_finished() {
            thread::sleep(Duration::from_millis(200));
        }
        over.store(true, Ordering::SeqCst);
        honest.join().unwrap()
    });
    let [done, refused] = [done, refused].map(AtomicU64::into_inner);
    println!("{calls} honest calls, the longest {longest:?}; {done} done, {refused} refused");
    assert!(calls > 0 && longest < PATIENCE, "{longest:?}");
    assert!(done > 50 && refused > 200, "{done} done, {refused} refused");
    assert!(volume.open_file("/canary/c").unwrap().read_at(0, 2 << 20).unwrap() == canary());
    volume.close().unwrap();
    ground.end();
}
