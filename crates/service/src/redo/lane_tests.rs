use crate::redo::test_util::*;
use siftfs_base::{Error, Rng};
use siftfs_device::{Device, Fault, Gate, OpClass};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn nothing_shows_before_its_commit_and_then_all_does() {
    let device = formatted();
    let lane = open(&device);
    let mut wanted = area(&device);
    let writes: [(u64, &[u8]); 3] = [(4096, &[1; 4096]), (10_000, b"abc"), (10_001, b"X")];
    for (offset, bytes) in writes {
        lane.append(OWNER, 1, offset, bytes).unwrap();
    }
    lane.append(OWNER, 2, 0, b"given up").unwrap();
    let before = device.stats();
    assert_eq!(read(&lane, &device), wanted);
    lane.commit(OWNER, 1).unwrap();
    lane.abort(OWNER, 2);
    lane.commit(OWNER, 2).unwrap();
    let after = device.stats();
    assert_eq!(after.writes - before.writes, 1, "a small one is one write");
    assert_eq!((after.fua_writes - before.fua_writes, after.flushes - before.flushes), (1, 0));
    put(&mut wanted, &writes);
    assert_eq!(read(&lane, &device), wanted);
    assert_ne!(area(&device), wanted, "the blocks are as they were");
    lane.checkpoint().unwrap();
    assert_eq!(read(&lane, &device), wanted);
    assert_eq!(area(&device), wanted);
    assert!(!lane.hold().meets(&(0..AREA)));
}

#[test]
fn a_large_transaction_is_several_records_and_whole() {
    let device = formatted();
    let lane = open(&device);
    let mut wanted = area(&device);
    let bytes = vec![9; 150_000];
    let writes: Vec<(u64, &[u8])> = vec![(3, &bytes), (300_000, &bytes[..80_000])];
    atomic(&lane, &writes).unwrap();
    put(&mut wanted, &writes);
    assert_eq!(read(&lane, &device), wanted);
    let device = Arc::new(siftfs_device::FaultDevice::from_image(device.durable(), 1));
    assert_eq!(replay(&device), Ok(1));
    assert_eq!(area(&device), wanted);
    assert_eq!(replay(&device), Ok(0));
}

/// The bytes written to the medium for an atomic write, its checkpoint left out.
#[test]
fn the_lane_takes_a_tenth_more_at_most() {
    let device = formatted();
    let lane = open(&device);
    device.record();
    atomic(&lane, &[(8192, &[1; 64 << 10])]).unwrap();
    let bytes: usize = device.take_log().iter().map(|op| op.len).sum();
    assert!(bytes * 10 <= (64 << 10) * 11, "{bytes} bytes");
}

#[test]
fn what_has_no_room_is_refused() {
    let device = formatted();
    let lane = open(&device);
    let large = vec![1; LANE as usize / 4];
    let errno = |error: Error| error.errno();
    assert_eq!(lane.append(OWNER, 1, 0, &large).map_err(errno), Err(libc::EFBIG));
    // Its data alone would have room, with its head it has not.
    let just = &large[..(LANE as usize - 8192) / 4];
    lane.append(OWNER, 1, 0, just).unwrap();
    assert_eq!(lane.commit(OWNER, 1).map_err(errno), Err(libc::EFBIG));
    assert_eq!(lane.commit(OWNER, 1), Ok(()), "it was dropped");
    for (offset, len) in [(AREA, 1), (AREA - 1, 2), (u64::MAX, 2)] {
        let refused = lane.append(OWNER, 1, offset, &large[..len]);
        assert!(matches!(refused, Err(Error::Refused(_))), "{offset}: {refused:?}");
    }
    atomic(&lane, &[(AREA - 1, b"z")]).unwrap();
}

#[test]
fn a_full_lane_makes_a_commit_wait_for_a_checkpoint() {
    let device = formatted();
    let lane = open(&device);
    let mut wanted = area(&device);
    let mut rng = Rng::new(3);
    for i in 0..200u8 {
        let bytes = vec![i; rng.between(1, 100_000) as usize];
        let writes: [(u64, &[u8]); 1] = [(rng.below(900_000), &bytes)];
        atomic(&lane, &writes).unwrap();
        put(&mut wanted, &writes);
        if i % 20 == 0 {
            assert_eq!(read(&lane, &device), wanted, "after {i}");
        }
    }
    let slot = medium(&device).read_slot().unwrap();
    assert!(slot.tail > 5 * LANE, "the ring came round");
    assert!(lane.hold().meets(&(0..AREA)), "and not everything is checkpointed");
    let left = after(device.durable());
    replay(&left).unwrap();
    assert_eq!(area(&left), wanted);
}

