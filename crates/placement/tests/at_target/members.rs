//! Members of a striped volume at targets: the volume over them is as any other, a lost member is
//! waited for, and an opener that was taken for dead writes nothing more.

use crate::machine::{Machine, Way};
use crate::striped::{Serving, Set, UNIT, e2fsck};
use crate::{bytes, get, put, said, try_put};
use siftfs_base::{BLOCK_SIZE, Rng, SharedBlock};
use siftfs_device::{Device, FaultDevice, Role};
use siftfs_device_stripe::{DATA_BEGIN, Member, StripedDevice, set_free};
use siftfs_device_target::{Target, TargetPlace};
use siftfs_placement::{
    Access, Dial, LocalVolume, MkfsOptions, OpenOptions, ServicePlace, TransportOptions, mkfs,
    recover,
};
use siftfs_transport::{Received, connect};
use siftfs_wire::{
    BlockProtocol, FromService, PROTOCOL_VERSION, StorageAnswer, StorageCall, ToService,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const EACH: u64 = 12 << 20;
const WAY: Way = Way::Unix;

/// Two machines with a member each; the log is here.
struct Rack {
    set: Set,
    machines: Vec<Machine>,
}

impl Rack {
    /// Members of no set yet.
    fn free() -> Self {
        let mut set = Set::named(2);
        let start = |n: u64| {
            let disk = FaultDevice::new(DATA_BEGIN + EACH, n);
            set_free(&disk).unwrap();
            let dir = set.dir.path().join(format!("machine{n}"));
            std::fs::create_dir(&dir).unwrap();
            Machine::start_member(disk, WAY, &dir)
        };
        let machines: Vec<_> = (0..2).map(start).collect();
        set.members = machines.iter().map(|m| PathBuf::from(m.place().to_string())).collect();
        Self { set, machines }
    }

    fn made() -> Self {
        let rack = Self::free();
        rack.mkfs().expect("mkfs over the wire");
        rack
    }

    fn mkfs(&self) -> siftfs_base::Result<()> {
        let opts = MkfsOptions { size: None, members: self.places(), ..self.set.options(0) };
        mkfs(&self.set.name(), &opts, &mut |_, _, _| {}).map(drop)
    }

    fn places(&self) -> Vec<TargetPlace> {
        self.machines.iter().map(Machine::place).collect()
    }

    fn options(&self) -> OpenOptions {
        let (log, members) = (Some(self.set.log()), self.places());
        OpenOptions { log, members, ..OpenOptions::default() }
    }

    fn open(&self) -> siftfs_base::Result<LocalVolume> {
        LocalVolume::open(&self.set.name(), &self.options(), &mut |_, _, _| {})
    }

    /// The members as their machines have them.
    fn local(&self) -> StripedDevice {
        let of = |(n, machine): (usize, &Machine)| Member {
            name: format!("disk{n}"),
            device: machine.disk.clone(),
        };
        StripedDevice::open(self.machines.iter().enumerate().map(of).collect()).unwrap()
    }

    fn is_sound(&self) {
        let area = self.local();
        let mut whole = vec![0; area.size() as usize];
        area.read(0, &mut whole).unwrap();
        let file = self.set.dir.path().join("whole");
        std::fs::write(&file, whole).unwrap();
        e2fsck(&file);
    }

    /// A machine's power fails, and comes back.
    fn power_fails(&mut self, at: usize, seed: u64) {
        let machine = self.machines.remove(at).power_fails(WAY, seed);
        self.machines.insert(at, machine);
    }

    /// All machines' processes end; `meanwhile` happens to the disks; they start again.
    fn served_again(&mut self, meanwhile: impl FnOnce(&[Arc<FaultDevice>])) {
        self.machines.iter_mut().for_each(Machine::stop);
        let disks: Vec<_> = self.machines.iter().map(|m| m.disk.contents()).collect();
        let disks: Vec<_> =
            disks.into_iter().map(|image| Arc::new(FaultDevice::from_image(image, 1))).collect();
        meanwhile(&disks);
        let machines = std::mem::take(&mut self.machines);
        let again = |(machine, disk): (Machine, Arc<FaultDevice>)| {
            machine.served_again(WAY, |there| {
                let mut all = vec![0; disk.size() as usize];
                disk.read(0, &mut all).unwrap();
                there.write(0, &all, true).unwrap();
            })
        };
        self.machines = machines.into_iter().zip(disks).map(again).collect();
    }
}

/// Everything is written to the area.
fn home(v: &LocalVolume) -> siftfs_base::Result<()> {
    v.commit(true)?;
    v.checkpoint()
}

/// Made over the wire, used, killed, recovered: and between, the area is plain ext4.
#[test]
fn a_life_over_targets() {
    let rack = Rack::made();
    rack.is_sound();
    let v = rack.open().unwrap();
    let large = bytes(5, 3 << 20);
    put(&v, "large", &large);
    assert!(said(rack.open()).contains("in use"), "one opener at a time");
    home(&v).unwrap();
    v.abandon();
    recover(&rack.set.name(), &rack.options(), &mut |_, _, _| {}).expect("recovery");
    rack.is_sound();
    let v = rack.open().unwrap();
    assert!(get(&v, "large") == large);
    v.close().unwrap();
    rack.is_sound();
    for machine in &rack.machines {
        let mut all = vec![0; machine.disk.size() as usize];
        machine.disk.read(0, &mut all).unwrap();
        let there = large.chunks(4096).filter(|block| all.chunks(4096).any(|b| b == *block));
        assert!(there.count() > 200, "each member has its share");
    }
}

/// A member is made one of a set over the wire once; after that only its own machine undoes it.
#[test]
fn a_set_is_made_of_free_members_alone() {
    let rack = Rack::made();
    let again = said(rack.mkfs());
    assert!(again.contains("of a set already") && again.contains("--member --force"), "{again}");
    let force = MkfsOptions { size: None, force: true, ..rack.set.options(0) };
    assert!(said(mkfs(&rack.set.name(), &force, &mut |_, _, _| {})).contains("of a set already"));
    rack.is_sound();
    let alone = OpenOptions { target: Some(rack.machines[0].place()), ..OpenOptions::default() };
    let alone = said(LocalVolume::open(Path::new("target:it"), &alone, &mut |_, _, _| {}));
    assert!(alone.contains("member of a striped volume"), "{alone}");
    let free = Rack::free();
    assert!(said(free.open()).contains("of no set yet"));
    let log = MkfsOptions { log: Some(rack.set.members[0].clone()), ..rack.set.options(0) };
    let refused = said(mkfs(&free.set.name(), &log, &mut |_, _, _| {}));
    assert!(refused.contains("and not at a target"), "{refused}");
    let log = OpenOptions { log: Some(rack.set.members[0].clone()), ..rack.options() };
    let refused = said(LocalVolume::open(&rack.set.name(), &log, &mut |_, _, _| {}));
    assert!(refused.contains("and not at a target"), "{refused}");
}

/// What a connection to a member's target says to one message after another.
struct Wire(siftfs_transport::CallerEnd<BlockProtocol>);

impl Wire {
    fn new(machine: &Machine) -> Self {
        let place = machine.place();
        Self(connect::<BlockProtocol>(&place.address, &place.options).unwrap())
    }

    fn open(machine: &Machine, access: Access) -> Self {
        let (mut wire, volume) = (Self::new(machine), machine.place().volume);
        let open = StorageCall::Open { version: PROTOCOL_VERSION, volume, access };
        let answer = wire.ask(open);
        assert!(matches!(answer, StorageAnswer::Opened { .. }), "{answer:?}");
        wire
    }

    fn ask(&mut self, call: StorageCall) -> StorageAnswer {
        self.0.sender.send(ToService::Storage { id: 7, call }).unwrap();
        match self.0.receiver.recv(Some(Duration::from_secs(10))).unwrap() {
            Received::Message(FromService::Storage { id: 7, answer }) => answer,
            _ => panic!("no answer"),
        }
    }

    fn writes(&mut self, offset: u64, len: u32) -> bool {
        let count = (len as usize).div_ceil(BLOCK_SIZE);
        let blocks = vec![SharedBlock::from([0xee; BLOCK_SIZE]); count];
        let call = StorageCall::Write { device: 0, offset, len, durable: false, blocks };
        matches!(self.ask(call), StorageAnswer::Done)
    }

    fn claims(&mut self, role: Role) {
        let claim = StorageCall::Claim { device: 0, role, patience: 2000 };
        assert_eq!(self.ask(claim), StorageAnswer::Done);
    }
}

/// No role, no write; the label is nobody's; a stamp is its role's; there is nothing to grant.
#[test]
fn what_a_member_lets_its_callers_write() {
    let rack = Rack::made();
    let (host, service) = (4096, 8192);
    let mut none = Wire::open(&rack.machines[0], Access::Shared);
    for offset in [0, host, service, DATA_BEGIN] {
        assert!(!none.writes(offset, 4096), "without a role, at {offset}");
    }
    none.claims(Role::Host);
    assert!(none.writes(host, 4096) && none.writes(DATA_BEGIN, 4096));
    assert!(!none.writes(service, 4096) && !none.writes(host, 8192) && !none.writes(0, 4096));
    assert!(!none.writes(DATA_BEGIN - 4096, 8192) && !none.writes(u64::MAX - 4095, 4096));
    let discard = StorageCall::Discard { device: 0, offset: 0, len: 4096 };
    assert!(matches!(none.ask(discard), StorageAnswer::Failed { .. }));
    assert!(matches!(none.ask(StorageCall::Flush { device: 1 }), StorageAnswer::Failed { .. }));
    let grant = StorageCall::Grant { lease: 1, file: 12, write: true, runs: Vec::new() };
    let StorageAnswer::Failed { error } = none.ask(grant) else { panic!("granted") };
    assert!(error.to_string().contains("name all members"), "{error}");
    drop(none);
    let until = Instant::now() + Duration::from_secs(10);
    let alone = loop {
        // The session before it ends when its connection has.
        let place = rack.machines[0].place();
        match Target::open(place, true) {
            Ok(target) => break target,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    let refused = alone.devices().area.write(0, &[0; 4096], false).unwrap_err();
    assert!(refused.to_string().contains("of a member"), "its label is a set's: {refused}");
    let volume = [0; 16];
    for first in [
        ToService::Inquire { version: PROTOCOL_VERSION, volume },
        ToService::Storage { id: 1, call: StorageCall::Flush { device: 0 } },
    ] {
        let mut wire = Wire::new(&rack.machines[1]);
        wire.0.sender.send(first).unwrap();
        let said = wire.0.receiver.recv(Some(Duration::from_secs(10))).unwrap();
        let Received::Message(FromService::Refused { reason }) = said else { panic!("served") };
        assert!(reason.contains("name all members"), "{reason}");
    }
}

/// Files with an fsync each, and checkpoints, while machines lose their power, one by one and both:
/// nothing fails, and what was fsynced is there.
#[test]
fn lost_members_are_waited_for() {
    let mut rack = Rack::made();
    let v = Arc::new(rack.open().unwrap());
    let done = Arc::new(AtomicBool::new(false));
    let worker = {
        let (v, done) = (v.clone(), done.clone());
        thread::spawn(move || {
            let mut kept = Vec::new();
            while !done.load(Ordering::SeqCst) && kept.len() < 120 {
                let n = kept.len() as u64;
                let (name, data) = (format!("f{n}"), bytes(n, 20_000 + 1000 * (n as usize % 60)));
                put(&v, &name, &data);
                kept.push((name, data));
                if n % 3 == 2 {
                    home(&v).expect("a lost member is waited for");
                }
            }
            kept
        })
    };
    let mut rng = Rng::new(3);
    for seed in 0..8u64 {
        thread::sleep(Duration::from_millis(20 + rng.below(60)));
        rack.power_fails((seed % 2) as usize, seed);
        if seed % 3 == 2 {
            rack.power_fails(((seed + 1) % 2) as usize, seed + 100);
        }
    }
    done.store(true, Ordering::SeqCst);
    let kept = worker.join().expect("no call failed");
    assert!(kept.len() > 4, "{} files", kept.len());
    kept.iter().for_each(|(name, data)| assert!(get(&v, name) == *data, "{name}"));
    let v = Arc::into_inner(v).expect("the worker has ended");
    v.close().unwrap();
    rack.is_sound();
    let v = rack.open().unwrap();
    kept.iter().for_each(|(name, data)| assert!(get(&v, name) == *data, "{name}, once more"));
    v.close().unwrap();
}

/// An opener whose sessions have ended, and whose members another one has had since, writes nothing
/// more when it wakes; one that was alone goes on.
#[test]
fn a_stopped_opener_writes_nothing_more() {
    let mut rack = Rack::made();
    let v = rack.open().unwrap();
    put(&v, "first", &bytes(1, 100_000));
    rack.served_again(|_| {});
    put(&v, "second", &bytes(2, 100_000));
    home(&v).expect("nobody else was there");
    put(&v, "third", &bytes(3, 100_000));
    let mut before = Vec::new();
    rack.served_again(|disks| {
        let of = |(n, disk): (usize, &Arc<FaultDevice>)| Member {
            name: format!("disk{n}"),
            device: disk.clone(),
        };
        let other = StripedDevice::open(disks.iter().enumerate().map(of).collect()).unwrap();
        other.claim(Role::Service, Duration::ZERO).expect("nobody has it");
        other.write(UNIT, &[9; 100], true).unwrap();
        other.unclaim(Role::Service).unwrap();
        before = disks.iter().map(|disk| disk.contents()).collect();
    });
    let error = home(&v).expect_err("another one has had the members");
    let _ = try_put(&v, "late", b"late");
    let _ = home(&v);
    assert!(error.to_string().contains("another process has had it"), "{error}");
    for (machine, before) in rack.machines.iter().zip(before) {
        let disk = &machine.disk;
        let before = FaultDevice::from_image(before, 1);
        let (mut was, mut is) = (vec![0; disk.size() as usize], vec![0; disk.size() as usize]);
        before.read(0, &mut was).unwrap();
        disk.read(0, &mut is).unwrap();
        assert!(was == is, "nothing was written");
    }
    v.abandon();
}

/// The process that serves the volume has its members at targets: its hosts know nothing of that,
/// and it ends although a member is lost.
#[test]
fn a_front_target_over_members() {
    let mut rack = Rack::made();
    let serving = Serving::start(&rack.set);
    let host = || {
        let (target, options) = (serving.place.clone(), TransportOptions::default());
        let dial = Dial { address: target.address.clone(), options, secured: None };
        let service = Some(ServicePlace { connector: Arc::new(dial), fallback: None });
        let opts = OpenOptions { target: Some(target), service, ..OpenOptions::default() };
        LocalVolume::open(Path::new("target:test"), &opts, &mut |_, _, _| {}).unwrap()
    };
    let v = host();
    let large = bytes(4, 2 << 20);
    put(&v, "large", &large);
    rack.power_fails(1, 1);
    home(&v).unwrap();
    rack.power_fails(0, 2);
    rack.power_fails(1, 3);
    put(&v, "more", &large[..50_000]);
    home(&v).unwrap();
    v.close().unwrap();
    let v = host();
    assert!(get(&v, "large") == large && get(&v, "more") == large[..50_000]);
    rack.machines[1].stop();
    let asking = thread::spawn(move || {
        let failed = try_put(&v, "late", b"late").and_then(|()| home(&v));
        v.abandon();
        failed
    });
    thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    drop(serving);
    assert!(begun.elapsed() < Duration::from_secs(20), "it waits for no member");
    drop(asking);
    rack.power_fails(1, 4);
}
