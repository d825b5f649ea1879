use crate::test_util::*;
use siftfs_base::*;
use siftfs_device::*;
use siftfs_log::JournalData;
use siftfs_log::{StagedRef, Transaction, ZeroTag};
use siftfs_wire::*;
use std::sync::Arc;

fn fault() -> (Arc<FaultDevice>, Arc<dyn Device>) {
    let image = mem().0.snapshot();
    let dev = Arc::new(FaultDevice::from_image(image, 1));
    (Arc::clone(&dev), dev as _)
}

#[test]
fn a_checkpointed_area_is_the_model() {
    for (seed, how) in (0..24).zip(ALL.into_iter().cycle()) {
        let (_, dev) = mem();
        let mut d = Driver::with(&dev, seed, how).unwrap();
        for _ in 0..40 {
            d.round().unwrap();
        }
        d.checkpoint(u64::MAX, Urgency::Background);
        d.settle();
        assert_eq!(d.acked, d.seq);
        assert_eq!(d.differing(&*dev, d.seq), vec![], "seed {seed}, {how:?}");
        assert_eq!(d.service.journal_used(), 0);
        let s = d.service.statistics();
        assert_eq!(s.journaled_transactions, 40);
        assert_eq!(s.checkpoint_total.batch, 40);
        assert_eq!(s.checkpoint_total.raw_images, s.journaled_images);
        let tags = s.journaled_tags + s.journaled_images + s.digested_ranges;
        assert_eq!(s.checkpoint_total.raw_tags, tags);
    }
}

/// Short windows are flushed together, as much as a long one is, unless a caller waits.
#[test]
fn short_windows_are_reclaimed_together() {
    let how = How { window_bytes: 64 << 10, step_bytes: 12 << 10, ..COALESCE };
    let run = |urgency| {
        let (_, dev) = mem();
        let mut d = Driver::with(&dev, 5, how).unwrap();
        for i in 0..16 {
            let data = vec![i as u8 + 1; 8192];
            let txn = d.copying(&data, i * 3 * BLOCK_BYTES).unwrap();
            d.submit(&txn);
            d.pump();
        }
        d.checkpoint(u64::MAX, Urgency::Background);
        d.service.step();
        d.checkpoint(u64::MAX, urgency);
        d.settle();
        assert_eq!(d.differing(&*dev, d.seq), vec![]);
        d.service.statistics().checkpoint_total.clone()
    };
    // A record is 12 KiB with its head, its data 8 KiB: eight make 64.
    let background = run(Urgency::Background);
    assert_eq!((background.windows, background.flushes), (16, 2 * 2));
    let emergency = run(Urgency::Emergency);
    assert_eq!((emergency.windows, emergency.flushes), (16, 16 * 2));
}

/// One journal write and one flush per transaction, one more of each kind for direct runs.
#[test]
fn journaling_is_one_write_and_one_flush() {
    let (dev, as_dyn) = fault();
    let mut d = Driver::new(&as_dyn, 3).unwrap();
    for _ in 0..20 {
        let txn = d.transaction().unwrap();
        if d.service.journal_used() > JOURNAL / 2 {
            d.checkpoint(u64::MAX, Urgency::Background);
            d.settle();
        }
        let before = dev.stats();
        let direct = u64::from(!txn.direct.is_empty());
        d.submit(&txn);
        d.pump();
        let after = dev.stats();
        assert_eq!(after.flushes - before.flushes, 1 + direct);
        assert_eq!(after.writes - before.writes, 1 + direct);
    }
}

#[test]
fn steps_are_bounded_and_emergencies_go_first() {
    let (_, dev) = mem();
    let mut d = Driver::new(&dev, 9).unwrap();
    let submit = |d: &mut Driver| {
        let txn = d.transaction().unwrap();
        d.submit(&txn);
        d.pump();
    };
    (0..5).for_each(|_| submit(&mut d));
    let first = d.first;
    d.checkpoint(u64::MAX, Urgency::Background);
    d.checkpoint(first + 2, Urgency::Emergency);
    d.messages.clear();
    d.service.step();
    d.pump();
    // The emergency's two transactions first, although the background request came before.
    assert!(matches!(&d.messages[0], FromService::Reclaimed { seq, .. } if seq.0 == first + 2));
    let FromService::CheckpointDone { id: 2, report, urgency } = &d.messages[1] else {
        panic!("{:?}", d.messages)
    };
    assert_eq!((report.batch, report.flushes, *urgency), (2, 2, Urgency::Emergency));
    // A submit between steps is served; the background request ends with what it first saw.
    submit(&mut d);
    d.settle();
    let last = d.messages.last().unwrap();
    assert!(matches!(last, FromService::CheckpointDone { id: 1, .. }));
    assert_eq!(d.service.durable().next_seq.0, first + 6);
    assert_eq!(d.service.statistics().checkpoints_emergency, 1);
    assert_eq!(d.service.statistics().checkpoints_background, 1);
}

