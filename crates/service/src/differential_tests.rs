//! Rule R22: modes differ in work, not in meaning.

use crate::batch::Batch;
use crate::test_util::*;
use crate::{ReplayMode, Service};
use siftfs_base::*;
use siftfs_device::*;
use siftfs_log::*;
use siftfs_wire::*;
use std::sync::Arc;

fn formatted(seed: u64) -> (Arc<FaultDevice>, Arc<dyn Device>) {
    formatted_as(seed, JournalData::Ref)
}

fn formatted_as(seed: u64, form: JournalData) -> (Arc<FaultDevice>, Arc<dyn Device>) {
    let mem = MemDevice::new(SIZE);
    format_as(&mem, form);
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
/// boundary, agrees with the model in every allocated block, after every request; whatever the
/// journal holds of staged data.
#[test]
fn r22_modes_agree_whole_and_cut_at_every_boundary() {
    for (seed, form) in (0..30).flat_map(|seed| FORMS.map(|form| (seed, form))) {
        for (i, how) in ALL.into_iter().enumerate() {
            let boundaries = if seed % 6 == i as u64 { 0..20 } else { 0..1 };
            for upto in boundaries {
                let what = format!("seed {seed}, {form}, {how:?}, first up to {upto}");
                let (_, dev) = formatted_as(seed, form);
                let mut d = backlog(&dev, seed, how, 20);
                let first = d.acked - d.unreclaimed();
                for part in [first + upto, u64::MAX] {
                    d.checkpoint(part, Urgency::Background);
                    d.settle();
                    assert!(d.failed.is_none(), "{what}: {:?}", d.failed);
                }
                assert_eq!(d.differing(&*dev, d.acked), vec![], "{what}");
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
    for (seed, (how, form)) in (100..).zip(all_forms()) {
        for cut in 0.. {
            let (fault, dev) = formatted_as(seed, form);
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
                assert_eq!(bad, vec![], "{form}, {how:?} cut at {cut}, {kind:?}, again {again:?}");
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

/// A batch reports what it saved; ordered replays everything that has a home. (This seed drops no
/// block that has an image.)
#[test]
fn reports_say_what_survives() {
    const SEED: u64 = 4;
    let report = |how| {
        let (_, dev) = formatted(SEED);
        let mut d = backlog(&dev, SEED, how, 20);
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

/// Storage reads of a region since `before`, in bytes.
fn read_of(d: &Driver, kind: RegionKind, before: u64) -> u64 {
    d.counters.get(kind, Origin::Background).read_bytes - before
}

/// SIFT §5.1.3: with copies in the journal, `ordered` replays staged ranges and then their
/// repetition; `coalesce` and `auto` find that the staged ones are dead, and do not read them.
#[test]
fn only_ordered_replays_what_the_journal_repeats_twice() {
    for seed in 0..6 {
        let report = |how| {
            let (_, dev) = formatted_as(seed, JournalData::Copy);
            let mut d = backlog(&dev, seed, how, 20);
            let lanes = read_of(&d, RegionKind::Staging, 0);
            d.messages.clear();
            d.checkpoint(u64::MAX, Urgency::Background);
            d.settle();
            assert_eq!(d.differing(&*dev, d.acked), vec![], "seed {seed}");
            let done = d.messages.iter().find_map(|m| match m {
                FromService::CheckpointDone { report, .. } => Some(report.clone()),
                _ => None,
            });
            (done.unwrap(), read_of(&d, RegionKind::Staging, lanes))
        };
        let (ordered, lanes) = report(ORDERED);
        assert!(lanes > 0 && ordered.surviving_blocks <= ordered.raw_blocks);
        for how in [COALESCE, How { mode: ReplayMode::Auto, ..ORDERED }] {
            let (coalesced, lanes) = report(how);
            assert_eq!(lanes, 0, "{how:?}");
            assert!(coalesced.write_bytes * 3 < ordered.write_bytes * 2, "{how:?}, seed {seed}");
        }
    }
}

/// R4, R13: what does not verify is not repeated; nothing is journaled.
#[test]
fn r13_damaged_staged_data_is_not_journaled_again() {
    let (_, dev) = formatted_as(1, JournalData::Copy);
    let mut d = Driver::with(&dev, 1, ORDERED).unwrap();
    let txn = loop {
        let txn = d.transaction().unwrap();
        if !txn.copies.is_empty() {
            break txn;
        }
        d.submit(&txn);
        d.pump();
    };
    let (s, at) = (&txn.staged[txn.copies[0].source as usize], txn.copies[0].data_offset);
    let lane = &header(JournalData::Copy).lanes[usize::from(s.lane.0)];
    let mut record = vec![0; s.len as usize];
    dev.read(lane.offset + s.pos % LANE, &mut record).unwrap();
    let (head, _) = decode_record(&record, &KEY.lane(s.lane), s.lane, s.pos, s.len.into()).unwrap();
    let byte = (head.header.layout.data_offset + at) as usize;
    record[byte] ^= 1;
    dev.write(lane.offset + s.pos % LANE, &record, true).unwrap();
    let acked = d.acked;
    d.submit(&txn);
    d.pump();
    assert!(matches!(&d.failed, Some(Error::Corrupt { .. })), "{:?}", d.failed);
    assert_eq!((d.acked, recovered(&dev)), (acked, acked));
}

/// The newest transaction that a recovery finds.
fn recovered(dev: &Arc<dyn Device>) -> u64 {
    let (mut service, _storage) = open_as(dev, COALESCE).unwrap();
    service.replay_committed(KEY, KEY).unwrap().next_seq.0 - 1
}

/// R11, R14: damage in the journal's repetition stops a checkpoint; nothing of it is written, and
/// no credits come.
#[test]
fn r11_a_damaged_repetition_is_never_replayed() {
    for how in [ORDERED, COALESCE, How { mode: ReplayMode::Auto, ..ORDERED }] {
        let (_, dev) = formatted_as(2, JournalData::Copy);
        let mut d = backlog(&dev, 2, how, 20);
        let newest = d.service.pending.iter().rfind(|e| e.data.end > e.data.start).unwrap();
        let at = header(d.form).journal_offset + (newest.pos + newest.data.start) % JOURNAL;
        let mut byte = [0];
        dev.read(at, &mut byte).unwrap();
        dev.write(at, &[byte[0] ^ 1], true).unwrap();
        let (seq, tail) = (newest.seq.0, d.unreclaimed());
        d.checkpoint(u64::MAX, Urgency::Background);
        d.settle();
        let Some(Error::Corrupt { what, .. }) = &d.failed else { panic!("{:?}", d.failed) };
        assert!(what.contains("the journal repeats"), "{what}");
        assert!(d.acked - d.unreclaimed() < seq && d.unreclaimed() <= tail);
    }
}

/// A journal that holds another form than the header says is not the one that the Runtime's credits
/// were counted for.
#[test]
fn a_transaction_of_the_other_form_is_refused() {
    for form in FORMS {
        let (_, dev) = formatted_as(3, form);
        let mut d = backlog(&dev, 3, COALESCE, 5);
        assert!(d.unreclaimed() > 0);
        let other = FORMS[usize::from(form == JournalData::Ref)];
        let open = || {
            let (parts, mut options, _storage) = parts_of(&dev, COALESCE).unwrap();
            options.journal_data = other;
            (parts, options)
        };
        let (parts, options) = open();
        let resumed = Service::resume(parts, options, KEY, KEY).map(drop);
        let (parts, options) = open();
        let replayed = Service::open(parts, options).unwrap().replay_committed(KEY, KEY).map(drop);
        d.service.options.journal_data = other;
        d.checkpoint(u64::MAX, Urgency::Background);
        d.settle();
        for got in [resumed, replayed, Err(d.failed.unwrap())] {
            let error = got.unwrap_err();
            assert!(error.to_string().contains("the header says"), "{error}");
        }
    }
}
