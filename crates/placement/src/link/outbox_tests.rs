use super::*;
use siftfs_log::Transaction;
use siftfs_wire::{CheckpointReport, Urgency};

fn submit(seq: u64) -> ToService {
    let txn = Box::new(Transaction { seq: TxnSeq(seq), ..Transaction::default() });
    ToService::Submit { txn, waited: false }
}

fn direct(seq: u64) -> ToService {
    ToService::Direct { seq: TxnSeq(seq), runs: Vec::new(), waited: false }
}

fn checkpoint(id: u64) -> ToService {
    ToService::Checkpoint { id, upto: TxnSeq(u64::MAX), urgency: Urgency::Emergency }
}

fn journaled(seq: u64) -> FromService {
    FromService::Journaled { seq: TxnSeq(seq), bytes: 0, image_pos: 0 }
}

fn done(id: u64, urgency: Urgency) -> FromService {
    FromService::CheckpointDone { id, urgency, report: CheckpointReport::default() }
}

fn all(outbox: &mut Outbox) -> String {
    let mut seen = String::new();
    while let Some(message) = outbox.next() {
        seen += match message {
            ToService::Direct { .. } => "d",
            ToService::Submit { .. } => "s",
            ToService::Checkpoint { .. } => "c",
            ToService::Statistics => "?",
            ToService::Discard { .. } => "-",
            _ => "x",
        };
    }
    seen
}

#[test]
fn what_is_not_answered_is_sent_again_in_order() {
    let mut outbox = Outbox::new(TxnSeq(4));
    for message in [direct(5), direct(5), checkpoint(1), submit(5), ToService::Statistics] {
        outbox.push(message);
    }
    assert_eq!(outbox.sent_upto(), TxnSeq(4));
    assert_eq!(all(&mut outbox), "ddcs?");
    assert_eq!(outbox.sent_upto(), TxnSeq(5));
    assert!(outbox.rewind(), "somebody asked");
    assert!(!outbox.rewind());
    assert_eq!(all(&mut outbox), "ddcs");
    outbox.answered(&journaled(5));
    outbox.push(direct(6));
    assert_eq!(all(&mut outbox), "d", "what was sent stays sent");
    outbox.rewind();
    assert_eq!(all(&mut outbox), "cd");
    outbox.answered(&done(1, Urgency::Emergency));
    assert_eq!(outbox.len(), 1);
}

#[test]
fn answers_to_what_was_not_sent_are_refused_and_repeated_ones_dropped() {
    let mut outbox = Outbox::new(TxnSeq(4));
    outbox.push(submit(5));
    // Handed over, and on no connection yet.
    assert!(outbox.check(journaled(5)).is_err());
    all(&mut outbox);
    assert!(outbox.check(journaled(5)).unwrap().is_some());
    assert!(outbox.check(journaled(6)).is_err());
    outbox.push(checkpoint(3));
    assert!(outbox.check(done(4, Urgency::Emergency)).is_err());
    // The urgency is the request's.
    match outbox.check(done(3, Urgency::Background)).unwrap() {
        Some(FromService::CheckpointDone { urgency: Urgency::Emergency, .. }) => {}
        other => panic!("{other:?}"),
    }
    outbox.answered(&done(3, Urgency::Emergency));
    assert!(outbox.check(done(3, Urgency::Emergency)).unwrap().is_none());
    let unasked = FromService::Statistics(Box::default());
    assert!(outbox.check(unasked).unwrap().is_none());
    let welcome =
        FromService::Welcome { version: 1, journaled: TxnSeq(5), checkpointed: TxnSeq(4) };
    assert!(outbox.check(welcome).is_err());
}

/// A Service that takes over discards what the one before may not have: its blocks are in
/// quarantine as long as this is not answered.
#[test]
fn a_discard_is_kept_until_it_is_answered() {
    let discard = |id| ToService::Discard { id, runs: Vec::new() };
    let ended = |id| FromService::Discarded { id, blocks: 0, failed: 0, unsupported: false };
    let mut outbox = Outbox::new(TxnSeq(4));
    [discard(1), checkpoint(1), discard(2)].into_iter().for_each(|m| outbox.push(m));
    assert_eq!(all(&mut outbox), "-c-");
    assert!(outbox.check(ended(3)).is_err(), "never asked for");
    assert_eq!(outbox.check(ended(2)), Ok(Some(ended(2))));
    outbox.answered(&ended(2));
    outbox.rewind();
    assert_eq!(all(&mut outbox), "-c");
    outbox.answered(&ended(1));
    assert_eq!(outbox.check(ended(1)), Ok(None), "said twice");
    assert_eq!(outbox.len(), 1);
}
