//! Appends at the target, and first writes to preallocated blocks. They are the file's after its
//! fsync, whatever dies then, and never anything else than what its program wrote, or zeros.

use super::direct::{Program, ask, bytes_of, home, lease, make, open, program, put, user};
use super::forger::attach;
use super::machine::{Machine, Way};
use super::{WAYS, data, host, volume};
use siftfs_base::{BLOCK_SIZE, Rng};
use siftfs_device::FaultDevice;
use siftfs_device_target::Queue;
use siftfs_placement::LocalVolume;
use siftfs_proto::*;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: u64 = BLOCK_SIZE as u64;
const KIB: u64 = 1 << 10;
/// What others' files left in the free blocks.
const DIRT: u8 = 0xaa;

/// A volume whose free blocks hold bytes of a file that is gone.
pub fn soiled(size: u64) -> FaultDevice {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(size), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let session = user(&v);
    let (_, handle) = make(&session, "gone", &[DIRT; 256 * BLOCK_SIZE]);
    let piece = vec![DIRT; 64 * BLOCK_SIZE];
    for at in (256..size / BLOCK - 3000).step_by(64) {
        ask(&session, Request::write(handle, at * BLOCK, piece.clone())).unwrap();
    }
    ask(&session, Request::Fsync { file: handle.into(), datasync: false }).unwrap();
    ask(&session, Request::Release { handle }).unwrap();
    ask(&session, Request::Unlink { parent: ROOT_INO, name: "gone".into() }).unwrap();
    v.close().unwrap();
    FaultDevice::from_image(machine.disk.contents(), 1)
}

/// `e2fsck -fn` finds nothing at all.
pub fn e2fsck(machine: &Machine) {
    let file = tempfile::NamedTempFile::new().unwrap();
    machine.disk.contents().save(file.path()).unwrap();
    let out = Command::new("e2fsck").arg("-fn").arg(file.path()).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}");
    for line in text.lines().filter(|line| !line.is_empty()) {
        assert!(line.starts_with("Pass ") || line.contains("files ("), "{text}");
    }
}

/// A program that has room behind its file.
pub struct Appender {
    pub program: Program,
    pub handle: Handle,
    pub lease: LeaseId,
    pub granted: siftfs_proto::Direct,
    pub attached: Queue,
}

fn room(program: &Program, (lease, handle): (LeaseId, Handle), room: u64) -> Result<Direct, i32> {
    let asked = Request::LeaseDirect { lease, file: handle.into(), room };
    ask(&program.session, asked).map(|reply| reply.direct().unwrap())
}

impl Appender {
    pub fn of(machine: &Machine, v: &LocalVolume, name: &str, wanted: u64) -> Self {
        let program = program(v);
        let handle = open(&program.session, name);
        let lease = lease(&program.session, handle).unwrap();
        let granted = room(&program, (lease, handle), wanted).unwrap();
        let attached = attach(machine, granted.token).unwrap();
        Self { program, handle, lease, granted, attached }
    }

    /// A new file with these bytes, and room behind it.
    pub fn new(machine: &Machine, v: &LocalVolume, bytes: &[u8], wanted: u64) -> Self {
        let session = user(v);
        let (_, handle) = make(&session, "f", bytes);
        ask(&session, Request::Fsync { file: handle.into(), datasync: false }).unwrap();
        ask(&session, Request::Release { handle }).unwrap();
        Self::of(machine, v, "f", wanted)
    }

    /// Fresh blocks of the file that are granted.
    pub fn fresh(&self) -> Vec<u64> {
        let runs = self.granted.runs.iter().filter(|run| run.fresh);
        runs.flat_map(|run| run.first..run.first + run.count).collect()
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        let (mut at, mut left) = (at, bytes);
        while !left.is_empty() {
            let len = left.len().min((BLOCK - at % BLOCK) as usize);
            self.attached.write_at(home(&self.granted, at), &left[..len], false).unwrap();
            (at, left) = (at + len as u64, &left[len..]);
        }
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![1; len];
        self.attached.read_at(home(&self.granted, at), &mut bytes).unwrap();
        bytes
    }

