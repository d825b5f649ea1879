use crate::test_util::*;
use siftfs_base::*;
use siftfs_device::*;
use siftfs_log::JournalData;
use siftfs_wire::*;
use std::sync::Arc;

fn fault() -> (Arc<FaultDevice>, Arc<dyn Device>) {
    let mem = MemDevice::new(SIZE);
    format(&mem);
    let dev = Arc::new(FaultDevice::from_image(mem.snapshot(), 1));
    (Arc::clone(&dev), dev as _)
}

fn welcomed(answers: &[FromService]) -> (u64, u64) {
    match answers.first() {
        Some(FromService::Welcome { journaled, checkpointed, .. }) => (journaled.0, checkpointed.0),
        other => panic!("not a welcome: {other:?}"),
    }
}

fn journaled(messages: &[FromService]) -> Vec<(u64, u64, u64)> {
    let found = messages.iter().filter_map(|m| match m {
        FromService::Journaled { seq, bytes, image_pos } => Some((seq.0, *bytes, *image_pos)),
        _ => None,
    });
    found.collect()
}

#[test]
fn another_service_goes_on_where_the_first_died() {
    for (seed, how) in (0..20).zip(ALL.into_iter().cycle()) {
        let (_, dev) = fault();
        let mut d = Driver::with(&dev, seed, how).unwrap();
        for round in 0..60 {
            d.round().unwrap();
            if d.rng.below(5) > 0 {
                continue;
            }
            let said = journaled(&d.messages);
            let durable = d.service.durable().clone();
            let answers = d.take_over(&dev).unwrap();
            let (newest, checkpointed) = welcomed(&answers);
            assert_eq!(newest, d.acked, "seed {seed}, round {round}");
            assert_eq!(checkpointed, durable.next_seq.0 - 1);
            // It says of each transaction what the first one said.
            let again = journaled(&answers);
            assert_eq!(again.len() as u64, newest - checkpointed);
            for entry in again {
                assert!(said.contains(&entry), "seed {seed}: {entry:?}");
            }
            match answers.last() {
                Some(FromService::Reclaimed { seq, journal_tail, lane_tails }) => {
                    assert_eq!(seq.0, checkpointed);
                    assert_eq!(
                        (*journal_tail, lane_tails),
                        (durable.journal_tail, &durable.lane_tails)
                    );
                }
                other => panic!("no credits: {other:?}"),
            }
        }
        d.checkpoint(u64::MAX, Urgency::Background);
        d.settle();
        assert_eq!(d.differing(&*dev, d.seq), vec![], "seed {seed}");
    }
}

/// The first Service ends between the journal's write and its flush: the record reads as whole, and
/// is lost with the power, unless the Service that reports it makes it durable first.
#[test]
fn what_is_reported_is_durable() {
    let (fault, dev) = fault();
    let mut d = Driver::new(&dev, 7).unwrap();
    while d.acked < d.first + 3 {
        d.round().unwrap();
    }
    let mut txn = d.transaction().unwrap();
    while !txn.direct.is_empty() {
        d.submit(&txn);
        d.pump();
        txn = d.transaction().unwrap();
    }
    let before = fault.contents();
    d.submit(&txn);
    // The same journal, written and not flushed.
    let journal = fault.contents().bytes(header(JournalData::Ref).journal_offset, JOURNAL as usize);
    let second = Arc::new(FaultDevice::from_image(before.clone(), 1));
    second.write(header(JournalData::Ref).journal_offset, &journal, false).unwrap();
    let found = second.image(Cut::LoseAll);
    let dev: Arc<dyn Device> = Arc::clone(&second) as _;
    assert_eq!(welcomed(&d.take_over(&dev).unwrap()).0, txn.seq.0, "the record was found");
    let after: Arc<dyn Device> = Arc::new(MemDevice::from_image(second.image(Cut::LoseAll)));
    assert_eq!(welcomed(&d.take_over(&after).unwrap()).0, txn.seq.0);
    let lost: Arc<dyn Device> = Arc::new(MemDevice::from_image(found));
    assert_eq!(welcomed(&d.take_over(&lost).unwrap()).0, txn.seq.0 - 1, "it was in the cache");
}

/// A transaction without its commit block is ignored: its host sends it again.
#[test]
fn an_uncommitted_transaction_is_dropped_and_may_come_again() {
    let (_, dev) = fault();
    let mut d = Driver::new(&dev, 11).unwrap();
    for _ in 0..3 {
        let txn = d.transaction().unwrap();
        d.submit(&txn);
        d.pump();
    }
    let txn = d.transaction().unwrap();
    d.submit(&txn);
    let end = d.service.journal_used() + d.service.durable().journal_tail;
    d.pump();
    let commit = header(JournalData::Ref).journal_offset + (end - BLOCK_BYTES) % JOURNAL;
    dev.write(commit, &[0; 512], true).unwrap();
    let answers = d.take_over(&dev).unwrap();
    assert_eq!(welcomed(&answers).0, txn.seq.0 - 1);
    // What was sent ahead is the other Service's: it has to come again too.
    let direct = !txn.direct.is_empty();
    d.service.handle(ToService::Submit { txn: Box::new(txn.clone()), waited: false });
    let failed = d.service.failure().is_some();
    assert_eq!(failed, direct);
    if !direct {
        assert_eq!(journaled(&d.service.drain()).len(), 1);
    }
}