#[test]
fn commits_that_come_together_share_a_flush() {
    let device = formatted();
    let lane = open(&device);
    let gate = Gate::new();
    device.inject(Fault::hold(OpClass::Write, &gate).once());
    let before = device.stats().writes;
    thread::scope(|scope| {
        for id in 0..8u64 {
            let lane = &lane;
            lane.append(id, 0, id * 8192, &[id as u8; 5000]).unwrap();
            scope.spawn(move || lane.commit(id, 0).unwrap());
        }
        assert!(gate.wait_arrived(1, LONG));
        while lane.waiting() < 7 {
            thread::yield_now();
        }
        gate.open();
    });
    assert_eq!(device.stats().writes - before, 2, "the first one, and then all others");
    for id in 0..8u64 {
        let at = id as usize * 8192;
        assert_eq!(read(&lane, &device)[at..at + 5000], vec![id as u8; 5000][..]);
    }
    let left = after(device.durable());
    assert_eq!(replay(&left), Ok(8));
}

/// A batch that lies before and behind the end of the ring is two writes and one flush.
#[test]
fn a_batch_over_the_end_of_the_ring_is_durable() {
    let device = formatted();
    let lane = open(&device);
    for _ in 0..125 {
        atomic(&lane, &[(0, &[1; 5000])]).unwrap();
    }
    lane.checkpoint().unwrap();
    let gate = Gate::new();
    device.inject(Fault::hold(OpClass::Write, &gate).once());
    let before = device.stats();
    thread::scope(|scope| {
        for id in 0..8u64 {
            let lane = &lane;
            lane.append(id, 0, id * 8192, &[id as u8 + 1; 5000]).unwrap();
            scope.spawn(move || lane.commit(id, 0).unwrap());
        }
        assert!(gate.wait_arrived(1, LONG));
        while lane.waiting() < 7 {
            thread::yield_now();
        }
        gate.open();
    });
    let now = device.stats();
    assert_eq!((now.writes - before.writes, now.flushes - before.flushes), (3, 1));
    let left = after(device.durable());
    assert_eq!(replay(&left), Ok(8));
    for id in 0..8 {
        assert_eq!(area(&left)[id * 8192..][..5000], vec![id as u8 + 1; 5000][..]);
    }
}

/// Rule R33: a plain write of a block that the lane has something of comes behind its checkpoint.
#[test]
fn r33_a_plain_write_waits_for_the_checkpoint_and_the_tail() {
    let device = formatted();
    let lane = open(&device);
    atomic(&lane, &[(4096 + 100, b"atomic"), (40_960, &[5; 4096])]).unwrap();
    let mut wanted = read(&lane, &device);
    // Another block does not wait.
    lane.write_beside(&(8192..12_288), || device.write(8192, &[1; 4096], true)).unwrap();
    assert!(lane.hold().meets(&(4096..4097)));
    // Other bytes of the same block do.
    lane.write_beside(&(4096..4100), || device.write(4096, b"bare", true)).unwrap();
    assert!(!lane.hold().meets(&(0..AREA)));
    put(&mut wanted, &[(8192, &[1; 4096]), (4096, b"bare")]);
    assert_eq!(area(&device), wanted);
    let left = after(device.durable());
    assert_eq!(replay(&left), Ok(0), "the tail is durable");
    assert_eq!(area(&left), wanted);
}

/// Rules R29 and R45, the model's `TailLater`: the end of a grant includes the durable tail, so
/// nothing that a block has got since is written over.
#[test]
fn r45_nothing_of_an_owner_is_replayed_behind_its_end() {
    let device = formatted();
    let lane = open(&device);
    atomic(&lane, &[(4096, &[1; 4096])]).unwrap();
    lane.append(OWNER, 9, 0, b"running").unwrap();
    lane.append(OWNER + 1, 1, 0, b"another's").unwrap();
    lane.commit(OWNER + 1, 1).unwrap();
    lane.drain(OWNER).unwrap();
    // The block is another file's now, whose bytes are durable.
    device.write(4096, &[2; 4096], true).unwrap();
    let left = after(device.durable());
    replay(&left).unwrap();
    assert_eq!(area(&left)[4096..8192], [2; 4096]);
    assert_eq!(area(&left)[..9], *b"another's");
    lane.commit(OWNER, 9).unwrap();
    assert_eq!(area(&left)[..9], *b"another's", "what ran was dropped");
    // The owner's end without anything in the lane needs no I/O.
    let before = device.ops();
    lane.drain(OWNER).unwrap();
    assert_eq!(device.ops(), before);
}

/// What lies in the ring from before is no record of a lane that was opened since (rule R8).
#[test]
fn r08_an_opening_ends_all_older_records() {
    let device = formatted();
    let lane = open(&device);
    atomic(&lane, &[(0, &[1; 4096])]).unwrap();
    let slot = medium(&device).read_slot().unwrap();
    drop(lane);
    let lane = open(&device);
    assert_eq!(area(&device)[..4096], [1; 4096]);
    assert_eq!(medium(&device).end(&slot).unwrap().transactions, 1, "the record is still there");
    // The same place and the same numbers, by another key.
    let now = medium(&device).read_slot().unwrap();
    let older = siftfs_log::RedoSlot { nonce: now.nonce, ..slot };
    assert_eq!(medium(&device).end(&older).unwrap().transactions, 0);
    drop(lane);
}

