use super::*;
use crate::redo::test_util::*;
use siftfs_device::{Fault, Gate, OpClass};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Commits, each of these bytes for a block of its own, until more than a half of the lane is used.
fn fill_half(lane: &RedoLane, byte: u8) {
    let bytes = [byte; 16 << 10];
    let commits = LANE / 2 / (bytes.len() as u64) + 1;
    for at in 0..commits {
        atomic(lane, &[(at * bytes.len() as u64, &bytes)]).unwrap();
    }
}

#[test]
fn a_lane_that_is_half_full_is_brought_home() {
    let device = formatted();
    let background = CheckpointedLane::start(Arc::new(open(&device))).unwrap();
    let lane = background.lane();
    atomic(lane, &[(0, &[9; 4096])]).unwrap();
    thread::sleep(Duration::from_millis(20));
    assert!(lane.hold().meets(&(0..AREA)), "nothing is made for its own sake");
    for byte in [1, 2, 3] {
        fill_half(lane, byte);
        until("what came first is not home", || area(&device)[0] == byte);
    }
    drop(background);
}

/// Commits go on while it is at it.
#[test]
fn no_commit_waits_for_it() {
    let device = formatted();
    let background = CheckpointedLane::start(Arc::new(open(&device))).unwrap();
    let gate = Gate::new();
    device.inject(Fault::hold(OpClass::Write, &gate).within(0..AREA));
    fill_half(background.lane(), 1);
    assert!(gate.wait_arrived(1, LONG), "a checkpoint writes to the area");
    atomic(background.lane(), &[(0, b"behind it")]).unwrap();
    assert_eq!(&read(background.lane(), &device)[..9], b"behind it");
    gate.open();
    drop(background);
    // What the checkpoint has not taken is in the lane.
    let left = after(device.durable());
    assert!(replay(&left).unwrap() >= 1);
    assert_eq!(&area(&left)[..9], b"behind it");
}

#[test]
fn a_failure_is_latched() {
    let device = formatted();
    let background = CheckpointedLane::start(Arc::new(open(&device))).unwrap();
    device.inject(Fault::fail(OpClass::Write, libc::EIO).within(0..AREA));
    let bytes = [1; 16 << 10];
    until("the lane is latched", || atomic(background.lane(), &[(0, &bytes)]).is_err());
    assert!(atomic(background.lane(), &[(0, &bytes)]).is_err());
    drop(background);
    assert!(device.stats().writes > 0);
}

/// The end comes at once where nothing is to be done, and behind a checkpoint that is under way.
#[test]
fn its_end_waits_for_what_it_is_at() {
    let device = formatted();
    drop(CheckpointedLane::start(Arc::new(open(&device))).unwrap());
    let background = CheckpointedLane::start(Arc::new(open(&device))).unwrap();
    let gate = Gate::new();
    device.inject(Fault::hold(OpClass::Write, &gate).within(0..AREA).once());
    fill_half(background.lane(), 1);
    assert!(gate.wait_arrived(1, LONG));
    let lane = background.lane().clone();
    let ending = thread::spawn(move || drop(background));
    thread::sleep(Duration::from_millis(20));
    assert!(!ending.is_finished(), "it writes to the area");
    gate.open();
    ending.join().unwrap();
    assert_eq!(Arc::strong_count(&lane), 1, "no thread has it");
}