#[test]
fn a_message_that_cannot_be_is_refused_and_nothing_written() {
    let spoil: [fn(&mut Transaction); 12] = [
        |t| t.seq.0 += 1,
        |t| t.ops_cut = Lsn(1),
        |t| t.staged_cut = Lsn(1),
        |t| t.lane_upto[0] -= 4096,
        |t| t.lane_upto[1] += 2 * LANE,
        |t| t.lane_upto.push(0),
        |t| {
            t.images = vec![AREA / 4096];
            t.image_data = vec![[0; 4096].into()];
        },
        |t| t.image_data.push([0; 4096].into()),
        |t| t.zeros.push(ZeroTag { dst: AREA - 1, len: 2 }),
        |t| t.drops.push(BlockRun { start: AREA / 4096, len: 1 }),
        |t| t.direct.push(BlockRun { start: 60, len: 1 }),
        |t| {
            let r = StagedRef { lane: LaneId(0), pos: 0, len: 4096, lsn: Lsn(101), crc: 0 };
            t.staged.push(r);
        },
    ];
    for (i, spoil) in spoil.iter().enumerate() {
        let (dev, as_dyn) = fault();
        let mut d = Driver::new(&as_dyn, 5).unwrap();
        d.round().unwrap();
        let mut txn = d.transaction().unwrap();
        let good = txn.clone();
        spoil(&mut txn);
        d.send_ahead();
        let writes = dev.stats().writes;
        d.submit(&txn);
        d.pump();
        assert!(matches!(d.failed, Some(Error::Corrupt { .. })), "case {i}: {:?}", d.failed);
        assert_eq!(dev.stats().writes, writes, "case {i}");
        // Latched: even a good one is refused now.
        d.submit(&good);
        d.pump();
        assert_eq!((dev.stats().writes, d.acked), (writes, d.first + 1), "case {i}");
    }
}

/// Data that goes ahead of its transaction is checked before a byte of it is written.
#[test]
fn direct_data_that_cannot_be_is_refused_and_nothing_written() {
    let blocks = |n: usize| vec![SharedBlock::from([7; BLOCK_SIZE]); n];
    let run = |start, len, n| DirectRun { run: BlockRun { start, len }, data: blocks(n) };
    let cases = [
        (2, vec![run(50, 1, 1)]),
        (1, vec![run(50, 2, 1)]),
        (1, vec![run(50, 0, 0)]),
        (1, vec![run(AREA / 4096, 1, 1)]),
        (1, vec![run(u64::MAX, 1, 1)]),
        (1, vec![run(0, 1025, 1025)]),
    ];
    for (i, (ahead, runs)) in cases.into_iter().enumerate() {
        let (dev, as_dyn) = fault();
        let mut d = Driver::new(&as_dyn, 5).unwrap();
        let writes = dev.stats().writes;
        let seq = TxnSeq(d.seq + ahead);
        d.service.handle(ToService::Direct { seq, runs, waited: false });
        d.pump();
        assert!(matches!(d.failed, Some(Error::Corrupt { .. })), "case {i}: {:?}", d.failed);
        assert_eq!(dev.stats().writes, writes, "case {i}");
    }
}

/// A transaction lists exactly the runs whose data was sent ahead of it.
#[test]
fn direct_data_without_its_transaction_is_refused() {
    let (_, as_dyn) = fault();
    let mut d = Driver::new(&as_dyn, 5).unwrap();
    let data = vec![SharedBlock::from([7; BLOCK_SIZE])];
    let runs = vec![DirectRun { run: BlockRun { start: 60, len: 1 }, data }];
    let seq = TxnSeq(d.seq + 1);
    d.service.handle(ToService::Direct { seq, runs, waited: false });
    let txn = d.transaction().unwrap();
    d.submit(&txn);
    d.pump();
    assert!(matches!(d.failed, Some(Error::Corrupt { .. })), "{:?}", d.failed);
}

