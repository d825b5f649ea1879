//! Direct leases: programs that read and write blocks of their files at the target by themselves.

use super::forger::{Forger, attach};
use super::machine::{Machine, Way};
use super::{WAYS, data, host, volume};
use siftfs_base::{BLOCK_SIZE, Error, Rng, SharedBlock};
use siftfs_device_target::Queue;
use siftfs_placement::LocalVolume;
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use siftfs_wire::{GrantRun, PROTOCOL_VERSION, StorageAnswer, StorageCall};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A holder that passes on what is recalled.
struct Told(Mutex<Sender<LeaseId>>);

impl Holder for Told {
    fn recall(&self, lease: LeaseId) {
        let _ = self.0.lock().unwrap().send(lease);
    }
}

/// A session that may hold leases, and what is recalled from it.
pub struct Program {
    pub session: Arc<dyn FileService>,
    pub told: Receiver<LeaseId>,
}

pub fn ask(session: &Arc<dyn FileService>, req: Request) -> Result<Reply, i32> {
    session.call(&Credentials::default(), req).map_err(|e| e.errno())
}

pub fn program(v: &LocalVolume) -> Program {
    let (tell, told) = channel();
    let holder = Arc::new(Told(Mutex::new(tell)));
    Program { session: v.holder(Opening::user(0, 0, Rights::all()), holder).unwrap(), told }
}

pub fn user(v: &LocalVolume) -> Arc<dyn FileService> {
    v.session(Opening::user(0, 0, Rights::all())).unwrap()
}

/// A file with these bytes, open in this session.
pub fn make(session: &Arc<dyn FileService>, name: &str, bytes: &[u8]) -> (Attr, Handle) {
    let new = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
    let (attr, handle) = ask(session, new).unwrap().created().unwrap();
    for (at, bytes) in (0..).step_by(1 << 18).zip(bytes.chunks(1 << 18)) {
        ask(session, Request::write(handle, at, bytes.to_vec())).unwrap();
    }
    (attr, handle)
}

pub fn lease(session: &Arc<dyn FileService>, handle: Handle) -> Result<LeaseId, i32> {
    let leased = ask(session, Request::Lease { file: handle.into(), writers: None, direct: None })?;
    Ok(leased.leased().unwrap().0)
}

pub fn direct(
    session: &Arc<dyn FileService>,
    lease: LeaseId,
    handle: Handle,
) -> Result<siftfs_proto::Direct, i32> {
    let asked = Request::LeaseDirect { lease, file: handle.into(), room: 0 };
    ask(session, asked).map(|reply| reply.direct().unwrap())
}

pub fn put(
    session: &Arc<dyn FileService>,
    lease: LeaseId,
    (offset, bytes): (u64, &[u8]),
) -> Result<u32, i32> {
    let data = bytes.to_vec().into();
    let reply =
        ask(session, Request::LeaseWrite { lease, offset, data, time: None, durable: false })?;
    Ok(reply.written().unwrap())
}

pub fn give_back(session: &Arc<dyn FileService>, lease: LeaseId) -> Result<(), i32> {
    ask(session, Request::LeaseReturn { lease }).map(drop)
}

pub fn bytes_of(session: &Arc<dyn FileService>, file: Target, offset: u64, len: u32) -> Vec<u8> {
    ask(session, Request::Read { file, offset, len }).unwrap().data().unwrap()
}

/// The blocks of the file that are granted.
pub fn blocks(direct: &siftfs_proto::Direct) -> Vec<u64> {
    direct.runs.iter().flat_map(|run| run.first..run.first + run.count).collect()
}

/// Where a granted byte of the file lies in the area.
pub fn home(direct: &siftfs_proto::Direct, offset: u64) -> u64 {
    let block = offset / BLOCK;
    let run = direct.runs.iter().find(|run| (run.first..run.first + run.count).contains(&block));
    let run = run.expect("a granted block");
    (run.block + (block - run.first)) * BLOCK + offset % BLOCK
}

/// What a program with a lease has: the file, its lease, what is granted, and the way there.
pub struct Lane {
    pub ino: u32,
    pub handle: Handle,
    pub lease: LeaseId,
    pub direct: siftfs_proto::Direct,
    pub attached: Queue,
}

pub fn lane(machine: &Machine, program: &Program, name: &str, bytes: &[u8]) -> Lane {
    let (attr, handle) = make(&program.session, name, bytes);
    let lease = lease(&program.session, handle).unwrap();
    let direct = direct(&program.session, lease, handle).unwrap();
    let attached = attach(machine, direct.token).unwrap();
    Lane { ino: attr.ino, handle, lease, direct, attached }
}

