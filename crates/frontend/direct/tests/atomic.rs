//! Atomic sections of direct files: whole or not there, whatever way they go and whatever dies.

#[path = "support/mod.rs"]
mod support;

use siftfs_base::{Error, Rng};
use siftfs_device::{Fault, OpClass};
use siftfs_direct::DirectFile;
use siftfs_log::REDO_RING;
use siftfs_proto::{ROOT_INO, Request};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use support::machine::{Machine, Way};
use support::{
    all, ask, bytes, create, host, open, session, until_direct, user, volume, volume_with,
};

const REDO: u64 = 4 << 20;
const SIZE: usize = 100 * 4096;

/// A file with these bytes, which the host has written, whose blocks are granted: none as a fresh
/// one.
fn granted(program: &siftfs_direct::Session, model: &[u8]) -> DirectFile {
    let new = Request::Create { parent: ROOT_INO, name: "f".into(), perm: 0o644 };
    let (attr, handle) = ask(program.service(), new).created().unwrap();
    for (at, part) in (0..).step_by(1 << 16).zip(model.chunks(1 << 16)) {
        ask(program.service(), Request::write(handle, at, part.to_vec()));
    }
    ask(program.service(), Request::Fsync { file: handle.into(), datasync: false });
    let file = program.file(handle, attr.ino);
    until_direct(&file);
    file
}

type Writes = Vec<(u64, Vec<u8>)>;

fn commit(file: &DirectFile, writes: &Writes) -> siftfs_base::Result<()> {
    let mut section = file.atomic_start();
    for (at, bytes) in writes {
        section.write_at(*at, bytes).unwrap();
    }
    section.commit()
}

fn put(model: &mut Vec<u8>, writes: &Writes) {
    for (at, bytes) in writes {
        let end = *at as usize + bytes.len();
        model.resize(model.len().max(end), 0);
        model[*at as usize..end].copy_from_slice(bytes);
    }
}

fn some(rng: &mut Rng, most: u64) -> Writes {
    let one = |rng: &mut Rng| {
        let len = rng.between(1, most) as usize;
        (rng.below((SIZE - len) as u64), bytes(rng, len))
    };
    (0..rng.between(1, 4)).map(|_| one(rng)).collect()
}

/// Bytes that went to the ring of the lane.
fn in_the_ring(machine: &Machine) -> bool {
    let header = siftfs_volume::read_headers(&*machine.disk).unwrap().header;
    let ring = header.redo.unwrap().offset + REDO_RING;
    machine.disk.contents().bytes(ring, 4096).iter().any(|byte| *byte != 0)
}

/// With a lane and without one, in what is granted and beside it; each section as a whole, and
/// nothing before its commit or after its abort.
#[test]
fn sections_are_whole_by_either_way() {
    for lane in [Some(REDO), None] {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume_with(48 << 20, lane), Way::SharedMemory, dir.path());
        let v = host(&machine);
        let (program, other, mut rng) = (session(&v), user(&v), Rng::new(7));
        let mut model = bytes(&mut rng, SIZE);
        let file = granted(&program, &model);
        for round in 0..40 {
            let mut writes = some(&mut rng, 60_000);
            if round % 10 == 9 {
                // Behind the file's end, which the host alone makes longer.
                writes.push((model.len() as u64 + 100, bytes(&mut rng, 5000)));
            }
            let mut given_up = file.atomic_start();
            given_up.write_at(0, b"given up").unwrap();
            given_up.abort();
            commit(&file, &writes).unwrap();
            put(&mut model, &writes);
            let plain = bytes(&mut rng, 3000);
            let at = rng.below(90 * 4096);
            file.write_at(at, &plain).unwrap();
            put(&mut model, &vec![(at, plain)]);
            assert!(file.read_at(0, model.len()).unwrap() == model, "{lane:?}, round {round}");
        }
        if lane.is_some() {
            assert!(in_the_ring(&machine), "some went by the lane");
        }
        let handle = open(&other, "f");
        assert!(all(&other, handle) == model, "{lane:?}");
        drop((file, program));
        v.close().unwrap();
    }
}

