//! Rule R22: modes differ in work, not in meaning.

use crate::ReplayMode;
use crate::batch::Batch;
use crate::test_util::*;
use siftfs_base::*;
use siftfs_device::*;
use siftfs_wire::*;
use std::sync::Arc;

fn formatted(seed: u64) -> (Arc<FaultDevice>, Arc<dyn Device>) {
    let mem = MemDevice::new(SIZE);
    format(&mem);
    let dev = Arc::new(FaultDevice::from_image(mem.snapshot(), seed));
    (Arc::clone(&dev), dev as _)
}

/// Journals `count` random transactions without any checkpoint, as far as there is room.
fn backlog(dev: &Arc<dyn Device>, seed: u64, how: How, count: u64) -> Driver {
    let mut d = Driver::with(dev, seed, how).unwrap();
    // Something is reclaimed first, so that freed blocks are used again in the backlog.
    for _ in 0..6 {
        d.round().unwrap();
    }
    d.checkpoint(u64::MAX, Urgency::Background);
    d.settle();
    for _ in 0..count {
        if !d.has_room() {
            break;
        }
        let txn = d.transaction().unwrap();
        d.submit(&txn);
        d.pump();
    }
    d
}

/// One backlog, the same for all modes, checkpointed whole and in two parts at every batch
/// boundary, agrees with the model in every allocated block, after every request.
#[test]
fn r22_modes_agree_whole_and_cut_at_every_boundary() {
    for seed in 0..30 {
        for (i, how) in ALL.into_iter().enumerate() {
            let boundaries = if seed % 6 == i as u64 { 0..20 } else { 0..1 };
            for upto in boundaries {
                let (_, dev) = formatted(seed);
                let mut d = backlog(&dev, seed, how, 20);
                let first = d.acked - d.unreclaimed();
                for part in [first + upto, u64::MAX] {
                    d.checkpoint(part, Urgency::Background);
                    d.settle();
                    assert!(d.failed.is_none(), "seed {seed}, {how:?}, {upto}: {:?}", d.failed);
                }
                let bad = d.differing(&*dev, d.acked);
                assert_eq!(bad, vec![], "seed {seed}, {how:?}, first up to {upto}");
            }
        }
    }
}

/// What a batch frees is not written, whatever older transactions of it put there.
#[test]
fn r22_a_batch_writes_nothing_into_what_it_frees() {
    let mut freed = 0;
    for seed in 0..30 {
        let (_, dev) = formatted(seed);
        let mut d = backlog(&dev, seed, COALESCE, 20);
        let before = (0..AREA / BLOCK_BYTES).map(|b| read_block(&*dev, b)).collect::<Vec<_>>();
        d.checkpoint(u64::MAX, Urgency::Background);
        d.settle();
        for (block, by) in &d.models.last().unwrap().free {
            freed += u64::from(*by > d.first);
            let same = read_block(&*dev, *block) == before[*block as usize];
            assert!(same, "seed {seed}: block {block}, freed by {by}, was written");
        }
    }
    assert!(freed > 50, "{freed}");
}

fn read_block(dev: &dyn Device, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_SIZE];
    dev.read(block * BLOCK_BYTES, &mut bytes).unwrap();
    bytes
}

/// A replay that loses power at any of its operations, and another one in any mode, gives the
/// state of the newest transaction.
#[test]
fn r22_a_replay_cut_at_every_write_is_done_again_by_any_mode() {
    let mut cuts = 0;
    for (seed, how) in (100..).zip(ALL) {
        for cut in 0.. {
            let (fault, dev) = formatted(seed);
            let mut d = backlog(&dev, seed, how, 20);
            fault.cut_at(fault.ops() + cut);
            d.checkpoint(u64::MAX, Urgency::Background);
            d.settle();
            for kind in [Cut::LoseAll, Cut::KeepAll, Cut::Random(cut)] {
                let again = ALL[(cuts % ALL.len() as u64) as usize];
                let left: Arc<dyn Device> = Arc::new(MemDevice::from_image(fault.image(kind)));
                let (mut service, _storage) = open_as(&left, again).unwrap();
                service.replay_committed(KEY, KEY).unwrap();
                let bad = d.differing(&*left, d.acked);
                assert_eq!(bad, vec![], "{how:?} cut at {cut}, {kind:?}, again {again:?}");
                cuts += 1;
            }
            if d.failed.is_none() {
                break;
            }
        }
    }
    assert!(cuts > 100, "{cuts}");
}