/// What is written by one way is read by the other, on every transport; parts of blocks, too.
/// Another one that wants the file gets it when nothing runs under the lease any more.
#[test]
fn what_is_written_directly_is_read_by_all() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume(32 << 20), way, dir.path());
        let v = host(&machine).unwrap();
        let (program, other, mut rng) = (program(&v), user(&v), Rng::new(3));
        let mut model = data(&mut rng, 100 * BLOCK_SIZE + 1000);
        let lane = lane(&machine, &program, "f", &model);
        assert_eq!(blocks(&lane.direct), (0..100).collect::<Vec<_>>(), "all whole blocks");
        let one_run = lane.direct.runs.len() == 1;
        assert!(one_run, "a file that was written at once lies in one piece");
        for _ in 0..40 {
            let len = [1, 100, 4096, 5000, 300_000][rng.below(5) as usize];
            let at = rng.below(100 * BLOCK - len as u64) as usize;
            let mut found = vec![0; len];
            lane.attached.read_at(home(&lane.direct, at as u64), &mut found).unwrap();
            assert!(found == model[at..at + len], "{way:?}: {len} bytes at {at}");
            let bytes = data(&mut rng, len);
            let place = home(&lane.direct, at as u64);
            lane.attached.write_at(place, &bytes, rng.chance(50)).unwrap();
            model[at..at + len].copy_from_slice(&bytes);
        }
        let session = program.session.clone();
        let returning = thread::spawn(move || {
            let recalled = program.told.recv().unwrap();
            assert_eq!(recalled, lane.lease);
            give_back(&session, recalled).unwrap();
            // It has ended: nothing is written any more.
            let late = lane.attached.write_at(home(&lane.direct, 0), &[9; 4096], true);
            assert!(late.is_err(), "{late:?}");
        });
        let handle = open(&other, "f");
        returning.join().unwrap();
        let mut found = Vec::new();
        while found.len() < model.len() {
            found.extend(bytes_of(&other, handle.into(), found.len() as u64, 1 << 18));
        }
        assert!(found == model, "{way:?}");
        v.close().unwrap();
    }
}

pub fn open(session: &Arc<dyn FileService>, name: &str) -> Handle {
    let found = ask(session, Request::Lookup { parent: ROOT_INO, name: name.into() });
    let ino = found.unwrap().attr().unwrap().ino;
    ask(session, Request::open(ino, Access::Both)).unwrap().opened().unwrap()
}

/// What is not whole and at home is not granted: the end, holes, and what is only staged.
#[test]
fn what_is_granted() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let session = &program.session;
    let (_, handle) = make(session, "f", &[1; 2 * BLOCK_SIZE]);
    ask(session, Request::write(handle, 5 * BLOCK, vec![2; BLOCK_SIZE])).unwrap();
    let allocate = |offset, len| {
        let (file, mode, times) = (handle.into(), Allocate::Grow, true);
        ask(session, Request::Allocate { file, mode, offset, len, times }).unwrap();
    };
    allocate(8 * BLOCK, 4 * BLOCK);
    ask(session, Request::write(handle, 9 * BLOCK, vec![3; BLOCK_SIZE])).unwrap();
    ask(session, Request::write(handle, 12 * BLOCK, vec![4; 100])).unwrap();
    let held = lease(session, handle).unwrap();
    let first = direct(session, held, handle).unwrap();
    assert_eq!(blocks(&first), [0, 1, 5, 8, 9, 10, 11]);
    let fresh = first.runs.iter().filter(|run| run.fresh).map(|run| (run.first, run.count));
    assert_eq!(fresh.collect::<Vec<_>>(), [(8, 1), (10, 2)], "what fallocate(2) made");
    // What comes beside it leaves it, and is granted when the next checkpoint is due.
    put(session, held, (3 * BLOCK, &[5; BLOCK_SIZE])).unwrap();
    put(session, held, (12 * BLOCK, &[6; BLOCK_SIZE])).unwrap();
    let attached = attach(&machine, first.token).unwrap();
    attached.write_at(home(&first, 0), &[7; 10], false).unwrap();
    let early = direct(session, held, handle).unwrap();
    assert_eq!(blocks(&early), [0, 1, 5, 8, 9, 10, 11]);
    thread::sleep(Duration::from_millis(110));
    let second = direct(session, held, handle).unwrap();
    assert_eq!(blocks(&second), [0, 1, 3, 5, 8, 9, 10, 11, 12]);
    assert_ne!(first.token, second.token);
    let refused = attach(&machine, first.token).map(drop);
    assert!(matches!(refused, Err(Error::Posix(libc::ESTALE))), "{refused:?}");
    // All else that the session does with the file takes it back first.
    assert_eq!(bytes_of(session, handle.into(), 0, 11), [&[7; 10][..], &[1]].concat());
    let third = direct(session, held, handle).unwrap();
    let attached = attach(&machine, third.token).unwrap();
    attached.write_at(home(&third, 4096), &[8; 4096], false).unwrap();
    put(session, held, (4096 + 5, &[9])).unwrap();
    let now = bytes_of(session, handle.into(), 4096, 7);
    assert_eq!(now, [8, 8, 8, 8, 8, 9, 8]);
    give_back(session, held).unwrap();
    v.close().unwrap();
}