#[test]
fn strangers_are_refused() {
    let hello = |version, volume, epoch| ToService::Hello { version, volume, epoch: Epoch(epoch) };
    let bad = [
        hello(PROTOCOL_VERSION + 1, VOLUME, KEY.epoch.0),
        hello(PROTOCOL_VERSION, [0; 16], KEY.epoch.0),
        hello(PROTOCOL_VERSION, VOLUME, KEY.epoch.0 - 1),
        ToService::Submit { txn: Box::default(), waited: false },
    ];
    for message in bad {
        let (_, dev) = mem();
        let (mut service, _storage) = open(&dev).unwrap();
        service.begin_epoch(KEY, KEY);
        service.handle(message);
        assert!(matches!(service.pop(), Some(FromService::Failed { .. })));
        assert!(service.failure().is_some());
    }
}

/// R21: after a failed area flush nothing is reclaimed and nothing more is promised.
#[test]
fn r21_a_failed_area_flush_reclaims_nothing() {
    for (how, fail) in ALL.into_iter().flat_map(|how| [(how, 0), (how, 1)]) {
        let (dev, as_dyn) = fault();
        let mut d = Driver::with(&as_dyn, 11, how).unwrap();
        for _ in 0..3 {
            let txn = d.transaction().unwrap();
            d.submit(&txn);
        }
        d.pump();
        let durable = d.service.durable().clone();
        d.messages.clear();
        // The step's first flush is the area's, its second the service record's.
        dev.inject(Fault::fail(OpClass::Flush, 5).after(fail).once());
        d.checkpoint(u64::MAX, Urgency::Background);
        d.settle();
        assert!(d.failed.is_some());
        assert!(!d.messages.iter().any(|m| matches!(m, FromService::Reclaimed { .. })));
        assert_eq!(*d.service.durable(), durable);
        // What a restart finds replays from the durable tail to the same state.
        let left: Arc<dyn Device> = Arc::new(MemDevice::from_image(dev.image(Cut::LoseAll)));
        let (mut service, _s) = open(&left).unwrap();
        service.replay_committed(KEY, KEY).unwrap();
        assert_eq!(d.differing(&*left, d.seq), vec![]);
    }
}

/// R4, R11: a staged record that is not what was journaled is never replayed.
#[test]
fn a_damaged_source_stops_the_checkpoint() {
    for offset in [200, 5000] {
        let (dev, as_dyn) = fault();
        let mut d = Driver::new(&as_dyn, 2).unwrap();
        let txn = loop {
            let txn = d.transaction().unwrap();
            d.submit(&txn);
            d.pump();
            let big =
                |s: &StagedRef, i: u32| s.len > 8192 && txn.copies.iter().any(|c| c.source == i);
            if let Some(s) = (0u32..).zip(&txn.staged).find(|(i, s)| big(s, *i)) {
                break s.1.clone();
            }
        };
        let base = header(JournalData::Ref).lanes[usize::from(txn.lane.0)].offset;
        // A byte of the items would do as well; both lie inside header or data.
        dev.flip_bits(base + (txn.pos + if offset == 200 { 130 } else { offset }) % LANE, 4);
        d.checkpoint(u64::MAX, Urgency::Background);
        d.settle();
        assert!(matches!(d.failed, Some(Error::Corrupt { .. })), "{:?}", d.failed);
    }
}

/// The host's word reaches the storage of the lanes, cut to what may be said. A caller that waits
/// for credits does not wait for a pause in favour of writers that may have stopped.
#[test]
fn small_steps_are_expected_as_long_as_the_host_may_say() {
    let (dev, as_dyn) = fault();
    let mut d = Driver::new(&as_dyn, 7).unwrap();
    let ms = |ms| Some(std::time::Duration::from_millis(ms));
    for (said, heard) in [(40, 40), (EXPECT_URGENT_MAX_MS, 100), (u32::MAX, 100), (0, 0)] {
        d.service.handle(ToService::ExpectUrgent { ms: said });
        assert_eq!(dev.stats().expected, ms(heard), "{said}");
    }
    assert!(d.service.drain().iter().all(|m| !matches!(m, FromService::Failed { .. })));
    d.round().unwrap();
    d.service.handle(ToService::ExpectUrgent { ms: 50 });
    d.checkpoint(u64::MAX, Urgency::Background);
    assert_eq!(dev.stats().expected, ms(50));
    d.checkpoint(u64::MAX, Urgency::Emergency);
    assert_eq!(dev.stats().expected, ms(0));
    d.settle();
    assert_eq!(d.failed, None);
}