#[test]
fn r21_a_failed_flush_or_write_is_latched() {
    for (what, skip) in [("the record", 0), ("a block", 1), ("the slot", 2)] {
        let device = formatted();
        let lane = open(&device);
        device.inject(Fault::fail(OpClass::Write, libc::EIO).after(skip).once());
        let committed = atomic(&lane, &[(0, &[1; 4096])]);
        assert_eq!(committed.is_err(), skip == 0, "{what}");
        assert_eq!(lane.checkpoint().is_err(), skip > 0, "{what}");
        fails_for_good(&lane, what);
        assert_eq!(read(&lane, &device)[0], (skip > 0) as u8, "{what}: it is read on");
    }
    let device = formatted();
    let lane = open(&device);
    atomic(&lane, &[(0, &[1; 4096])]).unwrap();
    device.inject(Fault::fail(OpClass::Flush, libc::EIO).once());
    assert!(lane.checkpoint().is_err());
    fails_for_good(&lane, "the area's flush");
    // What the failed flush may have lost is in the lane.
    let left = after(device.image(siftfs_device::Cut::LoseAll));
    assert_eq!(replay(&left), Ok(1));
    assert_eq!(area(&left)[..4096], [1; 4096]);
}

fn fails_for_good(lane: &crate::redo::RedoLane, what: &str) {
    let latched = |found: siftfs_base::Result<()>| {
        assert!(matches!(found, Err(Error::Latched(_))), "{what}: {found:?}")
    };
    latched(atomic(lane, &[(8192, b"more")]));
    latched(lane.drain(OWNER));
    assert_eq!(lane.drain(OWNER + 1), Ok(()), "{what}: another owner has nothing there");
    assert_eq!(lane.write_beside(&(8192..8193), || Ok(())), Ok(()), "{what}: not in the index");
}

#[test]
fn a_clean_volume_has_an_empty_lane() {
    let device = formatted();
    atomic(&open(&device), &[(0, &[1; 4096])]).unwrap();
    let before = area(&device);
    let clean = crate::redo::RedoParts::for_test(medium(&device), AREA, true);
    assert!(matches!(clean.replay(), Err(Error::Corrupt { .. })));
    assert_eq!(area(&device), before);
}

/// A record whose checksum is right and that names what is not in the area writes nothing.
#[test]
fn a_range_outside_the_area_stops_the_replay() {
    for offset in [AREA - 4095, AREA, 1 << 61] {
        let device = formatted();
        let slot = medium(&device).read_slot().unwrap();
        let place = siftfs_log::RedoPlace {
            pos: slot.tail,
            prev_end: slot.tail,
            prev_crc: 0,
            number: slot.number,
            index: 0,
            commit: true,
            durable: 0,
        };
        let writes: [(u64, &[u8]); 2] = [(0, &[1; 4096]), (offset, &[1; 4096])];
        let mut bytes = vec![0; siftfs_log::redo_record_len(2, 8192) as usize];
        siftfs_log::encode_redo(&slot.key(), &place, &writes, &mut bytes);
        device.write(medium(&device).place(slot.tail), &bytes, true).unwrap();
        let before = area(&device);
        assert!(matches!(replay(&device), Err(Error::Corrupt { .. })), "{offset}");
        assert_eq!(area(&device), before);
    }
}

/// Commits, plain writes, reads and checkpoints by several threads, each in blocks of its own: each
/// reads what it wrote last, as a whole.
#[test]
fn threads_see_their_own_writes_whole() {
    let device = formatted();
    let lane = open(&device);
    thread::scope(|scope| {
        for owner in 0..4u64 {
            let (lane, device) = (&lane, &device);
            scope.spawn(move || {
                let mut rng = Rng::new(owner);
                let base = owner * 65_536;
                for round in 0..150u32 {
                    let byte = (round % 250) as u8 + 1;
                    let len = rng.between(1, 30_000);
                    let at = base + rng.below(65_536 - len);
                    let bytes = vec![byte; len as usize];
                    if rng.chance(70) {
                        let (one, two) = bytes.split_at(bytes.len() / 2);
                        lane.append(owner, 0, at + one.len() as u64, two).unwrap();
                        lane.append(owner, 0, at, one).unwrap();
                        lane.commit(owner, 0).unwrap();
                    } else {
                        let range = at..at + len;
                        lane.write_beside(&range, || device.write(at, &bytes, false)).unwrap();
                    }
                    if rng.chance(10) {
                        lane.drain(owner).unwrap();
                    }
                    let held = lane.hold();
                    let mut read = vec![0; len as usize];
                    device.read(at, &mut read).unwrap();
                    held.patch(at, &mut read);
                    drop(held);
                    assert!(read == bytes, "owner {owner}, round {round}");
                }
            });
        }
    });
}