    pub fn fsync(&self, datasync: bool) -> Result<(), i32> {
        let file = self.handle.into();
        ask(&self.program.session, Request::Fsync { file, datasync }).map(drop)
    }

    pub fn give_back(&self) {
        ask(&self.program.session, Request::LeaseReturn { lease: self.lease }).unwrap();
    }
}

fn attr(session: &Arc<dyn FileService>, name: &str) -> Attr {
    let found = ask(session, Request::Lookup { parent: ROOT_INO, name: name.into() });
    found.unwrap().attr().unwrap()
}

/// All bytes of a file, as another user reads them.
pub fn all(v: &LocalVolume, name: &str) -> Vec<u8> {
    let session = user(v);
    let (size, handle) = (attr(&session, name).size, open(&session, name));
    let mut bytes = Vec::new();
    loop {
        let more = bytes_of(&session, handle.into(), bytes.len() as u64, 1 << 16);
        if more.is_empty() {
            break;
        }
        bytes.extend(more);
    }
    assert_eq!(bytes.len() as u64, size);
    bytes
}

/// Bytes of the area as the disk has them.
fn on_disk(machine: &Machine, at: u64, len: usize) -> Vec<u8> {
    let header = siftfs_volume::read_headers(&*machine.disk).unwrap().header;
    let descs = siftfs_volume::region_descs(&header);
    let area = descs.into_iter().find(|d| d.kind == siftfs_device::RegionKind::Area).unwrap();
    let mut bytes = vec![0; len];
    machine.disk.contents().read(area.offset + at, &mut bytes);
    bytes
}

/// The host dies, and the target with its power; the volume as it is found then.
pub fn everything_dies(v: LocalVolume, machine: Machine, seed: u64) -> (LocalVolume, Machine) {
    v.abandon();
    let machine = machine.power_fails(Way::SharedMemory, seed);
    (host(&machine).unwrap(), machine)
}

/// Rule R30: a fresh block reads as zeros though the disk has another file's bytes there, and what
/// is written in part has zeros around it; after its fsync it is the file's, over a power cut.
#[test]
fn r30_an_append_is_the_files_after_its_fsync() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(soiled(48 << 20), way, dir.path());
        let v = host(&machine).unwrap();
        let mut model = data(&mut Rng::new(1), 10 * BLOCK_SIZE);
        let own = Appender::new(&machine, &v, &model, 64 * KIB);
        assert_eq!(own.fresh(), (10..26).collect::<Vec<_>>(), "{way:?}: 64 KiB behind the end");
        let dirty = |block: &u64| {
            on_disk(&machine, home(&own.granted, block * BLOCK), 4096) == [DIRT; 4096]
        };
        assert!(own.fresh().iter().all(dirty), "other bytes lie there");
        assert!(own.read(10 * BLOCK, 16 * BLOCK_SIZE).iter().all(|byte| *byte == 0), "{way:?}");
        let more = data(&mut Rng::new(2), 2 * BLOCK_SIZE + 100);
        own.write(10 * BLOCK, &more);
        own.write(14 * BLOCK + 50, b"here");
        model.extend(&more);
        model.resize(14 * BLOCK_SIZE + 50, 0);
        model.extend(b"here");
        let mut seen = own.read(10 * BLOCK, 5 * BLOCK_SIZE);
        assert!(seen.split_off(4 * BLOCK_SIZE + 54).iter().all(|byte| *byte == 0));
        assert!(seen == model[10 * BLOCK_SIZE..], "{way:?}");
        let size = || {
            let file = own.handle.into();
            ask(&own.program.session, Request::GetAttr { file }).unwrap().attr().unwrap().size
        };
        assert_eq!(size(), 10 * BLOCK, "the host knows nothing of it yet");
        own.fsync(true).unwrap();
        assert_eq!(size(), model.len() as u64);
        // A block that was reported keeps what is written to it without another report.
        own.write(10 * BLOCK + 7, b"over");
        model[10 * BLOCK_SIZE + 7..][..4].copy_from_slice(b"over");
        own.attached.flush().unwrap();
        if way == Way::SharedMemory {
            let (v, machine) = everything_dies(v, machine, 7);
            assert!(all(&v, "f") == model, "{way:?}");
            v.close().unwrap();
            e2fsck(&machine);
        } else {
            own.give_back();
            assert!(all(&v, "f") == model, "{way:?}");
            v.close().unwrap();
            e2fsck(&machine);
        }
    }
}

