use crate::redo::RedoLane;
use crate::redo::test_util::*;
use siftfs_device::{Fault, Gate, OpClass};
use std::thread;
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

/// Runs `work` beside a thread that makes checkpoints, which is over when this returns.
fn beside_checkpoints(lane: &RedoLane, work: impl FnOnce()) {
    struct Ends<'a>(&'a RedoLane);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.end_checkpoints();
        }
    }
    thread::scope(|scope| {
        scope.spawn(|| lane.make_checkpoints());
        let _ends = Ends(lane);
        work();
    });
}

#[test]
fn a_lane_that_is_half_full_is_brought_home() {
    let device = formatted();
    let lane = open(&device);
    beside_checkpoints(&lane, || {
        atomic(&lane, &[(0, &[9; 4096])]).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert!(lane.hold().meets(&(0..AREA)), "nothing is made for its own sake");
        for byte in [1, 2, 3] {
            fill_half(&lane, byte);
            until("what came first is not home", || area(&device)[0] == byte);
        }
    });
}

/// Commits go on while it is at it.
#[test]
fn no_commit_waits_for_it() {
    let device = formatted();
    let lane = open(&device);
    let gate = Gate::new();
    device.inject(Fault::hold(OpClass::Write, &gate).within(0..AREA));
    beside_checkpoints(&lane, || {
        fill_half(&lane, 1);
        assert!(gate.wait_arrived(1, LONG), "a checkpoint writes to the area");
        atomic(&lane, &[(0, b"behind it")]).unwrap();
        assert_eq!(&read(&lane, &device)[..9], b"behind it");
        gate.open();
    });
    // What the checkpoint has not taken is in the lane.
    let left = after(device.durable());
    assert!(replay(&left).unwrap() >= 1);
    assert_eq!(&area(&left)[..9], b"behind it");
}

#[test]
fn a_failure_is_latched() {
    let device = formatted();
    let lane = open(&device);
    device.inject(Fault::fail(OpClass::Write, libc::EIO).within(0..AREA));
    beside_checkpoints(&lane, || {
        let bytes = [1; 16 << 10];
        until("the lane is latched", || atomic(&lane, &[(0, &bytes)]).is_err());
        assert!(atomic(&lane, &[(0, &bytes)]).is_err());
    });
    assert!(!lane.await_due(), "no further one is made");
}
