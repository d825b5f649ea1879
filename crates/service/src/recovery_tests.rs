use crate::test_util::*;
use siftfs_base::*;
use siftfs_device::*;
use siftfs_log::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn formatted() -> Image {
    formatted_as(JournalData::Ref)
}

fn formatted_as(form: JournalData) -> Image {
    let mem = MemDevice::new(SIZE);
    format_as(&mem, form);
    mem.snapshot()
}

fn recover(dev: &Arc<dyn Device>) -> Result<u64> {
    recover_as(dev, ORDERED)
}

fn recover_as(dev: &Arc<dyn Device>, how: How) -> Result<u64> {
    let (mut service, _storage) = open_as(dev, how)?;
    let summary = service.replay_committed(KEY, KEY)?;
    Ok(summary.next_seq.0 - 1)
}

fn area(dev: &dyn Device) -> Vec<u8> {
    let mut area = vec![0; AREA as usize];
    dev.read(0, &mut area).unwrap();
    area
}

/// Runs a random history on a device that loses power at operation `cut`.
fn history(seed: u64, cut: u64) -> (Arc<FaultDevice>, Driver, bool) {
    history_as(seed, cut, ORDERED, JournalData::Ref)
}

fn history_as(
    seed: u64,
    cut: u64,
    how: How,
    form: JournalData,
) -> (Arc<FaultDevice>, Driver, bool) {
    let dev = Arc::new(FaultDevice::from_image(formatted_as(form), seed));
    let as_dyn: Arc<dyn Device> = Arc::clone(&dev) as _;
    let mut d = Driver::with(&as_dyn, seed, how).unwrap();
    dev.cut_at(cut);
    let finished = (0..14).all(|_| d.round().is_ok());
    (dev, d, finished)
}

/// The recovered area, in order and by another mode, the next one each time, and each again in
/// order, is the model of the newest committed transaction, which is the last one acknowledged or
/// the one in flight.
fn check(d: &Driver, image: &Image, what: &str) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let other = NEXT.fetch_add(1, Ordering::Relaxed) % (ALL.len() - 1);
    for how in [ORDERED, ALL[1 + other]] {
        let dev: Arc<dyn Device> = Arc::new(MemDevice::from_image(image.clone()));
        let seq = recover_as(&dev, how).unwrap_or_else(|e| panic!("{what}: {how:?}: {e}"));
        let fits = seq == d.acked || seq == d.acked + 1;
        assert!(fits, "{what}: {how:?}: {seq}, acknowledged {}", d.acked);
        let bad = d.differing(&*dev, seq);
        assert_eq!(bad, vec![], "{what}: {how:?}: blocks differ after transaction {seq}");
        let once = area(&*dev);
        assert_eq!(recover(&dev).unwrap(), seq, "{what}: a second recovery");
        assert_eq!(area(&*dev), once, "{what}: a second recovery changed the area");
    }
}

#[test]
fn a_power_cut_at_every_operation_loses_nothing_journaled() {
    for (seed, (how, form)) in (0..).zip(all_forms()) {
        let mut cuts = 0;
        for cut in 0.. {
            let (dev, d, finished) = history_as(seed, cut, how, form);
            let what = |kind: &str| format!("seed {seed}, {form}, {how:?}, cut {cut}, {kind}");
            check(&d, &dev.image(Cut::LoseAll), &what("all lost"));
            check(&d, &dev.image(Cut::KeepAll), &what("all kept"));
            check(&d, &dev.power_cut_image(seed * 1000 + cut), &what("torn"));
            cuts += 1;
            if finished {
                break;
            }
        }
        assert!(cuts > 50, "{how:?}: {cuts}");
    }
}

/// R21: a write or flush that fails, with the power on, stops everything; whatever the cache then
/// keeps or loses, a restart finds what was journaled.
#[test]
fn r21_a_failed_write_or_flush_loses_nothing_journaled() {
    let classes = [(40, OpClass::Write), (41, OpClass::Flush)];
    for (how, (seed, class)) in ALL.into_iter().flat_map(|h| classes.map(|c| (h, c))) {
        for n in 0.. {
            let dev = Arc::new(FaultDevice::from_image(formatted(), seed));
            let as_dyn: Arc<dyn Device> = Arc::clone(&dev) as _;
            let mut d = Driver::with(&as_dyn, seed, how).unwrap();
            dev.inject(Fault::fail(class, 5).after(n).once());
            if (0..14).all(|_| d.round().is_ok()) {
                break;
            }
            for kind in [Cut::LoseAll, Cut::KeepAll, Cut::Random(n)] {
                check(&d, &dev.image(kind), &format!("{class:?} {n} failed, {kind:?}"));
            }
        }
    }
}

