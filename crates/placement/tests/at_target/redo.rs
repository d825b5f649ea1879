//! The redo lane at a target: no host writes it, and what it has comes home before a host is
//! answered.

use super::direct::{Lane, ask, bytes_of, give_back, home, lane, open, program, user};
use super::forger::{Forger, attach};
use super::machine::{Machine, Way};
use super::{WAYS, area, data, host, opened, volume, volume_with};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error, Result, Rng, SharedBlock};
use siftfs_device::{Device, FaultDevice, Role};
use siftfs_device_target::Target;
use siftfs_placement::Media;
use siftfs_proto::{FileService, Request};
use siftfs_service::{RedoLane, RedoParts};
use siftfs_wire::{AtomicRun, PROTOCOL_VERSION, StorageAnswer, StorageCall};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const SIZE: u64 = 32 << 20;
const REDO: u64 = 2 << 20;
/// A place in the area that the file system does not use.
const FREE: u64 = 14 << 20;

/// A volume that is in use, with a committed transaction in its lane.
fn left_by_a_target(dir: &std::path::Path) -> FaultDevice {
    let machine = Machine::start(volume_with(SIZE, Some(REDO)), Way::Unix, dir);
    host(&machine).unwrap().abandon();
    let disk = Arc::new(FaultDevice::from_image(machine.disk.contents(), 1));
    drop(machine);
    let media = Media::from(disk.clone());
    let lane = RedoLane::open(RedoParts::of(&media, &media.read().unwrap()).unwrap(), 9).unwrap().0;
    lane.append(1, 1, FREE, b"redo").unwrap();
    lane.commit(1, 1).unwrap();
    FaultDevice::from_image(disk.contents(), 2)
}

/// Rule R34: whatever roles a host has.
#[test]
fn r34_no_host_writes_the_redo_lane() {
    let dir = tempfile::tempdir().unwrap();
    let disk = volume_with(SIZE, Some(REDO));
    let redo = siftfs_volume::read_headers(&disk).unwrap().header.redo.unwrap();
    let machine = Machine::start(disk, Way::SharedMemory, dir.path());
    let device = area(&opened(&machine).unwrap());
    let refuses = |device: &Arc<dyn Device>, when: &str| {
        let end = redo.offset + redo.len;
        for at in [redo.offset - 8, redo.offset, redo.offset + 8192, end - 16, end - 8] {
            let mut there = [0; 16];
            device.read(at, &mut there).unwrap();
            let refused = device.write(at, &there, false);
            assert!(matches!(refused, Err(Error::Refused(_))), "{when}, {at}: {refused:?}");
        }
    };
    refuses(&device, "both roles");
    for role in Role::ALL {
        device.unclaim(role).unwrap();
        refuses(&device, "another role");
        device.claim(role, Duration::ZERO).unwrap();
        refuses(&device, "both roles again");
    }
    let mut there = [0; 16];
    device.read(redo.offset - 16, &mut there).unwrap();
    device.write(redo.offset - 16, &there, false).unwrap();
}

/// Rule R33: a host that may only read is shown the blocks as they are; when a host has its role
/// the lane is empty.
#[test]
fn r33_the_lane_is_brought_home_before_a_host_is_answered() {
    for alone in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(left_by_a_target(dir.path()), Way::Unix, dir.path());
        let read = |target: &Arc<Target>| {
            let mut bytes = [0; 4];
            area(target).read(FREE, &mut bytes).unwrap();
            bytes
        };
        let reader = Target::open(machine.place(), false).unwrap();
        assert_eq!(read(&reader), [0; 4]);
        assert_eq!(machine.disk.stats().writes, 0, "a reader changes nothing");
        if alone {
            let target = opened(&machine).unwrap();
            assert_eq!(&read(&target), b"redo");
        } else {
            host(&machine).unwrap().close().unwrap();
            assert_eq!(&read(&reader), b"redo");
        }
        let media = Media::from(machine.disk.clone());
        let medium = media.redo(&media.read().unwrap()).unwrap();
        let end = medium.end(&medium.read_slot().unwrap()).unwrap();
        assert_eq!(end.transactions, 0);
    }
}

/// A lane that is damaged is no storage for a host.
#[test]
fn a_damaged_lane_is_said_to_a_host() {
    let dir = tempfile::tempdir().unwrap();
    let disk = left_by_a_target(dir.path());
    let redo = siftfs_volume::read_headers(&disk).unwrap().header.redo.unwrap();
    disk.write(redo.offset + 40, &[0xff], true).unwrap();
    let machine = Machine::start(disk, Way::Unix, dir.path());
    let refused = opened(&machine).map(drop);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}

