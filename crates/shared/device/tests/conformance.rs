//! What every backend promises, tried on every backend.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use siftfs_base::Error;
use siftfs_device::{
    AlignedBuf, ByteDevice, ByteOptions, BytePlace, Device, DurableWrite, FaultDevice, FileOptions,
    Medium, MemDevice, ReadOp, WriteOp, open_exclusive, preallocate,
};

const SIZE: u64 = 4 << 20;

/// Runs the whole suite on fresh devices from `make`.
fn conforms(make: &mut dyn FnMut() -> Arc<dyn Device>) {
    new_devices_read_zeroes(&*make());
    any_alignment_round_trips(&*make());
    batches_do_every_request(&*make());
    ranges_outside_are_refused(&*make());
    durable_writes_and_flushes_succeed(&*make());
    threads_do_not_disturb_each_other(make());
    neighbours_of_partial_units_survive(make());
}

fn new_devices_read_zeroes(d: &dyn Device) {
    assert_eq!(d.size(), SIZE);
    let mut all = vec![1; SIZE as usize];
    d.read(0, &mut all).unwrap();
    assert!(all.iter().all(|b| *b == 0));
}

/// A random range of the device.
fn range(rng: &mut siftfs_base::Rng) -> (u64, usize) {
    let align = [1, 1, 512, 4096][rng.below(4) as usize];
    let offset = rng.below(SIZE) / align * align;
    let most = [600, 5000, 70000][rng.below(3) as usize];
    let len = (rng.below(most) / align * align).min(SIZE - offset);
    (offset, len as usize)
}

fn any_alignment_round_trips(d: &dyn Device) {
    let mut model = vec![0u8; SIZE as usize];
    let mut rng = siftfs_base::Rng::new(1);
    for round in 0..300u32 {
        let (offset, len) = range(&mut rng);
        let data = vec![round as u8 | 1; len];
        d.write(offset, &data, rng.below(8) == 0).unwrap();
        model[offset as usize..][..len].copy_from_slice(&data);
        let (offset, len) = range(&mut rng);
        let mut buf = AlignedBuf::zeroed(len);
        d.read(offset, &mut buf).unwrap();
        assert_eq!(&buf[..], &model[offset as usize..][..len]);
    }
    // One request far larger than a bounce buffer, at an odd place in memory and on the device.
    let big = vec![0x5a; (3 << 20) + 4];
    d.write(1001, &big[1..], false).unwrap();
    model[1001..][..big.len() - 1].fill(0x5a);
    let mut all = vec![0; SIZE as usize];
    d.read(0, &mut all).unwrap();
    assert!(all == model);
}

fn batches_do_every_request(d: &dyn Device) {
    let blocks: Vec<AlignedBuf> = (0..200u8).map(|i| AlignedBuf::copy_of(&[i + 1; 4096])).collect();
    let mut ops: Vec<WriteOp<'_>> = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        // Scattered, and some of them unaligned.
        let offset = (i as u64 * 77 % 200) * 8192 + u64::from(i % 10 == 0) * 100;
        ops.push(WriteOp { offset, data: block });
    }
    d.write_batch(&ops).unwrap();
    let mut bufs = vec![vec![0; 4096]; 200];
    let mut reads: Vec<ReadOp<'_>> =
        bufs.iter_mut().zip(&ops).map(|(buf, op)| ReadOp { offset: op.offset, buf }).collect();
    d.read_batch(&mut reads).unwrap();
    for (buf, block) in bufs.iter().zip(&blocks) {
        assert_eq!(&buf[..], &block[..]);
    }
    d.read_batch(&mut []).unwrap();
    d.write_batch(&[WriteOp { offset: 5, data: &[] }]).unwrap();
}

fn ranges_outside_are_refused(d: &dyn Device) {
    let invalid = |r: Result<(), Error>| matches!(r, Err(Error::Io { errno: libc::EINVAL, .. }));
    assert!(invalid(d.read(SIZE - 1, &mut [0; 2])));
    assert!(invalid(d.read(u64::MAX, &mut [0; 2])));
    assert!(invalid(d.write(SIZE, &[0], true)));
    let ops = [WriteOp { offset: 0, data: &[9; 512] }, WriteOp { offset: SIZE, data: &[9] }];
    assert!(invalid(d.write_batch(&ops)));
    let mut byte = [1];
    d.read(0, &mut byte).unwrap();
    assert_eq!(byte, [0], "a refused batch touches nothing");
    d.read(SIZE, &mut []).unwrap();
}

fn durable_writes_and_flushes_succeed(d: &dyn Device) {
    let block = AlignedBuf::copy_of(&[3; 8192]);
    for fua in [false, true] {
        d.write(4096, &block, fua).unwrap();
        d.write(20000, &block[..333], fua).unwrap();
        d.flush().unwrap();
    }
    let mut buf = [0; 333];
    d.read(20000, &mut buf).unwrap();
    assert_eq!(buf, [3; 333]);
}