/// Recovery itself is cut at every operation, in one mode, and done again in all.
#[test]
fn a_power_cut_inside_recovery_changes_nothing() {
    for (seed, (how, form)) in (20..).zip(all_forms()) {
        let (dev, d, _) = history_as(seed, 60 + seed, how, form);
        let image = dev.power_cut_image(seed);
        check(&d, &image, &format!("seed {seed}"));
        for cut in 0.. {
            let second = Arc::new(FaultDevice::from_image(image.clone(), seed));
            second.cut_at(cut);
            let as_dyn: Arc<dyn Device> = Arc::clone(&second) as _;
            let finished = recover_as(&as_dyn, how).is_ok();
            for kind in [Cut::LoseAll, Cut::KeepAll, Cut::Random(cut)] {
                check(
                    &d,
                    &second.image(kind),
                    &format!("seed {seed}, {form}, {how:?}, recovery cut {cut}"),
                );
            }
            if finished {
                break;
            }
        }
    }
}

/// The journal's own bytes are read once; what lies behind its end is checked, not replayed.
#[test]
fn the_journal_is_read_once() {
    let (dev, mut d, _) = history(4, u64::MAX);
    let txn = d.transaction().unwrap();
    d.submit(&txn);
    d.pump();
    assert!(d.failed.is_none());
    let left: Arc<dyn Device> = Arc::new(MemDevice::from_image(dev.image(Cut::KeepAll)));
    let (mut service, storage) = open(&left).unwrap();
    let summary = service.replay_committed(KEY, KEY).unwrap();
    assert_eq!(summary.next_seq.0 - 1, d.acked);
    assert!(summary.transactions > 0 && summary.journal.bytes <= JOURNAL + BLOCK_BYTES);
    let counted = storage.counters().get(RegionKind::Journal, Origin::Background);
    assert_eq!(counted.read_bytes, summary.journal.bytes);
    assert_eq!(summary.report.flushes, 2);
}

#[test]
fn an_empty_journal_costs_no_write() {
    let dev = Arc::new(FaultDevice::from_image(formatted(), 1));
    let as_dyn: Arc<dyn Device> = Arc::clone(&dev) as _;
    assert_eq!(recover(&as_dyn).unwrap(), 7);
    assert_eq!(dev.stats().writes, 0);
}

/// R14: a committed transaction that rotted is not the journal's end if another follows.
#[test]
fn r14_rot_in_the_journal_is_not_its_end() {
    let dev = Arc::new(FaultDevice::from_image(formatted(), 1));
    let as_dyn: Arc<dyn Device> = Arc::clone(&dev) as _;
    let mut d = Driver::new(&as_dyn, 8).unwrap();
    let start = d.service.durable().journal_tail;
    for _ in 0..4 {
        let txn = d.transaction().unwrap();
        d.submit(&txn);
        d.pump();
    }
    let image = dev.image(Cut::KeepAll);
    for (at, what) in [(0, "first transaction"), (4096, "its next block")] {
        let hurt = MemDevice::from_image(image.clone());
        let offset = header(JournalData::Ref).journal_offset + (start + at) % JOURNAL;
        let mut byte = [0];
        hurt.read(offset + 77, &mut byte).unwrap();
        hurt.write(offset + 77, &[byte[0] ^ 1], false).unwrap();
        let hurt: Arc<dyn Device> = Arc::new(hurt);
        let e = recover(&hurt).unwrap_err();
        assert!(e.to_string().contains("lost committed metadata"), "{what}: {e}");
    }
}

/// R9, R8: a transaction of another epoch is never replayed.
#[test]
fn r09_another_epochs_transactions_are_dropped() {
    let (dev, d, _) = history(6, u64::MAX);
    let left: Arc<dyn Device> = Arc::new(MemDevice::from_image(dev.image(Cut::KeepAll)));
    let (mut service, _storage) = open(&left).unwrap();
    let before = service.durable().clone();
    assert!(before.next_seq.0 <= d.acked, "something is left to replay");
    let key = EpochKey { epoch: Epoch(KEY.epoch.0 + 1), ..KEY };
    let summary = service.replay_committed(key, KEY).unwrap();
    assert_eq!((summary.transactions, summary.next_seq), (0, before.next_seq));
}

#[test]
fn lanes_are_emptied_forward_only() {
    let (dev, _, _) = history(7, u64::MAX);
    let left: Arc<dyn Device> = Arc::new(MemDevice::from_image(dev.image(Cut::KeepAll)));
    let (mut service, _storage) = open(&left).unwrap();
    service.replay_committed(KEY, KEY).unwrap();
    let mut tails = service.durable().lane_tails.clone();
    tails[0] += 4096;
    service.advance_lanes(&tails).unwrap();
    assert_eq!(siftfs_volume::read_headers(&*left).unwrap().service.lane_tails, tails);
    tails[0] -= 4096;
    assert!(service.advance_lanes(&tails).is_err());
}
