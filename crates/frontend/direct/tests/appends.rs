//! Files that are appended to at the target, as their program sees them: what it costs at the host,
//! and what is left when something dies.

#[path = "support/mod.rs"]
mod support;

use siftfs_base::{Error, Rng};
use siftfs_direct::{DirectFile, Session};
use siftfs_placement::LocalVolume;
use siftfs_proto::*;
use std::ops::Range;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use support::machine::{Machine, Way};
use support::{
    all, ask, bytes, create, find, host, opening, reach, session, until_direct, user, volume,
};

fn seeds() -> Range<u64> {
    0..if std::env::var_os("SIFTFS_LONG").is_some() { 60 } else { 5 }
}

/// Requests of a session, by what they are.
#[derive(Default)]
struct Counts {
    all: u64,
    written: u64,
    synced: u64,
    /// Grants that took the place of the one before, if there was one.
    granted: u64,
    /// Up to where room was asked for by what was granted; `true` if the session's thread did.
    extended: Vec<(u64, bool)>,
}

/// Counts what a program asks of the host, but for the leases that its session keeps.
struct Counting {
    inner: Arc<dyn FileService>,
    counts: Arc<Mutex<Counts>>,
}

impl FileService for Counting {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply, Error> {
        {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.all += u64::from(!matches!(req, Request::LeaseKeep { .. }));
            match &req {
                Request::LeaseWrite { .. } | Request::Write { .. } => counts.written += 1,
                Request::Fsync { .. } => counts.synced += 1,
                Request::LeaseDirect { .. } | Request::Lease { direct: Some(_), .. } => {
                    counts.granted += 1;
                }
                Request::LeaseExtend { end, .. } => {
                    let ahead = thread::current().name() == Some("siftfs-direct");
                    counts.extended.push((*end, ahead));
                }
                _ => {}
            }
        }
        self.inner.call(cred, req)
    }
}

fn counting(v: &LocalVolume) -> (Session, Arc<Mutex<Counts>>) {
    let counts = Arc::<Mutex<Counts>>::default();
    let own = counts.clone();
    let opened = Session::open(Box::new(reach), |holder| {
        let inner = v.holder(opening(), holder)?;
        Ok(Arc::new(Counting { inner, counts: own }) as Arc<dyn FileService>)
    });
    (opened.unwrap(), counts)
}

/// A stream of appends meets the host once for each room, which is twice as large each time, and by
/// one grant.
#[test]
fn a_stream_meets_the_host_seldom() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(256 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (program, counts) = counting(&v);
    let file = create(&program, "f");
    let block = |at: u64| [(at / 4096) as u8 | 1; 4096];
    for at in (0..64 << 20).step_by(4096) {
        file.write_at(at, &block(at)).unwrap();
    }
    file.sync_data().unwrap();
    {
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { all, granted, extended, .. } = &*counts;
        assert!(*all <= 30, "{all} requests: {extended:?}");
        assert_eq!(*granted, 1, "what is granted is not taken back for more");
        let ends: Vec<u64> = extended.iter().map(|(end, _)| *end).collect();
        assert!(ends.is_sorted() && *ends.last().unwrap() >= 64 << 20, "{ends:?}");
        let rooms: Vec<u64> = ends.windows(2).map(|ends| ends[1] - ends[0]).collect();
        assert!(rooms[0] >= 64 << 10 && rooms[0] <= 256 << 10, "{ends:?}");
        assert!(rooms.iter().any(|room| *room >= 15 << 20), "{ends:?}");
    }
    assert_eq!(file.read_at((64 << 20) - 10, 100).unwrap().len(), 10, "it ends there");
    for at in (0..64 << 20).step_by(999 * 4096) {
        assert!(file.read_at(at, 4096).unwrap() == block(at), "at {at}");
    }
    // What is written already is overwritten durably without the host.
    let before = counts.lock().unwrap_or_else(PoisonError::into_inner).all;
    for at in [40 << 20, 63 << 20] {
        file.write_durable_at(at, &[9; 4096]).unwrap();
    }
    assert_eq!(counts.lock().unwrap_or_else(PoisonError::into_inner).all, before);
    v.abandon();
    let machine = machine.power_fails(Way::SharedMemory, 1);
    let v = host(&machine);
    let reader = user(&v);
    let handle = support::open(&reader, "f");
    for at in (0..64 << 20).step_by(97 * 4096) {
        let read = Request::Read { file: handle.into(), offset: at, len: 4096 };
        let want = if at == 40 << 20 || at == 63 << 20 { [9; 4096] } else { block(at) };
        assert!(ask(&reader, read).data().unwrap() == want, "at {at}");
    }
    v.close().unwrap();
}