/// What was appended and not synced may be lost, but what is left is the file as it was, or what
/// its program wrote, whatever dies.
#[test]
fn r30_an_append_without_fsync_is_never_garbage() {
    for seed in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::start(soiled(48 << 20), Way::SharedMemory, dir.path());
        let mut v = host(&machine).unwrap();
        let own = Appender::new(&machine, &v, &[1; 3 * BLOCK_SIZE], 64 * KIB);
        own.write(3 * BLOCK, &[2; 2 * BLOCK_SIZE]);
        if seed % 2 == 0 {
            own.attached.flush().unwrap();
        }
        match seed % 3 {
            0 => (v, machine) = everything_dies(v, machine, seed),
            1 => {
                v.abandon();
                v = host(&machine).unwrap();
            }
            _ => {
                machine = machine.power_fails(Way::SharedMemory, seed);
                assert_eq!(own.fsync(false), Err(libc::EIO), "the report died with the target");
                assert_eq!(own.fsync(false), Ok(()), "it is told once");
            }
        }
        let found = all(&v, "f");
        assert!(found == [1; 3 * BLOCK_SIZE], "seed {seed}: {} bytes", found.len());
        v.close().unwrap();
        e2fsck(&machine);
    }
}

/// Another session that wants the file gets it with all that was appended, synced or not.
#[test]
fn another_session_sees_what_was_appended() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(soiled(48 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let mut model = vec![1; 3 * BLOCK_SIZE + 10];
    let own = Appender::new(&machine, &v, &model, 64 * KIB);
    assert_eq!(own.fresh().first(), Some(&4), "the block that has the end stays with the host");
    own.write(4 * BLOCK, &[2; 5000]);
    model.resize(4 * BLOCK_SIZE, 0);
    model.extend([2; 5000]);
    let session = own.program.session.clone();
    let told = thread::spawn(move || {
        let lease = own.program.told.recv().unwrap();
        ask(&session, Request::LeaseReturn { lease }).unwrap();
    });
    assert!(all(&v, "f") == model);
    told.join().unwrap();
    // It is as durable as anything that is written: after an fsync by anybody.
    let other = user(&v);
    let file = open(&other, "f").into();
    ask(&other, Request::Fsync { file, datasync: true }).unwrap();
    let (v, machine) = everything_dies(v, machine, 3);
    assert!(all(&v, "f") == model);
    v.close().unwrap();
    e2fsck(&machine);
}

pub fn free(v: &LocalVolume) -> u64 {
    v.checkpoint().unwrap();
    ask(&user(v), Request::StatFs).unwrap().space().unwrap().free
}

/// What was set aside and not written is free again when the lease has ended, also after a crash of
/// the host; what its user had preallocated stays.
#[test]
fn room_is_given_back_and_the_users_own_stays() {
    for (kept, crash) in [(0, false), (512 * KIB, false), (0, true), (512 * KIB, true)] {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::start(volume(48 << 20), Way::SharedMemory, dir.path());
        let mut v = host(&machine).unwrap();
        let session = user(&v);
        let (_, handle) = make(&session, "f", &[1; 2 * BLOCK_SIZE]);
        if kept > 0 {
            let (file, mode) = (handle.into(), Allocate::KeepSize);
            let keep = Request::Allocate { file, mode, offset: 0, len: kept, times: true };
            ask(&session, keep).unwrap();
        }
        drop(session);
        let before = free(&v);
        let own = Appender::of(&machine, &v, "f", 1 << 20);
        assert_eq!(own.fresh(), (2..258).collect::<Vec<_>>());
        let allocated = before - free(&v);
        let wanted = (1 << 20) / BLOCK + 2 - (kept / BLOCK).max(2);
        assert!((wanted..wanted + 3).contains(&allocated), "{allocated} blocks set aside");
        own.write(2 * BLOCK, &[2; BLOCK_SIZE]);
        if !(crash && kept > 0) {
            own.fsync(false).unwrap();
        }
        // Without it the room is the file's nevertheless: that was journaled before the grant.
        if crash {
            (v, machine) = everything_dies(v, machine, 3);
        } else {
            own.give_back();
        }
        let used = 3u64.saturating_sub((kept / BLOCK).max(2));
        let stays = if crash && kept > 0 { wanted } else { used };
        let after = before - free(&v);
        assert!((stays..stays + 2).contains(&after), "{after} of {allocated} blocks stay");
        let on_disk = attr(&user(&v), "f").blocks * 512 / BLOCK;
        assert!(on_disk >= (kept / BLOCK).max(3), "{on_disk} blocks are the file's");
        v.close().unwrap();
        e2fsck(&machine);
    }
}

/// What the holder of a lease with room preallocates by itself stays when the lease ends, and in a
/// crash after that; the rest of the room goes.
#[test]
fn what_the_holder_preallocates_stays() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(48 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let own = Appender::new(&machine, &v, &[1; 2 * BLOCK_SIZE], 1 << 20);
    let (file, mode) = (own.handle.into(), Allocate::KeepSize);
    let keep = Request::Allocate { file, mode, offset: 4 * BLOCK, len: 9 * BLOCK, times: true };
    ask(&own.program.session, keep).unwrap();
    assert!(own.attached.flush().is_err(), "it takes back what was granted");
    own.give_back();
    let blocks = |v: &LocalVolume| attr(&user(v), "f").blocks * 512 / BLOCK;
    assert_eq!(blocks(&v), 2 + 9);
    v.commit(true).unwrap();
    let (v, machine) = everything_dies(v, machine, 4);
    assert_eq!(blocks(&v), 2 + 9);
    v.close().unwrap();
    e2fsck(&machine);
}

/// A file that is removed while it has room leaves nothing behind.
#[test]
fn a_removed_file_takes_its_room_along() {
    for crash in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::start(volume(48 << 20), Way::SharedMemory, dir.path());
        let mut v = host(&machine).unwrap();
        let before = free(&v);
        let own = Appender::new(&machine, &v, &[1; 2 * BLOCK_SIZE], 1 << 20);
        own.write(2 * BLOCK, &[2; BLOCK_SIZE]);
        let remove = Request::Unlink { parent: ROOT_INO, name: "f".into() };
        ask(&own.program.session, remove).unwrap();
        if crash {
            v.commit(true).unwrap();
            (v, machine) = everything_dies(v, machine, 4);
        } else {
            own.give_back();
            let handle = own.handle;
            ask(&own.program.session, Request::Release { handle }).unwrap();
            ask(&own.program.session, Request::EndSession).unwrap();
        }
        let begun = Instant::now();
        while free(&v) < before {
            assert!(begun.elapsed() < Duration::from_secs(10), "{} of {before} free", free(&v));
        }
        v.close().unwrap();
        e2fsck(&machine);
    }
}

