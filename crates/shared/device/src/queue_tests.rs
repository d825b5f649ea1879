use super::*;
use crate::{
    Device, DurableWrite, FaultDevice, FileOptions, MemDevice, open_exclusive, preallocate,
};
use siftfs_base::Rng;
use std::sync::Arc;

const SIZE: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// Begins it, or does it as a caller does whose device cannot begin it.
fn access(device: &Arc<dyn Device>, queue: &mut IoQueue, io: Io, begun: &mut usize) {
    match device.clone().begin(io, queue) {
        Ok(()) => *begun += 1,
        Err(Io { id, kind, offset, mut buf }) => {
            let result = match kind {
                IoKind::Read => device.read(offset, &mut buf),
                IoKind::Write { durable } => device.write(offset, &buf, durable),
            };
            queue.tell(IoDone { id, buf, result });
        }
    }
}

/// Random accesses, several under way at once, none of which meets another: what each has done,
/// and how many the device has begun.
fn histories(device: &Arc<dyn Device>, seed: u64) -> (Vec<(u64, Vec<u8>)>, usize) {
    let (mut queue, mut rng, mut begun) = (IoQueue::new(16), Rng::new(seed), 0);
    let mut all = Vec::new();
    for round in 0..40u64 {
        let mut ended = Vec::new();
        for at in 0..16 {
            let blocks = 1 + rng.below(3) as usize;
            let offset = (at * 4 + rng.below(2)) * BLOCK as u64;
            let kind = match rng.below(3) {
                0 => IoKind::Read,
                kind => IoKind::Write { durable: kind == 1 },
            };
            let mut buf = AlignedBuf::zeroed(blocks * BLOCK);
            if kind != IoKind::Read {
                buf.fill(1 + (round * 16 + at) as u8 % 250);
            }
            let id = round * 16 + at;
            access(device, &mut queue, Io { id, kind, offset, buf }, &mut begun);
        }
        queue.drain(&mut ended);
        assert_eq!((ended.len(), queue.under_way()), (16, 0));
        ended.sort_by_key(|done| done.id);
        for IoDone { id, buf, result } in ended {
            result.unwrap();
            all.push((id, buf.to_vec()));
        }
    }
    let mut last = vec![0; SIZE as usize];
    device.read(0, &mut last).unwrap();
    all.push((u64::MAX, last));
    (all, begun)
}

fn file(dir: &std::path::Path, name: &str, options: FileOptions) -> Arc<dyn Device> {
    let path = dir.join(name);
    preallocate(&path, SIZE).unwrap();
    Arc::new(open_exclusive(&path, true, options).unwrap())
}

/// However accesses are made, they do the same: by a ring in any way of being durable, at once, or
/// by calls that wait.
#[test]
fn all_ways_do_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let ways = [DurableWrite::Dsync, DurableWrite::Linked, DurableWrite::WriteThenSync];
    let mut devices: Vec<(Arc<dyn Device>, bool)> = vec![
        (Arc::new(FaultDevice::new(SIZE, 1)), false),
        (Arc::new(MemDevice::new(SIZE)), true),
        (file(dir.path(), "waits", FileOptions { uring: false, ..Default::default() }), false),
    ];
    for (at, durable) in ways.into_iter().enumerate() {
        let options = FileOptions { durable, ..Default::default() };
        let by_ring = IoQueue::new(1).descriptor().is_some();
        devices.push((file(dir.path(), &at.to_string(), options), by_ring));
    }
    for seed in 0..3 {
        let expected = histories(&devices[0].0, seed).0;
        for (device, begins) in &devices {
            let (found, begun) = histories(device, seed);
            // The last one's contents are those of all rounds, whatever was there before.
            assert!(found.last() == expected.last(), "{}", device.describe().durable_write);
            assert_eq!(begun > 0, *begins, "{:?}", device.describe());
        }
    }
}

/// An access beyond the device is not begun, and changes nothing; one that is not aligned comes
/// back where the medium does not take it.
#[test]
fn what_cannot_begin_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let device = file(dir.path(), "file", FileOptions::default());
    let mut queue = IoQueue::new(4);
    for (offset, len) in [(SIZE, BLOCK), (SIZE - 1, BLOCK), (u64::MAX, BLOCK), (0, 0)] {
        for kind in [IoKind::Read, IoKind::Write { durable: true }] {
            let io = Io { id: 7, kind, offset, buf: AlignedBuf::zeroed(len) };
            assert!(device.clone().begin(io, &mut queue).is_err_and(|io| io.id == 7));
        }
    }
    assert_eq!(queue.under_way(), 0);
    if queue.descriptor().is_none() {
        return;
    }
    // One ring has room for that for which it was made.
    let mut begun = 0;
    let read = |id| Io { id, kind: IoKind::Read, offset: 0, buf: AlignedBuf::zeroed(BLOCK) };
    while begun < 20 && device.clone().begin(read(begun), &mut queue).is_ok() {
        begun += 1;
    }
    assert_eq!((begun, queue.under_way()), (4, 4));
    let mut ended = Vec::new();
    queue.drain(&mut ended);
    assert_eq!(ended.len(), 4);
}

/// A file that was cut shorter: what was begun fails as a call that waits does, and what is durable
/// no more latches the device.
#[test]
fn failures_are_told_and_latched() {
    let dir = tempfile::tempdir().unwrap();
    let options = FileOptions { durable: DurableWrite::Dsync, ..Default::default() };
    let device = file(dir.path(), "file", options);
    std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("file"))
        .unwrap()
        .set_len(SIZE / 2)
        .unwrap();
    let (mut queue, mut begun, mut ended) = (IoQueue::new(4), 0, Vec::new());
    let of = |id, kind, offset| Io { id, kind, offset, buf: AlignedBuf::zeroed(BLOCK) };
    access(&device, &mut queue, of(1, IoKind::Read, SIZE / 2), &mut begun);
    access(&device, &mut queue, of(2, IoKind::Read, 0), &mut begun);
    access(&device, &mut queue, of(3, IoKind::Write { durable: true }, 0), &mut begun);
    queue.drain(&mut ended);
    ended.sort_by_key(|done| done.id);
    let failed: Vec<bool> = ended.iter().map(|done| done.result.is_err()).collect();
    assert_eq!(failed, [true, false, true]);
    assert!(device.flush().is_err(), "it is latched");
}

/// What a model says ends later is told when it has, and waited for.
#[test]
fn what_is_told_later_is_told_then() {
    let mut queue = IoQueue::new(1);
    let due = Instant::now() + Duration::from_millis(5);
    queue.tell_at(due, IoDone { id: 1, buf: AlignedBuf::zeroed(0), result: Ok(()) });
    assert!(queue.patience().unwrap() <= Duration::from_millis(5));
    let mut ended = Vec::new();
    queue.drain(&mut ended);
    assert!(Instant::now() >= due);
    assert_eq!(ended.len(), 1);
}