/// A little that is appended durably is one request to the host, and outlives its power.
#[test]
fn a_small_durable_append_is_one_request() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (program, counts) = counting(&v);
    let file = create(&program, "f");
    let (line, mut want) = ([b'x'; 3001], Vec::new());
    let append = |want: &mut Vec<u8>| {
        file.write_durable_at(want.len() as u64, &line).unwrap();
        want.extend_from_slice(&line);
    };
    (0..40).for_each(|_| append(&mut want));
    // What went before one without being durable is so by it.
    file.write_at(want.len() as u64, &line).unwrap();
    want.extend_from_slice(&line);
    append(&mut want);
    {
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!((counts.written, counts.synced), (42, 0), "writes that are durable");
        let room = counts.extended.iter().any(|(end, _)| *end > want.len() as u64);
        assert!(!room, "they are no stream: {:?}", counts.extended);
        assert!(counts.all < 60, "{} requests", counts.all);
    }
    v.abandon();
    let machine = machine.power_fails(Way::SharedMemory, 1);
    let v = host(&machine);
    let reader = user(&v);
    let file = support::open(&reader, "f").into();
    let read = Request::Read { file, offset: 0, len: 1 << 18 };
    assert!(ask(&reader, read).data().unwrap() == want);
    v.close().unwrap();
}

/// The lease of a file comes with what is granted of it.
#[test]
fn a_lease_and_its_grant_are_one_request() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let made = user(&v);
    let new = Request::Create { parent: ROOT_INO, name: "f".into(), perm: 0o644 };
    let (_, handle) = ask(&made, new).created().unwrap();
    let model = bytes(&mut Rng::new(7), 5 * 4096);
    ask(&made, Request::write(handle, 0, model.clone()));
    ask(&made, Request::Fsync { file: handle.into(), datasync: false });
    ask(&made, Request::Release { handle });
    let (program, counts) = counting(&v);
    let (handle, ino) = find(program.service(), "f");
    let file = program.file(handle, ino);
    assert_eq!(file.read_at(4096, 4096).unwrap(), model[4096..8192]);
    assert!(file.is_direct(), "what was read lies at the target");
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!((counts.all, counts.granted), (3, 1), "to find it, open it, and lease it");
    drop(counts);
    assert_eq!(file.read_at(4 * 4096, 9999).unwrap().len(), 4096, "it ends there");
    drop((file, program));
    v.close().unwrap();
}

/// A writer that is no faster than the host finds room whenever it needs some: the session's thread
/// has asked for it while the last was in use.
#[test]
fn room_is_there_before_it_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (program, counts) = counting(&v);
    let file = create(&program, "f");
    let asked = || counts.lock().unwrap_or_else(PoisonError::into_inner).extended.clone();
    // The first two appends begin the stream, and wait for its first room.
    let mut at = 0;
    let mut append = |len: usize| {
        file.write_at(at, &vec![5; len]).unwrap();
        at += len as u64;
        at
    };
    append(4096);
    append(4096);
    let mut end = asked()[0].0;
    for round in 1..6 {
        while append(4096) + 4096 <= end {}
        let until = Instant::now() + Duration::from_secs(10);
        while asked().len() <= round {
            assert!(Instant::now() < until, "nobody asks for room: {:?}", asked());
            thread::sleep(Duration::from_millis(1));
        }
        end = asked()[round].0;
        // The room is the file's when the answer has come, soon after the question.
        thread::sleep(Duration::from_millis(50));
    }
    assert!(asked().iter().skip(1).all(|(_, ahead)| *ahead), "{:?}", asked());
    file.sync_data().unwrap();
    assert!(file.read_at(0, end as usize).unwrap().iter().all(|byte| *byte == 5));
    v.close().unwrap();
}