/// Who may be granted something: with a lease, a handle to read and write, a file from which a
/// write takes nothing but bytes, and storage at a target.
#[test]
fn who_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let session = &program.session;
    let (attr, both) = make(session, "f", &[1; 2 * BLOCK_SIZE]);
    let writing = ask(session, Request::open(attr.ino, Access::Write)).unwrap().opened().unwrap();
    assert_eq!(direct(session, LeaseId(7), both).unwrap_err(), libc::ESTALE);
    let held = lease(session, both).unwrap();
    assert_eq!(direct(session, held, writing).unwrap_err(), libc::EBADF);
    let (_, other) = make(session, "g", &[1; 2 * BLOCK_SIZE]);
    assert_eq!(direct(session, held, other).unwrap_err(), libc::ESTALE);
    let set = SetAttr { perm: Some(0o4755), ..SetAttr::default() };
    ask(session, Request::SetAttr { file: both.into(), set, times: true }).unwrap();
    assert_eq!(direct(session, held, both).unwrap_err(), libc::EOPNOTSUPP);
    give_back(session, held).unwrap();
    assert_eq!(direct(session, held, both).unwrap_err(), libc::ESTALE);
    v.close().unwrap();
    let disk: Arc<dyn siftfs_device::Device> = machine.disk.clone();
    let clock = Arc::new(siftfs_base::SystemClock::default());
    let opts = siftfs_placement::OpenOptions::default();
    let v = LocalVolume::open_on(disk, clock, &opts, siftfs_placement::Threads::Real).unwrap();
    let program = self::program(&v);
    let handle = open(&program.session, "g");
    let held = lease(&program.session, handle).unwrap();
    assert_eq!(direct(&program.session, held, handle).unwrap_err(), libc::EOPNOTSUPP);
    v.close().unwrap();
}

/// Rule R29: blocks are free for others when no program can write to them any more.
#[test]
fn r29_a_freed_block_is_nobodys_who_had_it() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let (program, other) = (program(&v), user(&v));
    // Nobody returns this lease: its term ends it.
    let lane = lane(&machine, &program, "f", &[1; 200 * BLOCK_SIZE]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut answered = 0;
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                let place = home(&lane.direct, answered % 199 * BLOCK);
                if lane.attached.write_at(place, &[0xee; 5000], false).is_err() {
                    return answered;
                }
                answered += 1;
            }
            answered
        });
        thread::sleep(Duration::from_millis(50));
        let handle = open(&other, "f");
        let unlink = Request::Unlink { parent: ROOT_INO, name: "f".into() };
        ask(&other, unlink).unwrap();
        ask(&other, Request::Release { handle }).unwrap();
        ask(&program.session, Request::Release { handle: lane.handle }).unwrap();
        v.checkpoint().unwrap();
        let bytes = vec![0x11; 5000 * BLOCK_SIZE];
        let (_, handle) = make(&other, "new", &bytes);
        ask(&other, Request::Fsync { file: handle.into(), datasync: false }).unwrap();
        v.checkpoint().unwrap();
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(writing.join().unwrap() > 0, "something was written under the lease");
    });
    v.close().unwrap();
    let v = host(&machine).unwrap();
    let other = user(&v);
    let handle = open(&other, "new");
    for at in (0..5000 * BLOCK).step_by(1 << 18) {
        let found = bytes_of(&other, handle.into(), at, 1 << 18);
        assert!(found.iter().all(|byte| *byte == 0x11), "at {at}");
    }
    v.close().unwrap();
}