/// Writes at these bytes of the file, as one transaction.
fn atomic(lane: &Lane, writes: &[(u64, &[u8])]) -> Result<()> {
    let parts: Vec<(u64, &[u8])> =
        writes.iter().map(|(at, bytes)| (home(&lane.direct, *at), *bytes)).collect();
    lane.attached.write_atomic(&parts, &Arc::default())
}

fn put(model: &mut [u8], writes: &[(u64, &[u8])]) {
    for (at, bytes) in writes {
        model[*at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// The file's bytes, as somebody else reads them.
fn all_of(session: &Arc<dyn FileService>, len: usize) -> Vec<u8> {
    let handle = open(session, "f");
    let part =
        |at: u64| bytes_of(session, handle.into(), at, (len as u64 - at).min(1 << 18) as u32);
    (0..len as u64).step_by(1 << 18).flat_map(part).collect()
}

/// Committed transactions that are not in their blocks.
fn in_the_lane(machine: &Machine) -> u64 {
    let media = Media::from(machine.disk.clone());
    let medium = media.redo(&media.read().unwrap()).unwrap();
    medium.end(&medium.read_slot().unwrap()).unwrap().transactions
}

/// Small and large ones, beside plain writes of the same blocks, over each transport.
#[test]
fn atomic_writes_are_read_beside_plain_ones() {
    for way in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(volume_with(SIZE, Some(4 * REDO)), way, dir.path());
        let v = host(&machine).unwrap();
        let (program, other, mut rng) = (program(&v), user(&v), Rng::new(5));
        let mut model = data(&mut rng, 300 * BLOCK_SIZE);
        let lane = lane(&machine, &program, "f", &model);
        for number in 0..60 {
            let len = [1, 700, 4096, 9000, 300_000][rng.below(5) as usize];
            let bytes = data(&mut rng, len);
            let mut at = || rng.below(model.len() as u64 - len as u64);
            let writes: [(u64, &[u8]); 2] = [(at(), &bytes), (at(), &bytes[..len.div_ceil(2)])];
            if number % 3 == 0 {
                let place = home(&lane.direct, writes[0].0);
                lane.attached.write_at(place, &bytes, number % 2 == 0).unwrap();
                put(&mut model, &writes[..1]);
            } else {
                atomic(&lane, &writes).unwrap();
                put(&mut model, &writes);
            }
            let mut found = vec![0; model.len()];
            lane.attached.read_at(home(&lane.direct, 0), &mut found).unwrap();
            assert!(found == model, "{way:?}: {number}");
        }
        // Another one gets the file when all of it is in its blocks (rules R29, R45).
        let reads = thread::spawn(move || all_of(&other, 300 * BLOCK_SIZE));
        let told = program.told.recv_timeout(Duration::from_secs(20)).unwrap();
        give_back(&program.session, told).unwrap();
        assert!(reads.join().unwrap() == model, "{way:?}");
        assert_eq!(in_the_lane(&machine), 0);
        drop(lane);
        v.close().unwrap();
    }
}

/// What was committed outlives the target's power, with no flush behind it, and what was not is not
/// there; a transaction that was not answered is there as a whole or not at all.
#[test]
fn an_atomic_write_outlives_the_targets_power() {
    for seed in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::start(volume_with(SIZE, Some(REDO)), Way::Unix, dir.path());
        let v = host(&machine).unwrap();
        let (program, mut rng) = (program(&v), Rng::new(seed));
        let mut model = data(&mut rng, 100 * BLOCK_SIZE);
        let lane = lane(&machine, &program, "f", &model);
        for _ in 0..rng.between(1, 20) {
            let bytes = data(&mut rng, 20_000);
            let mut at = || rng.below(model.len() as u64 - 20_000);
            let writes: [(u64, &[u8]); 2] = [(at(), &bytes[..7000]), (at(), &bytes)];
            atomic(&lane, &writes).unwrap();
            put(&mut model, &writes);
        }
        let last = data(&mut rng, 50_000);
        let writes: [(u64, &[u8]); 2] = [(0, &last[..20_000]), (40 * BLOCK_BYTES, &last)];
        machine.disk.cut_at(machine.disk.ops() + rng.below(2));
        let answered = atomic(&lane, &writes).is_ok();
        let before = model.clone();
        put(&mut model, &writes);
        v.abandon();
        machine = machine.power_fails(Way::Unix, seed);
        let v = host(&machine).unwrap();
        let found = all_of(&user(&v), model.len());
        assert!(found == model || found == before && !answered, "seed {seed}");
        v.close().unwrap();
        assert_eq!(in_the_lane(&machine), 0);
    }
}

/// What a program may not write it may not write so either, and then nothing of it is there.
#[test]
fn what_is_refused_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume_with(SIZE, Some(REDO)), Way::Unix, dir.path());
    let v = host(&machine).unwrap();
    let (one, two, mut rng) = (program(&v), program(&v), Rng::new(1));
    let model = data(&mut rng, 20 * BLOCK_SIZE);
    let lane = lane(&machine, &one, "f", &model);
    // What was pending is brought home ten times a second at most.
    thread::sleep(Duration::from_millis(200));
    let others = super::direct::lane(&machine, &two, "g", &model);
    let (own, foreign) = (home(&lane.direct, 0), home(&others.direct, 0));
    let before = machine.disk.contents();
    for (parts, what) in [
        (vec![(own, &b"ab"[..]), (foreign, b"cd")], "another file's block"),
        (vec![(own, b"ab"), (u64::MAX - 4096, b"cd")], "no block"),
        (vec![(own, b"ab"), (1024, b"cd")], "the superblock"),
    ] {
        let refused = lane.attached.write_atomic(&parts, &Arc::default());
        assert!(matches!(refused, Err(Error::Refused(_))), "{what}: {refused:?}");
        // Nothing of it is left to be committed.
        lane.attached.write_atomic(&[], &Arc::default()).unwrap();
    }
    let large = vec![1; 600_000];
    let refused =
        lane.attached.write_atomic(&[(own, &large[..80_000]), (own, &large)], &Arc::default());
    assert!(matches!(refused, Err(Error::Refused(_) | Error::Posix(libc::EFBIG))), "{refused:?}");
    for file in [&lane, &others] {
        let mut found = vec![0; model.len()];
        file.attached.read_at(home(&file.direct, 0), &mut found).unwrap();
        assert!(found == model);
    }
    assert_eq!(in_the_lane(&machine), 0);
    let size = before.size() as usize;
    assert!(before.bytes(0, size) == machine.disk.contents().bytes(0, size), "nothing was written");
    drop((lane, others));
    v.close().unwrap();
}