/// A file with holes that are filled later, and one of more runs than are granted at once, is read
/// and written at the target where it is used.
#[test]
fn what_is_used_is_granted_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(128 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (program, counts) = counting(&v);
    let file = create(&program, "f");
    // Every other block of 40 MiB: runs of one block.
    for block in (0..10_240).step_by(2) {
        file.write_at(block * 4096, &[1; 4096]).unwrap();
    }
    file.set_len(40 << 20).unwrap();
    file.sync_all().unwrap();
    until_direct(&file);
    let written = || {
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        (counts.written, counts.granted)
    };
    // The last ones are beyond what one grant names; they are asked for when they were missed.
    let (until, granted) = (Instant::now() + Duration::from_secs(30), written().1);
    loop {
        let before = written();
        for round in 0..100 {
            file.write_at(4096 * (10_238 - 2 * round), &[3; 4096]).unwrap();
        }
        if written() == before {
            break;
        }
        let asked = counts.lock().unwrap_or_else(PoisonError::into_inner).extended.len();
        assert!(Instant::now() < until, "some of it goes to the host: {before:?}, {asked}");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(written().1, granted, "nothing was taken back for that");
    file.sync_data().unwrap();
    for block in 0..10_240 {
        let byte = if block % 2 == 1 { 0 } else { if block >= 10_040 { 3 } else { 1 } };
        assert_eq!(file.read_at(block * 4096, 4096).unwrap(), [byte; 4096], "block {block}");
    }
    v.close().unwrap();
}

/// A little that is appended and made durable, again and again, is the host's: one request to
/// write, and one to sync.
#[test]
fn small_durable_appends_are_the_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(48 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (program, counts) = counting(&v);
    let file = create(&program, "f");
    let append = |at: u64, len: usize| file.write_at(at, &vec![7; len]).unwrap();
    for round in 0..100 {
        append(round * 3000, 3000);
        file.sync_data().unwrap();
    }
    {
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!((counts.written, counts.synced), (100, 100));
        // What is home by now may be granted meanwhile, and is not room.
        let room = counts.extended.iter().any(|(end, _)| *end > 300_000);
        assert!(!room, "{:?}", counts.extended);
        assert!(counts.all < 220, "{} requests", counts.all);
    }
    // As much as a stream goes to the target, and what comes after it in small pieces does not.
    for at in (300_000..600_000).step_by(4096) {
        append(at, 4096);
    }
    let end = 300_000 + 74 * 4096;
    assert!(
        counts.lock().unwrap_or_else(PoisonError::into_inner).written < 125,
        "most of it went to the target"
    );
    file.sync_data().unwrap();
    append(end, 3000);
    file.sync_data().unwrap();
    let before = counts.lock().unwrap_or_else(PoisonError::into_inner).written;
    for round in 1..11 {
        append(end + round * 3000, 3000);
        file.sync_data().unwrap();
    }
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(counts.written, before + 10);
    drop(counts);
    drop((file, program));
    v.close().unwrap();
}

/// What a program has written of a file, and how much of that it has made durable.
struct Model {
    bytes: Vec<u8>,
    durable: Vec<u8>,
}

/// A program appends, overwrites, leaves holes behind its end, reads and syncs.
fn step(file: &DirectFile, model: &mut Model, rng: &mut Rng, round: u64) {
    let end = model.bytes.len() as u64;
    let len = [1, 100, 4096, 4096, 4096, 9000, 100_000][rng.below(7) as usize];
    let at = match rng.below(12) {
        0 => end + rng.below(20_000),
        1..3 => rng.below(end + 1),
        _ => end,
    };
    let data = bytes(rng, len);
    match rng.below(20) {
        0 => file.write_durable_at(at, &data).unwrap(),
        _ => file.write_at(at, &data).unwrap(),
    }
    let model_end = model.bytes.len().max(at as usize + len);
    model.bytes.resize(model_end, 0);
    model.bytes[at as usize..at as usize + len].copy_from_slice(&data);
    if rng.below(4) == 0 {
        let (at, len) = (rng.below(model.bytes.len() as u64), 1 + rng.below(9000) as usize);
        let end = model.bytes.len().min(at as usize + len);
        let found = file.read_at(at, len).unwrap();
        assert!(found == model.bytes[at as usize..end], "round {round}: {len} bytes at {at}");
    }
    match rng.below(25) {
        0 => file.sync_all().unwrap(),
        1..3 => file.sync_data().unwrap(),
        _ => return,
    }
    model.durable.clone_from(&model.bytes);
}

/// What was appended outlives the target's power, synced or not: the program keeps what the host
/// has not heard of.
#[test]
fn appends_outlive_the_targets_power() {
    for seed in seeds() {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
        let v = host(&machine);
        let (program, counts) = counting(&v);
        let (file, mut rng) = (create(&program, "f"), Rng::new(seed));
        let mut model = Model { bytes: Vec::new(), durable: Vec::new() };
        for round in 0..4 {
            for _ in 0..60 {
                step(&file, &mut model, &mut rng, round);
            }
            machine = machine.power_fails(Way::SharedMemory, rng.below(u64::MAX));
            match rng.below(3) {
                0 => file.sync_data().unwrap(),
                1 => file.sync_all().unwrap(),
                _ => {}
            }
            let found = file.read_at(0, model.bytes.len() + 1).unwrap();
            assert!(found == model.bytes, "seed {seed}, round {round}");
        }
        file.sync_data().unwrap();
        assert!(
            !counts.lock().unwrap_or_else(PoisonError::into_inner).extended.is_empty(),
            "all of it went to the host"
        );
        drop((file, program));
        let reader = user(&v);
        assert!(all(&reader, support::open(&reader, "f")) == model.bytes, "seed {seed}");
        v.close().unwrap();
    }
}

/// The target dies, and the next thing is more room: what the host has not heard of is given to it.
#[test]
fn a_target_that_dies_before_there_is_more_room() {
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
        let v = host(&machine);
        let (program, mut rng) = (session(&v), Rng::new(seed));
        let file = create(&program, "f");
        let mut model = bytes(&mut rng, 70_000);
        file.write_at(0, &model).unwrap();
        if seed % 2 == 0 {
            // The room is full: what comes goes to the host, and nothing looks for the target.
            let rest = bytes(&mut rng, 18 * 4096 - 70_000);
            file.write_at(70_000, &rest).unwrap();
            model.extend(rest);
        }
        let machine = machine.power_fails(Way::SharedMemory, seed);
        let more = bytes(&mut rng, 1 << 20);
        file.write_at(model.len() as u64, &more).unwrap();
        model.extend(more);
        file.sync_data().unwrap();
        assert!(file.read_at(0, 2 << 20).unwrap() == model, "seed {seed}");
        v.abandon();
        drop((file, program));
        let machine = machine.power_fails(Way::SharedMemory, seed);
        let v = host(&machine);
        let reader = user(&v);
        assert!(all(&reader, support::open(&reader, "f")) == model, "seed {seed}");
        v.close().unwrap();
    }
}

