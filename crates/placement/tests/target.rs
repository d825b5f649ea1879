//! Storage behind a target: a device as any other, over each transport; what a flush promised
//! outlives the target's power; a host that has lost its roles writes nothing more.

#[path = "at_target/appends.rs"]
mod appends;
#[path = "at_target/cuts.rs"]
mod cuts;
#[path = "at_target/direct.rs"]
mod direct;
#[path = "at_target/expected.rs"]
mod expected;
#[path = "at_target/extends.rs"]
mod extends;
#[path = "at_target/forger.rs"]
mod forger;
#[path = "at_target/histories.rs"]
mod histories;
#[path = "at_target/machine.rs"]
mod machine;
#[path = "at_target/readers.rs"]
mod readers;
#[path = "at_target/redo.rs"]
mod redo;

use forger::Forger;
use machine::{Machine, NAME, Way};
use siftfs_base::{BLOCK_SIZE, Error, Rng, SharedBlock};
use siftfs_device::{Device, FaultDevice, ReadOp, RegionKind, Role, WriteOp};
use siftfs_device_target::{Target, TargetPlace};
use siftfs_placement::{
    Dial, LocalVolume, MkfsOptions, OpenOptions, ServicePlace, TransportOptions, mkfs_on,
};
use siftfs_proto::*;
use siftfs_transport::{Received, connect};
use siftfs_wire::{
    Access, BlockProtocol, FromService, PROTOCOL_VERSION, StorageAnswer, StorageCall, ToService,
};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Opens the storage to write it.
fn opened(machine: &Machine) -> siftfs_base::Result<Arc<Target>> {
    Target::open(machine.place(), true)
}

/// The device of the area, by itself.
fn area(target: &Arc<Target>) -> Arc<dyn Device> {
    target.devices().area
}

const SIZE: u64 = 4 << 20;
const WAYS: [Way; 3] = [Way::SharedMemory, Way::Unix, Way::Tcp];

fn data(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// Any place, any length, alone and in batches: as a buffer in memory.
#[test]
fn a_device_as_any_other() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(FaultDevice::new(SIZE, 1), way, dir.path());
        let target = opened(&machine).unwrap();
        let device = area(&target);
        assert_eq!(device.size(), SIZE);
        let (mut rng, mut model) = (Rng::new(7), vec![0u8; SIZE as usize]);
        for _ in 0..60 {
            let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
            let mut at = rng.below(SIZE / 4);
            for _ in 0..=rng.below(4) {
                let len = [0, 1, 511, 512, 4096, 4097, 300_000][rng.below(7) as usize];
                pieces.push((at, data(&mut rng, len)));
                at += len as u64 + rng.below(5000);
            }
            for (at, bytes) in &pieces {
                model[*at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            match rng.below(3) {
                0 => pieces.iter().for_each(|(at, bytes)| device.write(*at, bytes, true).unwrap()),
                1 => pieces.iter().for_each(|(at, bytes)| device.write(*at, bytes, false).unwrap()),
                _ => {
                    let of = |(offset, data): &'_ (u64, Vec<u8>)| (*offset, data.clone());
                    let copies: Vec<_> = pieces.iter().map(of).collect();
                    let ops: Vec<_> = copies
                        .iter()
                        .map(|(offset, data)| WriteOp { offset: *offset, data })
                        .collect();
                    device.write_batch(&ops).unwrap();
                }
            }
            let mut found: Vec<_> = pieces.iter().map(|(_, bytes)| vec![0; bytes.len()]).collect();
            let mut ops: Vec<_> = pieces
                .iter()
                .zip(&mut found)
                .map(|((offset, _), buf)| ReadOp { offset: *offset, buf })
                .collect();
            device.read_batch(&mut ops).unwrap();
            assert!(pieces.iter().map(|(_, bytes)| bytes).eq(&found), "{way:?}");
        }
        let mut all = vec![0; SIZE as usize];
        device.read(0, &mut all).unwrap();
        assert!(all == model, "{way:?}");
        device.flush().unwrap();
        assert!(machine.disk.durable() == machine.disk.contents());
        for (offset, len) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1)] {
            let refused = |e: Error| matches!(e, Error::Io { errno: libc::EINVAL, .. });
            assert!(refused(device.write(offset, &vec![0; len], false).unwrap_err()));
            assert!(refused(device.read(offset, &mut vec![0; len]).unwrap_err()));
        }
    }
}