/// fallocate(2) within the size: those blocks are written at the target, too.
#[test]
fn preallocated_blocks_are_written_at_the_target() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = Machine::start(soiled(48 << 20), Way::SharedMemory, dir.path());
    let mut v = host(&machine).unwrap();
    let session = user(&v);
    let (_, handle) = make(&session, "f", &[1; BLOCK_SIZE]);
    let (file, mode) = (handle.into(), Allocate::Grow);
    let grow = Request::Allocate { file, mode, offset: 0, len: 40 * BLOCK, times: true };
    ask(&session, grow).unwrap();
    drop(session);
    let (mut model, mut rng) = (vec![0; 40 * BLOCK_SIZE], Rng::new(6));
    model[..BLOCK_SIZE].fill(1);
    for round in 0..4 {
        let own = Appender::of(&machine, &v, "f", 0);
        assert!(!own.fresh().is_empty() && own.fresh().last() < Some(&40), "round {round}");
        for _ in 0..20 {
            let (at, len) = (rng.below(38 * BLOCK), 1 + rng.below(6000) as usize);
            let bytes = data(&mut rng, len);
            own.write(at, &bytes);
            model[at as usize..][..len].copy_from_slice(&bytes);
            let at = rng.below(39 * BLOCK);
            let want = &model[at as usize..][..(BLOCK - at % BLOCK) as usize];
            assert!(own.read(at, want.len()) == want, "round {round}, at {at}");
        }
        own.fsync(true).unwrap();
        (v, machine) = everything_dies(v, machine, round);
        assert!(all(&v, "f") == model, "round {round}");
    }
    v.close().unwrap();
    e2fsck(&machine);
}