/// The host does not know of the end yet, and a hole before that end is read by it: as zeros.
#[test]
fn a_hole_behind_the_end_that_the_host_knows() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (program, counts) = counting(&v);
    let file = create(&program, "f");
    // A hole, which is the host's, and a stream behind it.
    file.write_at(0, &[1; 4096]).unwrap();
    file.write_at(80_000, &[1; 10]).unwrap();
    let mut model = [&[1; 4096][..], &[0; 80_000 - 4096], &[1; 10]].concat();
    for _ in 0..30 {
        file.write_at(model.len() as u64, &[2; 3001]).unwrap();
        model.extend([2; 3001]);
    }
    let extended = || counts.lock().unwrap_or_else(PoisonError::into_inner).extended.clone();
    let before = extended();
    for _ in 0..65 {
        assert_eq!(file.read_at(8192, 10).unwrap(), [0; 10]);
    }
    let (room, asked) = (before.last().copied(), extended());
    let more = asked.len() == before.len() + 1;
    assert!(more && room > Some((model.len() as u64, true)), "{before:?}, then {asked:?}");
    // What was asked for ahead may not have come then.
    let end = asked.last().map(|(end, _)| *end);
    let stays = before.iter().any(|(room, _)| Some(*room) == end) && end > Some(model.len() as u64);
    assert!(stays, "the room stays: {before:?}, then {asked:?}");
    let at = model.len() + 5000;
    file.write_at(at as u64, b"behind").unwrap();
    model.resize(at, 0);
    model.extend(b"behind");
    assert!(file.read_at(0, 1 << 20).unwrap() == model);
    file.sync_data().unwrap();
    let reader = user(&v);
    drop((file, program));
    assert!(all(&reader, support::open(&reader, "f")) == model);
    v.close().unwrap();
}