fn threads_do_not_disturb_each_other(d: Arc<dyn Device>) {
    thread::scope(|s| {
        for t in 0..4u64 {
            let d = &d;
            s.spawn(move || {
                let base = t * (SIZE / 4);
                let mut data = AlignedBuf::zeroed(8192);
                let mut back = AlignedBuf::zeroed(8192);
                for round in 0..50u64 {
                    data.fill((t * 50 + round) as u8);
                    let ops = [
                        WriteOp { offset: base + round * 8192, data: &data[..4096] },
                        WriteOp { offset: base + round * 8192 + 4096, data: &data[4096..] },
                    ];
                    d.write_batch(&ops).unwrap();
                    if round % 10 == 0 {
                        d.flush().unwrap();
                    }
                    d.read(base + round * 8192, &mut back).unwrap();
                    assert_eq!(&back[..], &data[..]);
                }
            });
        }
    });
}

/// Two threads write alternate bytes of the same sectors: no write undoes another.
fn neighbours_of_partial_units_survive(d: Arc<dyn Device>) {
    thread::scope(|s| {
        for t in 0..2u64 {
            let d = &d;
            s.spawn(move || {
                for i in (t..400).step_by(2) {
                    d.write(i * 7, &[1; 7], false).unwrap();
                }
            });
        }
    });
    let mut buf = [0; 2800];
    d.read(0, &mut buf).unwrap();
    assert_eq!(buf, [1; 2800]);
}

fn file_conforms(options: FileOptions, direct: bool, uring: bool) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut number = 0;
    let mut make = || -> Arc<dyn Device> {
        number += 1;
        let path = dir.path().join(format!("volume{number}"));
        preallocate(&path, SIZE).unwrap();
        let device = open_exclusive(&path, true, options).unwrap();
        // The machine may refuse either; what was not asked for must not be there.
        assert!(direct || !device.is_direct());
        assert!(uring || !device.is_uring());
        Arc::new(device)
    };
    conforms(&mut make);
}

#[test]
fn memory() {
    conforms(&mut || Arc::new(MemDevice::new(SIZE)));
}

#[test]
fn fault() {
    conforms(&mut || Arc::new(FaultDevice::new(SIZE, 1)));
}

#[test]
fn bytes_volatile() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut number = 0;
    conforms(&mut || {
        number += 1;
        let place = BytePlace::Volatile(dir.path().join(format!("lane{number}")));
        let device = ByteDevice::create(&place, SIZE, ByteOptions::default()).unwrap();
        assert_eq!(device.medium(), Medium::Bytes);
        Arc::new(device)
    });
}

#[test]
fn file_direct_uring() {
    file_conforms(FileOptions::default(), true, true);
}

#[test]
fn file_direct_uring_shallow() {
    file_conforms(FileOptions { depth: 1, ..Default::default() }, true, true);
}

#[test]
fn file_direct_without_uring() {
    file_conforms(FileOptions { uring: false, ..Default::default() }, true, false);
}

#[test]
fn file_buffered_uring() {
    file_conforms(FileOptions { direct: false, ..Default::default() }, false, true);
}

#[test]
fn file_buffered_without_uring() {
    let options = FileOptions { direct: false, uring: false, ..Default::default() };
    file_conforms(options, false, false);
}

#[test]
fn file_every_way_of_durable_writes() {
    for durable in [DurableWrite::Dsync, DurableWrite::WriteThenSync, DurableWrite::Linked] {
        for uring in [true, false] {
            file_conforms(FileOptions { durable, uring, ..Default::default() }, true, uring);
        }
    }
}

/// A size that direct I/O cannot do takes the page cache instead.
#[test]
fn odd_sizes_work() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("odd");
    preallocate(Path::new(&path), 10_001).unwrap();
    let d = open_exclusive(&path, true, FileOptions::default()).unwrap();
    assert!(!d.is_direct());
    d.write(9_999, &[1, 2], true).unwrap();
    let mut buf = [0; 2];
    d.read(9_999, &mut buf).unwrap();
    assert_eq!(buf, [1, 2]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 10_001);
}

/// Results alone do not tell whether a fresh file is direct; on the file systems that tests run on
/// it is, and io_uring's absence is the kernel's word.
#[test]
fn backends_report_how_they_work() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("volume");
    preallocate(&path, SIZE).unwrap();
    let mut seen = HashMap::new();
    for direct in [true, false] {
        let options = FileOptions { direct, uring: direct, ..Default::default() };
        let d = open_exclusive(&path, true, options).unwrap();
        seen.insert(direct, (d.is_direct(), d.is_uring()));
        assert_eq!(d.path(), path);
    }
    assert_eq!(seen[&false], (false, false));
}