/// What a program flushed at the target, or wrote durably, outlives the target's power; and its
/// fsync at the host says so where something may be lost.
#[test]
fn what_was_flushed_outlives_the_targets_power() {
    for seed in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
        let v = host(&machine).unwrap();
        let program = program(&v);
        let (mut rng, mut model) = (Rng::new(seed), vec![1; 20 * BLOCK_SIZE]);
        let lane = lane(&machine, &program, "f", &model);
        for _ in 0..30 {
            let (block, bytes) = (rng.below(20), data(&mut rng, BLOCK_SIZE));
            let durable = rng.chance(30);
            lane.attached.write_at(home(&lane.direct, block * BLOCK), &bytes, durable).unwrap();
            model[block as usize * BLOCK_SIZE..][..BLOCK_SIZE].copy_from_slice(&bytes);
            if !durable {
                match rng.below(3) {
                    0 => lane.attached.flush().unwrap(),
                    _ => {
                        let file = lane.handle.into();
                        ask(&program.session, Request::Fsync { file, datasync: true }).unwrap();
                    }
                }
            }
        }
        let machine = machine.power_fails(Way::SharedMemory, seed);
        assert!(lane.attached.flush().is_err(), "its connection is gone");
        let fsync = || {
            let file = lane.handle.into();
            ask(&program.session, Request::Fsync { file, datasync: false }).map(drop)
        };
        assert_eq!(fsync(), Err(libc::EIO), "it is told that something may be lost");
        assert_eq!(fsync(), Ok(()), "once");
        let found = bytes_of(&program.session, lane.handle.into(), 0, 20 << 12);
        assert!(found == model, "seed {seed}");
        let direct = direct(&program.session, lane.lease, lane.handle).unwrap();
        let attached = attach(&machine, direct.token).unwrap();
        attached.write_at(home(&direct, 0), &[5; BLOCK_SIZE], true).unwrap();
        give_back(&program.session, lane.lease).unwrap();
        assert_eq!(bytes_of(&program.session, lane.handle.into(), 0, 4096), [5; 4096]);
        v.close().unwrap();
    }
}

/// A host that is gone has granted nothing: its programs are cut off before another has the volume.
#[test]
fn a_grant_ends_with_its_host() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let lane = lane(&machine, &program, "f", &[1; 20 * BLOCK_SIZE]);
    lane.attached.write_at(home(&lane.direct, 0), &[2; BLOCK_SIZE], false).unwrap();
    v.abandon();
    let v = host(&machine).unwrap();
    assert!(lane.attached.write_at(home(&lane.direct, 0), &[3; BLOCK_SIZE], false).is_err());
    let refused = attach(&machine, lane.direct.token).map(drop);
    assert!(matches!(refused, Err(Error::Posix(libc::ESTALE))), "{refused:?}");
    let other = user(&v);
    let handle = open(&other, "f");
    assert_eq!(bytes_of(&other, handle.into(), 0, 4096), [2; 4096]);
    v.close().unwrap();
}

/// The times of a file move with what was written of it at the target: at its fsync, and at the
/// end.
#[test]
fn times_follow() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let lane = lane(&machine, &program, "f", &[1; 20 * BLOCK_SIZE]);
    let mtime = || {
        let file = lane.ino.into();
        ask(&program.session, Request::GetAttr { file }).unwrap().attr().unwrap().mtime
    };
    let fsync = || {
        let file = lane.handle.into();
        ask(&program.session, Request::Fsync { file, datasync: false }).unwrap();
    };
    let first = mtime();
    fsync();
    assert_eq!(mtime(), first, "nothing was written");
    thread::sleep(Duration::from_millis(5));
    lane.attached.write_at(home(&lane.direct, 0), &[2; 10], false).unwrap();
    fsync();
    let second = mtime();
    assert!(second > first);
    thread::sleep(Duration::from_millis(5));
    lane.attached.write_at(home(&lane.direct, 0), &[2; 10], true).unwrap();
    give_back(&program.session, lane.lease).unwrap();
    assert!(mtime() > second);
    v.close().unwrap();
}