/// Where space is short there is less room, or none; nothing fails, and others find space.
#[test]
fn short_space_gives_less_room() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(24 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let own = Appender::new(&machine, &v, &[1; 2 * BLOCK_SIZE], u64::MAX);
    let some = own.fresh().len() as u64;
    assert!(some > 100 && some * BLOCK < 24 << 20, "{some} blocks");
    let (filler, space) = (user(&v), free(&v));
    assert!(space > some, "most of the space is left to others");
    let (_, handle) = make(&filler, "filler", b"x");
    let (mut at, piece) = (0, vec![3; 64 * BLOCK_SIZE]);
    while ask(&filler, Request::write(handle, at, piece.clone())).is_ok() {
        at += piece.len() as u64;
    }
    assert!(at / BLOCK + 500 > space - some / 4, "{at} bytes were written");
    own.write(2 * BLOCK, &[2; BLOCK_SIZE]);
    own.fsync(false).unwrap();
    // There is no more room than it has.
    let again = room(&own.program, (own.lease, own.handle), 1 << 26).unwrap();
    let now = again.runs.iter().filter(|run| run.fresh).map(|run| run.count).sum::<u64>();
    assert!(now <= some, "{now} of {some} blocks");
    own.give_back();
    let begun = Instant::now();
    while ask(&filler, Request::write(handle, at, piece.clone())).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "what was set aside is not free");
        v.checkpoint().unwrap();
    }
    assert!(all(&v, "f") == [[1; 2 * BLOCK_SIZE].as_slice(), &[2; BLOCK_SIZE]].concat());
    v.close().unwrap();
    e2fsck(&machine);
}

/// The host makes zeros of what lies between the end and a write behind it. Where the program has
/// the block of the end, what it wrote there comes first.
#[test]
fn a_write_behind_the_end_takes_the_end_back() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(soiled(48 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine).unwrap();
    let own = Appender::new(&machine, &v, &[1; 2 * BLOCK_SIZE], 64 * KIB);
    own.write(2 * BLOCK, &[2; 100]);
    own.fsync(true).unwrap();
    own.write(2 * BLOCK + 100, &[3; 50]);
    put(&own.program.session, own.lease, (40 * BLOCK, &[4; 10])).unwrap();
    assert!(own.attached.flush().is_err(), "the block of the end was the program's");
    own.fsync(true).unwrap();
    let mut model = [&[1; 2 * BLOCK_SIZE][..], &[2; 100], &[3; 50]].concat();
    model.resize(40 * BLOCK_SIZE, 0);
    model.extend([4; 10]);
    let (v, machine) = everything_dies(v, machine, 1);
    assert!(all(&v, "f") == model);
    v.close().unwrap();
    e2fsck(&machine);
}

/// More runs than one report has room for: all of them are told, at an fsync and at the end.
#[test]
fn many_runs_are_reported_in_rounds() {
    for synced in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(soiled(96 << 20), Way::SharedMemory, dir.path());
        let v = host(&machine).unwrap();
        let own = Appender::new(&machine, &v, &[1; BLOCK_SIZE], 12 << 20);
        assert!(own.fresh().len() >= 3000, "{} blocks", own.fresh().len());
        let mut model = vec![0; 2999 * BLOCK_SIZE];
        model[..BLOCK_SIZE].fill(1);
        for block in (2..2999).step_by(2) {
            own.write(block * BLOCK, &[block as u8 | 1; BLOCK_SIZE]);
            model[block as usize * BLOCK_SIZE..][..BLOCK_SIZE].fill(block as u8 | 1);
        }
        match synced {
            true => own.fsync(true).unwrap(),
            false => own.give_back(),
        }
        let (v, machine) = everything_dies(v, machine, 1);
        assert!(all(&v, "f") == model, "synced: {synced}");
        v.close().unwrap();
        e2fsck(&machine);
    }
}
