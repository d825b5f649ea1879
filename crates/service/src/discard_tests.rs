use super::*;
use crate::discards::Discards;
use crate::test_util::*;
use siftfs_device::{Device, Fault, FaultDevice, OpClass, OpKind};
use siftfs_wire::{ToService, Urgency};
use std::collections::VecDeque;
use std::sync::Arc;

fn fault() -> (Arc<FaultDevice>, Driver) {
    let dev = Arc::new(FaultDevice::from_image(mem().0.snapshot(), 1));
    let as_dyn: Arc<dyn Device> = dev.clone();
    let mut driver = Driver::new(&as_dyn, 3).unwrap();
    driver.pump();
    (dev, driver)
}

fn run(start: u64, len: u64) -> BlockRun {
    BlockRun { start, len }
}

fn ask(d: &mut Driver, id: u64, runs: &[BlockRun]) {
    d.service.handle(ToService::Discard { id, runs: runs.to_vec() });
}

#[test]
fn blocks_are_given_back_and_the_answer_says_how_many() {
    let (dev, mut d) = fault();
    dev.enable_discard();
    dev.record();
    ask(&mut d, 7, &[run(40, 2), run(50, 1)]);
    assert_eq!(d.service.drain(), vec![], "an answer before its work");
    d.service.step();
    let answer = FromService::Discarded { id: 7, blocks: 3, failed: 0, unsupported: false };
    assert_eq!(d.service.drain(), vec![answer]);
    let ops = dev.take_log();
    let lens: Vec<_> = ops.iter().map(|op| (op.kind, op.len)).collect();
    assert_eq!(lens, [(OpKind::Discard, 8192), (OpKind::Discard, 4096)], "and nothing is flushed");
    assert!(!d.service.has_work());
}

#[test]
fn a_step_is_bounded_and_what_is_urgent_goes_first() {
    let (dev, mut d) = fault();
    dev.enable_discard();
    for _ in 0..3 {
        let txn = d.transaction().unwrap();
        d.submit(&txn);
        d.pump();
    }
    let before = dev.stats().discards;
    ask(&mut d, 1, &vec![run(40, 1); STEP_RUNS + 1]);
    d.service.step();
    assert_eq!(dev.stats().discards - before, STEP_RUNS as u64);
    d.checkpoint(u64::MAX, Urgency::Emergency);
    d.messages.clear();
    while !d.messages.iter().any(|m| matches!(m, FromService::CheckpointDone { .. })) {
        assert_eq!(dev.stats().discards - before, STEP_RUNS as u64, "before the emergency");
        d.service.step();
        d.pump();
    }
    d.service.step();
    assert_eq!(dev.stats().discards - before, STEP_RUNS as u64 + 1);
}

/// A stream of checkpoints that a caller waits for does not keep freed blocks for ever.
#[test]
fn an_emergency_lets_a_discard_pass_now_and_then() {
    let mut discards = Discards::default();
    let request =
        Request { id: 1, runs: VecDeque::new(), blocks: 0, failed: 0, unsupported: false };
    discards.waiting.push_back(request);
    let turns: Vec<_> = (0..20).filter(|_| discards.is_next(Some(true))).collect();
    assert_eq!(turns, [8, 17]);
    let turns: Vec<_> = (0..6).filter(|_| discards.is_next(Some(false))).collect();
    assert_eq!(turns, [0, 2, 4]);
}

#[test]
fn what_fails_is_counted_and_stops_nothing() {
    let (dev, mut d) = fault();
    dev.enable_discard();
    dev.inject(Fault::fail(OpClass::Discard, libc::EIO).once());
    ask(&mut d, 1, &[run(40, 2), run(50, 4)]);
    d.service.step();
    let answer = FromService::Discarded { id: 1, blocks: 4, failed: 1, unsupported: false };
    assert_eq!(d.service.drain(), vec![answer]);
    assert!(d.service.failure().is_none());
}

#[test]
fn storage_that_cannot_says_so_once() {
    let (dev, mut d) = fault();
    ask(&mut d, 1, &[run(40, 2), run(50, 4)]);
    d.service.step();
    let answer = FromService::Discarded { id: 1, blocks: 0, failed: 0, unsupported: true };
    assert_eq!(d.service.drain(), vec![answer]);
    assert_eq!(dev.stats().discards, 0);
}

#[test]
fn a_discard_that_cannot_be_is_refused_and_nothing_done() {
    let blocks = AREA / BLOCK_BYTES;
    let many = vec![run(40, 1); DISCARD_MAX_RUNS + 1];
    for runs in [&[run(40, 0)][..], &[run(blocks, 1)], &[run(0, blocks + 1)], &many[..]] {
        let (dev, mut d) = fault();
        dev.enable_discard();
        ask(&mut d, 1, runs);
        assert!(d.service.failure().is_some(), "{runs:?}");
        assert!(!d.service.has_work());
        assert_eq!(dev.stats().discards, 0);
    }
}

/// Data that a Runtime has just sent to a block would be destroyed.
#[test]
fn blocks_of_the_next_transaction_are_not_discarded() {
    let (dev, mut d) = fault();
    dev.enable_discard();
    d.service.direct = vec![run(60, 4)];
    ask(&mut d, 1, &[run(63, 1)]);
    assert!(d.service.failure().is_some());
    assert_eq!(dev.stats().discards, 0);
}