fn atomic_call(transaction: u64, commit: bool, writes: &[(u64, u8)]) -> StorageCall {
    let runs = writes.iter().map(|(offset, _)| AtomicRun { offset: *offset, len: 4096 }).collect();
    let blocks = writes.iter().map(|(_, byte)| SharedBlock::from([*byte; BLOCK_SIZE])).collect();
    StorageCall::AtomicWrite { transaction, commit, runs, blocks }
}

fn block_at(forger: &mut Forger, offset: u64) -> u8 {
    let StorageAnswer::Data { blocks } =
        forger.request(StorageCall::Read { device: 0, offset, len: 4096 })
    else {
        panic!("no data")
    };
    assert!(blocks[0].iter().all(|byte| *byte == blocks[0][0]));
    blocks[0][0]
}

/// A transaction of several calls shows with its last one; given up, by a call, by one that is
/// refused, or by a newer life, nothing of it does.
#[test]
fn what_is_not_committed_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume_with(SIZE, Some(REDO)), Way::Unix, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let lane = lane(&machine, &program, "f", &[1; 20 * BLOCK_SIZE]);
    let at = |block: u64| home(&lane.direct, block * BLOCK_BYTES);
    let attach = |life| {
        let (version, token) = (PROTOCOL_VERSION, lane.direct.token);
        StorageCall::Attach { version, token, queue: 0, life }
    };
    let mut forger = Forger::new(&machine);
    assert!(matches!(forger.ask(attach(2)), StorageAnswer::Attached { .. }));
    let done = |answer| assert_eq!(answer, StorageAnswer::Done);
    done(forger.request(atomic_call(7, false, &[(at(0), 2), (at(1), 2)])));
    done(forger.request(atomic_call(8, false, &[(at(5), 3)])));
    assert_eq!((block_at(&mut forger, at(0)), block_at(&mut forger, at(5))), (1, 1));
    done(forger.request(atomic_call(7, true, &[(at(2), 2)])));
    let found = [0, 1, 2].map(|block| block_at(&mut forger, at(block)));
    assert_eq!((found, block_at(&mut forger, at(5))), ([2, 2, 2], 1));
    done(forger.request(StorageCall::AtomicAbort { transaction: 8 }));
    done(forger.request(atomic_call(8, true, &[])));
    assert_eq!(block_at(&mut forger, at(5)), 1);
    // Refused in its second call, it has lost the first.
    done(forger.request(atomic_call(9, false, &[(at(6), 4)])));
    let refused = forger.request(atomic_call(9, true, &[(at(7), 4), (0, 4)]));
    assert!(matches!(refused, StorageAnswer::Failed { error: Error::Refused(_) }), "{refused:?}");
    done(forger.request(atomic_call(9, true, &[])));
    assert_eq!((block_at(&mut forger, at(6)), block_at(&mut forger, at(7))), (1, 1));
    done(forger.request(atomic_call(10, false, &[(at(8), 5)])));
    let mut next = Forger::new(&machine);
    assert!(matches!(next.ask(attach(3)), StorageAnswer::Attached { .. }));
    done(next.request(atomic_call(10, true, &[(at(9), 6)])));
    assert_eq!((block_at(&mut next, at(8)), block_at(&mut next, at(9))), (1, 6));
    drop((lane, forger, next));
    v.close().unwrap();
}