/// What was durable is so there: by one write that says it, and by a flush for those before it.
#[test]
fn durable_writes_and_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(FaultDevice::new(SIZE, 1), Way::Unix, dir.path());
    let target = opened(&machine).unwrap();
    let device = area(&target);
    device.write(0, &[1; 4096], false).unwrap();
    assert_eq!(machine.disk.pending().len(), 1);
    device.write(4096, &[2; 4096], true).unwrap();
    assert_eq!(machine.disk.pending().len(), 1, "the second is durable by itself");
    device.flush().unwrap();
    assert_eq!(machine.disk.pending().len(), 0);
}

/// A keeper that takes anything: no other host is there.
fn keep(target: &Target) {
    target.keep(Box::new(|_| Ok(())));
}

/// What was written and not flushed when the target's power failed is written again before the
/// flush that follows is answered, over what a newer durable write had put there.
#[test]
fn a_flush_keeps_its_promise_over_the_targets_power() {
    for (way, seed) in WAYS.into_iter().cycle().zip(0..9) {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::start(FaultDevice::new(SIZE, seed), way, dir.path());
        if way == Way::Tcp {
            // Its port would be another one.
            continue;
        }
        let target = opened(&machine).unwrap();
        keep(&target);
        let (device, mut rng) = (area(&target), Rng::new(seed));
        let mut model = vec![0u8; SIZE as usize];
        for _ in 0..6 {
            for _ in 0..rng.below(30) {
                let (at, len) = (rng.below(SIZE / 2), rng.below(20_000) as usize);
                let bytes = data(&mut rng, len);
                device.write(at, &bytes, rng.below(3) == 0).unwrap();
                model[at as usize..][..len].copy_from_slice(&bytes);
                if rng.below(10) == 0 {
                    device.flush().unwrap();
                }
            }
            machine = machine.power_fails(way, rng.below(u64::MAX));
            device.flush().unwrap();
            let mut durable = vec![0; SIZE as usize];
            machine.disk.durable().read(0, &mut durable);
            let wrong = durable.iter().zip(&model).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "{way:?}, seed {seed}");
        }
    }
}

/// Without a keeper nobody can say whose the storage is by then: every call fails.
#[test]
fn without_a_keeper_a_lost_target_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(FaultDevice::new(SIZE, 1), Way::Unix, dir.path());
    let target = opened(&machine).unwrap();
    let device = area(&target);
    device.write(0, &[1; 100], false).unwrap();
    let _machine = machine.power_fails(Way::Unix, 3);
    assert!(matches!(device.flush(), Err(Error::Link(_))));
    assert!(matches!(device.read(0, &mut [0; 10]), Err(Error::Link(_))));
}

/// A host that was away while another one had the volume writes nothing more (rule R9).
#[test]
fn another_host_has_had_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = Machine::start(FaultDevice::new(SIZE, 1), Way::Unix, dir.path());
    let target = opened(&machine).unwrap();
    let device = area(&target);
    target.keep(Box::new(|opened| {
        let mut byte = [0];
        opened.area.read(0, &mut byte)?;
        match byte {
            [0] => Ok(()),
            _ => Err(Error::Refused("another host has had the volume".into())),
        }
    }));
    device.write(4096, &[1; 4096], false).unwrap();
    machine = machine.power_fails(Way::Unix, 5);
    machine.disk.write(0, &[9], true).unwrap();
    let before = machine.disk.ops();
    let error = device.flush().unwrap_err();
    assert!(error.to_string().contains("another host has had the volume"), "{error}");
    assert!(device.write(8192, &[1], true).is_err());
    assert_eq!(machine.disk.ops(), before, "nothing was written");
}