/// A foreground reservation that waits gets credits while a batch is under way, whatever state
/// the batch is in, in bounded steps, and nothing is lost by it.
#[test]
fn an_emergency_in_the_middle_of_a_batch_gets_credits_soon() {
    let how = How { window_bytes: 96 << 10, step_bytes: 12 << 10, ..COALESCE };
    for steps in 0..30 {
        let (_, dev) = formatted(7);
        let mut d = backlog(&dev, 7, how, 20);
        d.checkpoint(u64::MAX, Urgency::Background);
        for _ in 0..steps {
            d.service.step();
        }
        d.pump();
        let before = d.unreclaimed();
        d.checkpoint(d.acked - before + 1, Urgency::Emergency);
        let mut more = 0;
        while d.unreclaimed() == before && d.service.has_work() {
            d.service.step();
            d.pump();
            more += 1;
        }
        assert!(more <= 6, "{more} steps for the first credits after {steps}");
        d.settle();
        assert_eq!(d.differing(&*dev, d.acked), vec![], "after {steps} steps");
    }
}

/// A batch reports what it saved; ordered replays everything that has a home.
#[test]
fn reports_say_what_survives() {
    let report = |how| {
        let (_, dev) = formatted(3);
        let mut d = backlog(&dev, 3, how, 20);
        d.messages.clear();
        let pending = d.unreclaimed();
        d.checkpoint(u64::MAX, Urgency::Background);
        d.settle();
        let done = d.messages.iter().find_map(|m| match m {
            FromService::CheckpointDone { report, .. } => Some(report.clone()),
            _ => None,
        });
        let report = done.unwrap();
        assert_eq!((report.batch, report.trigger), (pending, Some(Urgency::Background)));
        assert!(report.journal_credits > 0 && report.staging_credits > 0);
        report
    };
    let (ordered, coalesced) = (report(ORDERED), report(COALESCE));
    assert_eq!(ordered.raw_tags, coalesced.raw_tags);
    assert_eq!(ordered.raw_blocks, coalesced.raw_blocks);
    assert_eq!(ordered.raw_images, coalesced.raw_images);
    assert_eq!((ordered.coalesced_batches, coalesced.coalesced_batches), (0, 1));
    assert_eq!(ordered.surviving_images, ordered.raw_images);
    assert!(coalesced.surviving_images < ordered.surviving_images);
    assert!(coalesced.surviving_blocks < ordered.surviving_blocks);
    assert!(coalesced.write_bytes < ordered.write_bytes);
    assert!(coalesced.surviving_blocks <= AREA / BLOCK_BYTES, "each block once");
    assert!(coalesced.flushes < ordered.flushes && coalesced.reads < ordered.reads);
}

/// `auto` builds no map for a stream, and one for a backlog that is reused.
#[test]
fn auto_chooses_by_reuse() {
    let how = How { mode: ReplayMode::Auto, ..ORDERED };
    let (_, dev) = formatted(5);
    let mut d = backlog(&dev, 5, how, 20);
    d.checkpoint(u64::MAX, Urgency::Background);
    d.settle();
    // Too little to judge by.
    let total = &d.service.statistics().checkpoint_total;
    assert!(total.coalesced_batches > 0 && total.light_batches == 0);
    assert_eq!(d.differing(&*dev, d.acked), vec![]);
    // A light batch is what it says, and the same in the end.
    for seed in 200..220 {
        let (_, dev) = formatted(seed);
        let mut d = backlog(&dev, seed, how, 20);
        d.service.batch = Some(Batch::light());
        d.checkpoint(u64::MAX, Urgency::Background);
        d.settle();
        assert!(d.service.statistics().checkpoint_total.light_batches > 0);
        assert_eq!(d.differing(&*dev, d.acked), vec![], "seed {seed}");
    }
}