/// Any numbers in the calls: what was not granted is never written, and nobody panics.
#[test]
fn forged_atomic_writes_change_nothing_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume_with(SIZE, Some(REDO)), Way::Unix, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let lane = lane(&machine, &program, "f", &[1; 16 * BLOCK_SIZE]);
    let (start, end) = (home(&lane.direct, 0), home(&lane.direct, 15 * BLOCK_BYTES) + BLOCK_BYTES);
    assert_eq!(end - start, 16 * BLOCK_BYTES, "in one piece");
    let redo = siftfs_volume::read_headers(&*machine.disk).unwrap().header.redo.unwrap();
    let others = || {
        let mut bytes = machine.disk.contents().bytes(0, SIZE as usize);
        bytes[start as usize..end as usize].fill(0);
        bytes[redo.offset as usize..][..redo.len as usize].fill(0);
        bytes
    };
    let mut forger = Forger::new(&machine);
    let (version, token) = (PROTOCOL_VERSION, lane.direct.token);
    let attach = StorageCall::Attach { version, token, queue: 0, life: 2 };
    assert!(matches!(forger.ask(attach), StorageAnswer::Attached { .. }));
    let (before, mut rng, mut done) = (others(), Rng::new(9), 0);
    for _ in 0..2000 {
        let run = |rng: &mut Rng| AtomicRun {
            offset: match rng.below(4) {
                0 => u64::MAX - rng.below(9000),
                1 => rng.below(SIZE),
                _ => start + rng.below(17 * BLOCK_BYTES),
            },
            len: [0, 1, 512, 4096, 5000, 1 << 18, u32::MAX][rng.below(7) as usize],
        };
        let runs: Vec<_> = (0..rng.below(4)).map(|_| run(&mut rng)).collect();
        let len: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        let given = if rng.chance(80) { len.div_ceil(4096).min(64) } else { rng.below(60) };
        let blocks = vec![SharedBlock::from([0xee; BLOCK_SIZE]); given as usize];
        let (transaction, commit) = (rng.below(12), rng.chance(40));
        let call = StorageCall::AtomicWrite { transaction, commit, runs, blocks };
        match forger.request(call) {
            StorageAnswer::Done => done += 1,
            StorageAnswer::Failed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(done > 100, "{done} of them were no forgeries");
    drop((lane.attached, forger));
    give_back(&program.session, lane.lease).unwrap();
    assert!(before == others());
    assert_eq!(in_the_lane(&machine), 0);
    v.close().unwrap();
}

/// Rule R30: what is committed in a block that was granted as fresh would be gone with the target,
/// which alone knows that the block was written. So it is not taken, before that and after.
#[test]
fn r30_a_fresh_block_takes_no_atomic_write() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume_with(SIZE, Some(REDO)), Way::Unix, dir.path());
    let v = host(&machine).unwrap();
    let program = program(&v);
    let Lane { handle, lease, attached, .. } = lane(&machine, &program, "f", &[1; 16 * BLOCK_SIZE]);
    drop(attached);
    let asked = Request::LeaseDirect { lease, file: handle.into(), room: 1 << 16 };
    let direct = ask(&program.session, asked).unwrap().direct().unwrap();
    let queue = attach(&machine, direct.token).unwrap();
    let (fresh, old) = (home(&direct, 17 * BLOCK_BYTES), home(&direct, 0));
    let refused = Err(Error::Posix(libc::EOPNOTSUPP));
    for _ in 0..2 {
        assert_eq!(
            queue.write_atomic(&[(old, b"ab"), (fresh + 100, b"cd")], &Arc::default()),
            refused
        );
        queue.write_atomic(&[], &Arc::default()).unwrap();
        let mut found = [0; 2];
        queue.read_at(old, &mut found).unwrap();
        assert_eq!(found, [1, 1], "nothing of it is there");
        queue.write_at(fresh, &[7; BLOCK_SIZE], true).unwrap();
    }
    queue.write_atomic(&[(old, b"ab")], &Arc::default()).unwrap();
    drop(queue);
    v.close().unwrap();
}

/// A volume without a lane says so.
#[test]
fn without_a_lane_it_is_not_supported() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(SIZE), Way::Unix, dir.path());
    let v = host(&machine).unwrap();
    let (program, mut rng) = (program(&v), Rng::new(1));
    let lane = lane(&machine, &program, "f", &data(&mut rng, 20 * BLOCK_SIZE));
    let refused = atomic(&lane, &[(0, b"a")]);
    assert_eq!(refused, Err(Error::Posix(libc::EOPNOTSUPP)));
    drop(lane);
    v.close().unwrap();
}