/// The roles are one host's until its connection has ended.
#[test]
fn one_host_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(FaultDevice::new(SIZE, 1), Way::Unix, dir.path());
    let first = opened(&machine).unwrap();
    let said = opened(&machine).map(drop).unwrap_err().to_string();
    assert!(said.contains("in use"), "{said}");
    first.close();
    assert!(area(&first).read(0, &mut [0]).is_err());
    let begun = Instant::now();
    let again = loop {
        match opened(&machine) {
            Ok(target) => break target,
            Err(error) if begun.elapsed() > Duration::from_secs(20) => panic!("{error}"),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    };
    area(&again).write(0, &[1], true).unwrap();
}

/// A session writes with a role, and with one alone only what is that role's.
#[test]
fn a_role_writes_what_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let disk = volume(24 << 20);
    let layout = siftfs_volume::read_headers(&disk).unwrap().header;
    let machine = Machine::start(disk, Way::SharedMemory, dir.path());
    let target = opened(&machine).unwrap();
    let device = area(&target);
    let lane = layout.lanes[0].offset;
    let (journal, middle) = (layout.journal_offset, layout.area_offset + (1 << 20));
    let host_record = layout.header_offsets[0] + siftfs_log::HOST_SLOTS[0];
    let service_record = layout.header_offsets[0] + siftfs_log::SERVICE_SLOTS[0];
    let refuses = |places: &[u64]| {
        for place in places {
            let mut there = [0; 16];
            device.read(*place, &mut there).unwrap();
            let error = device.write(*place, &there, false).unwrap_err();
            assert!(matches!(error, Error::Refused(_)), "{place}: {error}");
        }
    };
    let takes = |places: &[u64]| {
        for place in places {
            let mut there = [0; 16];
            device.read(*place, &mut there).unwrap();
            device.write(*place, &there, true).unwrap();
        }
    };
    let (hosts, services) = ([lane, host_record], [journal, middle, service_record]);
    takes(&[&hosts[..], &services[..]].concat());
    device.unclaim(Role::Service).unwrap();
    takes(&hosts);
    refuses(&services);
    refuses(&[lane + layout.lanes[0].len - 8, layout.header_offsets[0]]);
    device.unclaim(Role::Host).unwrap();
    refuses(&[&hosts[..], &services[..]].concat());
    device.claim(Role::Service, Duration::ZERO).unwrap();
    takes(&services);
    refuses(&hosts);
    device.claim(Role::Host, Duration::ZERO).unwrap();
    takes(&[&hosts[..], &services[..]].concat());
}

/// Readers write nothing, and other names are nobody's.
#[test]
fn what_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(FaultDevice::new(SIZE, 1), Way::Unix, dir.path());
    let reader = Target::open(machine.place(), false).unwrap();
    let device = area(&reader);
    device.read(0, &mut [0; 100]).unwrap();
    assert!(matches!(device.write(0, &[1], false), Err(Error::Refused(_))));
    assert!(matches!(device.claim(Role::Host, Duration::ZERO), Err(Error::Refused(_))));
    assert!(matches!(device.discard(0, 4096), Err(Error::Refused(_))));
    let other = TargetPlace { volume: "other".into(), ..machine.place() };
    let said = Target::open(other, true).map(drop).unwrap_err().to_string();
    assert!(said.contains("no volume 'other'") && said.contains(NAME), "{said}");
    assert_eq!(machine.disk.ops(), 0);
}

fn volume(size: u64) -> FaultDevice {
    volume_with(size, None)
}

/// A volume, perhaps with a redo lane of these bytes.
fn volume_with(size: u64, redo_lane: Option<u64>) -> FaultDevice {
    let disk = Arc::new(FaultDevice::new(size, 1));
    let any: Arc<dyn Device> = disk.clone();
    let log_size = Some(6 << 20);
    let opts = MkfsOptions { log_size, lanes: 1, redo_lane, ..MkfsOptions::default() };
    mkfs_on(any, &opts).expect("mkfs");
    FaultDevice::from_image(disk.contents(), 1)
}