/// A call with any numbers. May it be carried out, with these blocks granted?
fn forged(rng: &mut Rng, lane: &Lane, granted: &[u64]) -> (StorageCall, bool) {
    let offset = match rng.below(4) {
        0 => rng.below(u64::MAX),
        1 => u64::MAX - rng.below(9000),
        2 => granted[rng.below(16) as usize] + rng.below(9000),
        _ => rng.below(32 << 20),
    };
    let len = [0, 1, 512, 4096, 5000, 1 << 18, (1 << 18) + 1, u32::MAX][rng.below(8) as usize];
    let device = [0, 0, 0, 1, 255][rng.below(5) as usize];
    let given = (len as usize).div_ceil(BLOCK_SIZE).min(rng.below(80) as usize);
    let blocks = vec![SharedBlock::from([0xee; BLOCK_SIZE]); given];
    let (lease, token) = (lane.lease.0, lane.direct.token);
    let mut touched = offset / BLOCK..offset.saturating_add(len.into()).div_ceil(BLOCK);
    let inside = len == 0 || touched.all(|block| granted.contains(&(block * BLOCK)));
    let may = device == 0 && inside;
    match rng.below(13) {
        0 => (StorageCall::Discard { device, offset, len: len.into() }, false),
        12 => {
            let run = GrantRun { block: offset / BLOCK, len: 1, first: 1 << 20, fresh: false };
            (StorageCall::Extend { lease, token, runs: vec![run] }, false)
        }
        1 => {
            (StorageCall::Grant { lease: rng.below(9), file: 12, write: true, runs: vec![] }, false)
        }
        2 => (StorageCall::Revoke { lease, token }, false),
        3 => (StorageCall::Settle { lease, token }, false),
        4 => (StorageCall::Attach { version: PROTOCOL_VERSION, token, queue: 0, life: 0 }, false),
        5 => (StorageCall::Flush { device }, device == 0),
        6..9 => (StorageCall::Read { device, offset, len }, may),
        _ => (StorageCall::Write { device, offset, len, durable: rng.chance(50), blocks }, may),
    }
}

/// A program that forges its calls gets nothing that was not granted to it, writes nothing else,
/// and stops nobody.
#[test]
fn forged_calls_of_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::Unix, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let lane = lane(&machine, &program, "f", &[1; 16 * BLOCK_SIZE]);
    make(&user(&v), "other", &[2; 64 * BLOCK_SIZE]);
    v.checkpoint().unwrap();
    let mut forger = Forger::new(&machine);
    let (version, token) = (PROTOCOL_VERSION, lane.direct.token);
    let attach = StorageCall::Attach { version, token, queue: 0, life: 1 };
    assert!(matches!(forger.ask(attach), StorageAnswer::Attached { .. }));
    let granted: Vec<u64> =
        blocks(&lane.direct).iter().map(|b| home(&lane.direct, b * BLOCK)).collect();
    let area = {
        let header = siftfs_volume::read_headers(&*machine.disk).unwrap().header;
        let descs = siftfs_volume::region_descs(&header);
        descs.into_iter().find(|d| d.kind == siftfs_device::RegionKind::Area).unwrap().offset
    };
    let others = || {
        let mut bytes = vec![0; 32 << 20];
        machine.disk.contents().read(0, &mut bytes);
        for place in &granted {
            bytes[(area + place) as usize..][..BLOCK_SIZE].fill(0);
        }
        bytes
    };
    let (before, mut rng, mut done, mut refused) = (others(), Rng::new(5), 0, 0);
    for _ in 0..3000 {
        let (call, may) = forged(&mut rng, &lane, &granted);
        let what = format!("{call:?}").chars().take(90).collect::<String>();
        match forger.request(call) {
            StorageAnswer::Failed { .. } => refused += 1,
            answer => {
                assert!(may, "{what}");
                if let StorageAnswer::Data { blocks } = answer {
                    let own = |b: &SharedBlock| b.iter().all(|byte| [0, 1, 0xee].contains(byte));
                    assert!(blocks.iter().all(own), "bytes of others: {what}");
                }
                done += 1;
            }
        }
    }
    assert!(done > 100 && refused > 1000, "{done} done, {refused} refused");
    assert!(others() == before, "something else was written");
    give_back(&program.session, lane.lease).unwrap();
    v.close().unwrap();
}

/// A thread that reads ahead after its answer brings pages in that are granted meanwhile: what is
/// written at the target is read all the same.
#[test]
fn pages_read_ahead_under_a_grant_are_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(32 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let session = program.session.clone();
    let (_, handle) = make(&session, "f", &[1; 512 * BLOCK_SIZE]);
    let held = lease(&session, handle).unwrap();
    // Nothing of it is cached any more.
    direct(&session, held, handle).unwrap();
    let (own, (tell, told)) = (session.clone(), channel());
    let reading = Request::Read { file: handle.into(), offset: 0, len: 1 << 17 };
    let done = Box::new(move |read: siftfs_base::Result<Reply>| {
        read.unwrap();
        tell.send(direct(&own, held, handle).unwrap()).unwrap();
    });
    session.submit(&Credentials::default(), reading, done);
    let granted = told.recv().unwrap();
    let attached = attach(&machine, granted.token).unwrap();
    attached.write_at(home(&granted, 33 * BLOCK), &[2; BLOCK_SIZE], false).unwrap();
    let found = bytes_of(&session, handle.into(), 33 * BLOCK, BLOCK as u32);
    assert!(found == [2; BLOCK_SIZE]);
    give_back(&session, held).unwrap();
    v.close().unwrap();
}