/// The target dies, with its power, in the middle of sections, at any write: each that was answered
/// is there, each as a whole, and what was written before does not come over it.
#[test]
fn sections_outlive_their_target() {
    for seed in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::start(volume_with(48 << 20, Some(REDO)), Way::Unix, dir.path());
        let v = host(&machine);
        let (program, other, mut rng) = (session(&v), user(&v), Rng::new(seed));
        let mut model = bytes(&mut rng, SIZE);
        let file = granted(&program, &model);
        for _ in 0..3 {
            let plain = vec![(rng.below(300_000), bytes(&mut rng, 9000))];
            file.write_at(plain[0].0, &plain[0].1).unwrap();
            put(&mut model, &plain);
            let writes = some(&mut rng, 20_000);
            commit(&file, &writes).unwrap();
            put(&mut model, &writes);
        }
        let writes = some(&mut rng, 20_000);
        let (answer, back) = thread::scope(|scope| {
            machine.disk.cut_at(machine.disk.ops() + rng.below(3));
            let commits = scope.spawn(|| commit(&file, &writes));
            thread::sleep(Duration::from_millis(30));
            let back = machine.power_fails(Way::Unix, seed);
            (commits.join().unwrap(), back)
        });
        machine = back;
        let before = model.clone();
        put(&mut model, &writes);
        let found = file.read_at(0, model.len()).unwrap();
        let whole = found == model;
        assert!(whole || answer.is_err() && found == before, "seed {seed}: {answer:?}");
        drop((file, program));
        let handle = open(&other, "f");
        assert!(all(&other, handle) == found, "seed {seed}");
        v.close().unwrap();
        drop(machine);
    }
}

/// A lane that cannot be written any more is an error, and no silence.
#[test]
fn a_lane_that_fails_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume_with(48 << 20, Some(REDO)), Way::Unix, dir.path());
    let v = host(&machine);
    let (program, mut rng) = (session(&v), Rng::new(1));
    let file = granted(&program, &bytes(&mut rng, SIZE));
    let header = siftfs_volume::read_headers(&*machine.disk).unwrap().header;
    let redo = header.redo.unwrap();
    let lane = redo.offset..redo.offset + redo.len;
    machine.disk.inject(Fault::fail(OpClass::Write, libc::EIO).within(lane));
    let failed = commit(&file, &vec![(0, vec![1; 100])]).map_err(|error| error.errno());
    assert_eq!(failed, Err(libc::EIO));
    v.abandon();
}

#[test]
fn what_is_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(48 << 20), Way::Unix, dir.path());
    let v = host(&machine);
    let program = session(&v);
    let file = create(&program, "f");
    let mut section = file.atomic_start();
    let piece = vec![1; 6 << 20];
    section.write_at(0, &piece).unwrap();
    section.write_at(0, &piece).unwrap();
    assert_eq!(section.write_at(0, &piece), Err(Error::Posix(libc::EFBIG)));
    assert_eq!(section.write_at(u64::MAX, b"ab"), Err(Error::Posix(libc::EFBIG)));
    section.abort();
    assert_eq!(file.read_at(0, 10).unwrap(), b"");
    file.atomic_start().commit().unwrap();
    drop((file, program));
    v.close().unwrap();
}

/// No lease that another thread of the program asks for stands in the way of a section that goes by
/// the host.
#[test]
fn sections_by_the_host_beside_other_threads() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(48 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let program = session(&v);
    let file = granted(&program, &[1; 64 << 10]);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                assert_eq!(file.read_at(32 << 10, 4096).unwrap(), [1; 4096]);
            }
        });
        let commits = || -> siftfs_base::Result<()> {
            for round in 0..100 {
                let mut section = file.atomic_start();
                section.write_at(4096, &[round; 4096])?;
                section.write_at(16 << 10, &[round; 10])?;
                section.commit()?;
            }
            Ok(())
        };
        let committed = commits();
        over.store(true, Ordering::Release);
        committed.unwrap();
        reader.join().unwrap();
    });
    assert_eq!(file.read_at(4096, 4096).unwrap(), [99; 4096]);
    drop((file, program));
    v.close().unwrap();
}