/// A host without storage of its own; its Service is in the target.
fn host(machine: &Machine) -> siftfs_base::Result<LocalVolume> {
    let (target, options) = (machine.place(), TransportOptions::default());
    let dial = Dial { address: target.address.clone(), options, secured: None };
    let service = Some(ServicePlace { connector: Arc::new(dial), fallback: None });
    let opts = OpenOptions { target: Some(target), service, ..OpenOptions::default() };
    LocalVolume::open(Path::new("target:test"), &opts, &mut |_, _, _| {})
}

fn call(v: &LocalVolume, req: Request) -> Reply {
    v.endpoint().call(&Credentials::default(), req).expect("a call")
}

fn write(v: &LocalVolume, name: &str, bytes: &[u8]) {
    let new = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
    let Reply::Created { attr, handle } = call(v, new) else { panic!("not created") };
    let ino = attr.ino;
    call(v, Request::write(ino, 0, bytes.to_vec()));
    call(v, Request::Fsync { file: ino.into(), datasync: false });
    call(v, Request::Release { handle });
    call(v, Request::Forget { ino, count: 1 });
}

fn read(v: &LocalVolume, name: &str) -> Vec<u8> {
    let Reply::Entry(attr) = call(v, Request::Lookup { parent: ROOT_INO, name: name.into() })
    else {
        panic!("no entry")
    };
    let len = u32::try_from(attr.size).unwrap();
    let Reply::Data(data) = call(v, Request::Read { file: attr.ino.into(), offset: 0, len }) else {
        panic!("no data")
    };
    call(v, Request::Forget { ino: attr.ino, count: 1 });
    data
}

/// A small fsync is one call: data and the demand that it be durable.
#[test]
fn an_fsync_is_one_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(24 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    write(&v, "f", &[1; 4096]);
    let Reply::Entry(attr) = call(&v, Request::Lookup { parent: ROOT_INO, name: "f".into() })
    else {
        panic!("no entry")
    };
    for round in 0..20 {
        call(&v, Request::write(attr.ino, 0, vec![round; 4096]));
        let before = machine.disk.ops();
        call(&v, Request::Fsync { file: attr.ino.into(), datasync: false });
        assert_eq!(machine.disk.ops() - before, 1, "round {round}");
    }
    call(&v, Request::Forget { ino: attr.ino, count: 1 });
    v.close().unwrap();
}