/// What was synced is there after everything died, and what was not is what the program wrote, or
/// zeros, or not there.
#[test]
fn what_was_synced_outlives_host_and_target() {
    for seed in seeds() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
        let v = host(&machine);
        let ((program, counts), mut rng) = (counting(&v), Rng::new(seed + 50));
        let file = create(&program, "f");
        let mut model = Model { bytes: Vec::new(), durable: Vec::new() };
        // Its name is durable, and its first bytes are.
        file.write_at(0, b"begin").unwrap();
        file.sync_all().unwrap();
        model.bytes.extend(b"begin");
        model.durable.extend(b"begin");
        for round in 0..120 {
            append_alone(&file, &mut model, &mut rng, round);
        }
        assert!(
            !counts.lock().unwrap_or_else(PoisonError::into_inner).extended.is_empty(),
            "all of it went to the host"
        );
        v.abandon();
        drop((file, program));
        let machine = machine.power_fails(Way::SharedMemory, seed);
        let v = host(&machine);
        let reader = user(&v);
        let found = all(&reader, support::open(&reader, "f"));
        assert!(found.len() >= model.durable.len(), "seed {seed}: {} bytes", found.len());
        assert!(found[..model.durable.len()] == model.durable, "seed {seed}");
        let behind = found.iter().zip(&model.bytes).skip(model.durable.len());
        assert!(behind.clone().all(|(found, wrote)| *found == 0 || found == wrote), "seed {seed}");
        assert!(found.len() <= model.bytes.len().next_multiple_of(4096), "seed {seed}");
        v.close().unwrap();
        e2fsck(&machine);
    }
}

/// `e2fsck -fn` finds nothing.
fn e2fsck(machine: &Machine) {
    let file = tempfile::NamedTempFile::new().unwrap();
    machine.disk.contents().save(file.path()).unwrap();
    let out = Command::new("e2fsck").arg("-fn").arg(file.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

/// As [`step`], without overwriting: what is durable stays as it is.
fn append_alone(file: &DirectFile, model: &mut Model, rng: &mut Rng, round: u64) {
    let at = model.bytes.len();
    let len = [100, 4096, 4096, 9000, 100_000][rng.below(5) as usize];
    let data = bytes(rng, len);
    match rng.below(20) {
        0 => file.write_durable_at(at as u64, &data).unwrap(),
        _ => file.write_at(at as u64, &data).unwrap(),
    }
    model.bytes.extend(&data);
    if rng.below(15) == 0 {
        file.sync_data().unwrap();
        model.durable.clone_from(&model.bytes);
    }
    if rng.below(9) == 0 {
        assert!(file.read_at(0, at).unwrap() == model.bytes[..at], "round {round}");
    }
}

/// Another one that wants the file gets it with what was appended, and the program goes on behind
/// what that one has appended.
#[test]
fn others_see_what_was_appended() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(64 << 20), Way::Unix, dir.path());
    let v = host(&machine);
    let (program, other, mut rng) = (session(&v), user(&v), Rng::new(9));
    let file = create(&program, "f");
    let mut model = Model { bytes: Vec::new(), durable: Vec::new() };
    for round in 0..12 {
        for _ in 0..25 {
            step(&file, &mut model, &mut rng, round);
        }
        let handle = support::open(&other, "f");
        assert!(all(&other, handle) == model.bytes, "round {round}");
        ask(&other, Request::write(handle, model.bytes.len() as u64, b"others".to_vec()));
        model.bytes.extend(b"others");
        ask(&other, Request::Release { handle });
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
    drop((file, program));
    v.close().unwrap();
}