/// Files that were fsynced outlive the power of the target, again and again, and the mount its
/// target. What is closed is plain ext4.
#[test]
fn a_mount_outlives_its_targets_power() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = Machine::start(volume(24 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let bytes = |n: u8| vec![n; 3000 + 1000 * usize::from(n)];
    for n in 0..6 {
        write(&v, &format!("f{n}"), &bytes(n));
        if n % 2 == 0 {
            v.commit(true).unwrap();
        }
        machine = machine.power_fails(Way::SharedMemory, u64::from(n) + 10);
        if n == 3 {
            v.checkpoint().unwrap();
        }
    }
    v.close().unwrap();
    let left = FaultDevice::from_image(machine.disk.durable(), 1);
    drop(machine);
    let machine = Machine::start(left, Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    (0..6).for_each(|n| assert!(read(&v, &format!("f{n}")) == bytes(n), "f{n}"));
    v.close().unwrap();
}

/// A host that is gone without a word leaves what it fsynced to the next one.
#[test]
fn a_host_that_dies_is_followed_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(24 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    write(&v, "kept", &[7; 5000]);
    let said = host(&machine).map(drop).unwrap_err().to_string();
    assert!(said.contains("in use"), "{said}");
    v.abandon();
    let v = host(&machine).unwrap();
    assert_eq!(read(&v, "kept"), [7; 5000]);
    v.close().unwrap();
}

/// The bytes of the volume that are not the host's: all but its lanes and its record.
fn not_the_hosts(disk: &FaultDevice) -> Vec<u8> {
    let mut bytes = vec![0; disk.size() as usize];
    disk.contents().read(0, &mut bytes);
    let header = siftfs_volume::read_headers(disk).unwrap().header;
    for desc in siftfs_volume::region_descs(&header) {
        let host = desc.kind == RegionKind::Staging
            || desc.kind == RegionKind::Header && desc.index == siftfs_volume::HEADER_HOST;
        if host {
            bytes[desc.offset as usize..][..desc.len as usize].fill(0);
        }
    }
    bytes
}

/// Calls with any numbers: each is answered, and a host with its role alone changes nothing that is
/// not its own, whatever it asks for.
#[test]
fn forged_calls_change_nothing_that_is_not_the_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(24 << 20), Way::Unix, dir.path());
    let before = not_the_hosts(&machine.disk);
    let mut forger = Forger::new(&machine);
    let open =
        |access| StorageCall::Open { version: PROTOCOL_VERSION, volume: NAME.into(), access };
    let mut ask = |call| forger.ask(call);
    assert!(matches!(ask(open(Access::Shared)), StorageAnswer::Opened { .. }));
    let claim = |role| StorageCall::Claim { device: 0, role, patience: u32::MAX };
    assert_eq!(ask(claim(Role::Host)), StorageAnswer::Done);
    let (mut rng, mut done, mut refused) = (Rng::new(3), 0, 0);
    for _ in 0..3000 {
        let place = match rng.below(4) {
            0 => rng.below(u64::MAX),
            1 => u64::MAX - rng.below(9000),
            _ => rng.below(24 << 20),
        };
        let len = [0, 1, 4096, 5000, 1 << 18, (1 << 18) + 1, u32::MAX][rng.below(7) as usize];
        let device = [0, 0, 0, 1, 255][rng.below(5) as usize];
        let blocks = match rng.below(4) {
            0 => rng.below(70) as usize,
            _ => (len as usize).div_ceil(BLOCK_SIZE).min(80),
        };
        let block = SharedBlock::from([rng.below(256) as u8; BLOCK_SIZE]);
        let call = match rng.below(6) {
            0 => StorageCall::Read { device, offset: place, len },
            1 => StorageCall::Discard { device, offset: place, len: rng.below(u64::MAX) },
            2 => StorageCall::Unclaim { device: device.max(1), role: Role::Service },
            3 => open(Access::Alone),
            _ => {
                let (durable, blocks) = (rng.chance(50), vec![block; blocks]);
                StorageCall::Write { device, offset: place, len, durable, blocks }
            }
        };
        match ask(call) {
            StorageAnswer::Failed { .. } => refused += 1,
            _ => done += 1,
        }
    }
    assert!(done > 100 && refused > 1000, "{done} done, {refused} refused");
    assert!(not_the_hosts(&machine.disk) == before, "something else was written");
    // The target serves on: it was this connection's role alone that had been in the way.
    forger.end.sender.cut();
    let begun = Instant::now();
    while let Err(error) = opened(&machine) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What is no call on the storage, or comes before it is open, ends the connection, and nothing
/// else.
#[test]
fn other_messages_end_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(FaultDevice::new(SIZE, 1), Way::Unix, dir.path());
    let open = StorageCall::Open {
        version: PROTOCOL_VERSION,
        volume: NAME.into(),
        access: Access::ReadOnly,
    };
    let old = StorageCall::Open { version: 1, volume: NAME.into(), access: Access::ReadOnly };
    let call = |call| ToService::Storage { id: 1, call };
    for words in [
        vec![call(StorageCall::Flush { device: 0 })],
        vec![call(old)],
        vec![call(open.clone()), ToService::Goodbye],
        vec![call(open), ToService::Statistics],
    ] {
        let place = machine.place();
        let mut end = connect::<BlockProtocol>(&place.address, &place.options).unwrap();
        for word in words {
            end.sender.send(word).unwrap();
        }
        loop {
            match end.receiver.recv(Some(Duration::from_secs(20))) {
                Ok(Received::Message(FromService::Storage { .. })) => {}
                Ok(Received::Closed) | Err(_) => break,
                other => panic!("{other:?}"),
            }
        }
    }
    area(&opened(&machine).unwrap()).write(0, &[1], true).unwrap();
}
