use crate::samples::*;
use crate::{FromService, StorageAnswer, StorageCall, ToService};
use proptest::prelude::*;
use siftfs_base::{Error, Result};
use siftfs_codec::{Encoded, Message};
use std::collections::BTreeSet;

fn there_and_back<M: Message + PartialEq + std::fmt::Debug>(message: &M) {
    let Encoded { head, blocks } = message.encode().unwrap();
    assert_eq!(&M::decode(&head, blocks).unwrap(), message);
}

/// No wildcard: a new variant has to be thought of here, and then in the samples.
fn to_service_number(message: &ToService) -> u32 {
    match message {
        ToService::Hello { .. } => 1,
        ToService::Direct { .. } => 2,
        ToService::Submit { .. } => 3,
        ToService::Checkpoint { .. } => 4,
        ToService::Statistics => 5,
        ToService::Goodbye => 6,
        ToService::Objection { .. } => 7,
        ToService::Inquire { .. } => 8,
        ToService::ExpectUrgent { .. } => 9,
        ToService::Discard { .. } => 10,
        ToService::Storage { .. } => 11,
        ToService::Queued { .. } => 12,
    }
}

fn from_service_number(message: &FromService) -> u32 {
    match message {
        FromService::Welcome { .. } => 1,
        FromService::Journaled { .. } => 2,
        FromService::Reclaimed { .. } => 3,
        FromService::CheckpointDone { .. } => 4,
        FromService::Statistics(_) => 5,
        FromService::Failed { .. } => 6,
        FromService::Refused { .. } => 7,
        FromService::Bye => 8,
        FromService::Discarded { .. } => 9,
        FromService::Storage { .. } => 10,
    }
}

fn call_number(call: &StorageCall) -> u8 {
    match call {
        StorageCall::Open { .. } => 1,
        StorageCall::Claim { .. } => 2,
        StorageCall::Unclaim { .. } => 3,
        StorageCall::Read { .. } => 4,
        StorageCall::Write { .. } => 5,
        StorageCall::Flush { .. } => 6,
        StorageCall::Discard { .. } => 7,
        StorageCall::Describe { .. } => 8,
        StorageCall::Grant { .. } => 9,
        StorageCall::Settle { .. } => 10,
        StorageCall::Revoke { .. } => 11,
        StorageCall::Attach { .. } => 12,
        StorageCall::Extend { .. } => 13,
        StorageCall::AtomicWrite { .. } => 14,
        StorageCall::AtomicAbort { .. } => 15,
    }
}

fn answer_number(answer: &StorageAnswer) -> u8 {
    match answer {
        StorageAnswer::Opened { .. } => 1,
        StorageAnswer::Done => 2,
        StorageAnswer::Data { .. } => 3,
        StorageAnswer::Described { .. } => 4,
        StorageAnswer::Failed { .. } => 5,
        StorageAnswer::Granted { .. } => 6,
        StorageAnswer::Settled { .. } => 7,
        StorageAnswer::Attached { .. } => 8,
        StorageAnswer::Ended { .. } => 9,
    }
}

/// A call's number stands behind the message's and its id.
#[test]
fn every_call_on_the_storage_has_its_number_and_a_sample() {
    let calls = storage_calls().into_iter().map(|call| {
        let number = call_number(&call);
        let head = ToService::Storage { id: 3, call }.encode().unwrap().head;
        assert_eq!((head[0], head[9]), (11, number));
        number
    });
    assert_eq!(calls.collect::<BTreeSet<_>>(), (1..=15).collect());
    let answers = storage_answers().into_iter().map(|answer| {
        let number = answer_number(&answer);
        let head = FromService::Storage { id: 3, answer }.encode().unwrap().head;
        assert_eq!((head[0], head[9]), (10, number));
        number
    });
    assert_eq!(answers.collect::<BTreeSet<_>>(), (1..=9).collect());
}

#[test]
fn every_variant_comes_back_as_it_was() {
    let (to, from) = (to_service(), from_service());
    to.iter().for_each(there_and_back);
    from.iter().for_each(there_and_back);
    let to: BTreeSet<u32> = to.iter().map(to_service_number).collect();
    let from: BTreeSet<u32> = from.iter().map(from_service_number).collect();
    assert_eq!((to.len(), from.len()), (12, 10), "a variant without a sample");
}

#[test]
fn the_first_byte_is_the_variants_number() {
    for message in to_service() {
        assert_eq!(u32::from(message.encode().unwrap().head[0]), to_service_number(&message));
    }
    for message in from_service() {
        assert_eq!(u32::from(message.encode().unwrap().head[0]), from_service_number(&message));
    }
}

#[test]
fn a_hint_is_its_number_and_milliseconds() {
    let message = ToService::ExpectUrgent { ms: 0x0102_0364 };
    assert_eq!(message.encode().unwrap().head, [9, 0x64, 3, 2, 1]);
}

#[test]
fn bytes_are_little_endian_and_in_the_order_of_the_list() {
    let urgency = crate::Urgency::Emergency;
    let message = ToService::Checkpoint { id: 0x0102, upto: siftfs_base::TxnSeq(3), urgency };
    let expected = [4, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2];
    assert_eq!(message.encode().unwrap(), Encoded { head: expected.into(), blocks: vec![] });
}

/// A peer of another version is refused; one of the same version reads the same bytes. So the form
/// of the messages belongs to the number.
#[test]
fn the_form_belongs_to_the_version() {
    let to = to_service().iter().map(|message| message.encode().unwrap()).collect::<Vec<_>>();
    let from = from_service().iter().map(|message| message.encode().unwrap()).collect::<Vec<_>>();
    let sum = [to, from].concat().iter().fold(0, |sum, Encoded { head, blocks }| {
        let counted = siftfs_base::crc32c_append(sum, &(blocks.len() as u32).to_le_bytes());
        siftfs_base::crc32c_append(counted, head)
    });
    assert_eq!(
        (crate::PROTOCOL_VERSION, sum),
        (13, 2_705_094_706),
        "the bytes of the messages changed: raise PROTOCOL_VERSION, then put both numbers here"
    );
}

#[test]
fn blocks_are_passed_on_and_not_copied() {
    let txn = transaction(3);
    let message = ToService::Submit { txn: Box::new(txn.clone()), waited: false };
    let Encoded { head, blocks } = message.encode().unwrap();
    let Ok(ToService::Submit { txn: back, .. }) = ToService::decode(&head, blocks) else {
        panic!("no submission")
    };
    for (before, after) in txn.image_data.iter().zip(&back.image_data) {
        assert!(std::ptr::eq(&before[..], &after[..]), "a block was copied");
    }
}

fn is_corrupt<M: std::fmt::Debug>(result: Result<M>) {
    assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
}

#[test]
fn a_message_cut_short_or_with_something_behind_it_is_none() {
    for message in to_service() {
        let Encoded { head, blocks } = message.encode().unwrap();
        for len in 0..head.len() {
            is_corrupt(ToService::decode(&head[..len], blocks.clone()));
        }
        let longer = [&head[..], &[0]].concat();
        is_corrupt(ToService::decode(&longer, blocks.clone()));
        let more = [&blocks[..], &[block(9)]].concat();
        is_corrupt(ToService::decode(&head, more));
        if let Some((_, fewer)) = blocks.split_last() {
            is_corrupt(ToService::decode(&head, fewer.to_vec()));
        }
    }
}

#[test]
fn unknown_kinds_flags_and_operations_are_refused() {
    for (head, why) in [
        (&[0u8][..], "ToService of kind 0"),
        (&[13], "ToService of kind 13"),
        (&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], "a flag is 2"),
        (&[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3], "Urgency of kind 3"),
    ] {
        let error = ToService::decode(head, vec![]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    for (head, why) in [
        (&[6u8, 0][..], "an error of kind 0"),
        (&[6, 8], "an error of kind 8"),
        (&[6, 4, 4], "an error of operation 4"),
        (&[6, 6, 1, 0, 0, 0, 0xff], "not UTF-8"),
        (&[6, 6, 1, 0, 1, 0], "a text of 65537 bytes"),
    ] {
        let error = FromService::decode(head, vec![]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn ranges_that_end_beyond_64_bits_are_refused() {
    type Place = fn(&mut siftfs_log::Transaction, u64);
    let places: [(Place, u64); 3] = [
        (|t, at| t.drops[0] = siftfs_base::BlockRun { start: at, len: 1 }, u64::MAX),
        (|t, at| t.zeros[0].dst = at, u64::MAX),
        (|t, at| t.copies[0].dst = at, u64::MAX - 3),
    ];
    const PLACE: u64 = 0x1234_5678_9abc;
    let encoded = |place: Place, at| {
        let mut txn = transaction(1);
        place(&mut txn, at);
        ToService::Submit { txn: txn.into(), waited: true }.encode().unwrap()
    };
    for (place, beyond) in places {
        let Encoded { mut head, blocks } = encoded(place, PLACE);
        ToService::decode(&head, blocks.clone()).unwrap();
        let at = head.windows(8).position(|bytes| *bytes == PLACE.to_le_bytes()).unwrap();
        head[at..at + 8].copy_from_slice(&beyond.to_le_bytes());
        is_corrupt(ToService::decode(&head, blocks));
        let sent = std::panic::catch_unwind(|| encoded(place, beyond));
        assert!(sent.is_err(), "a message that no receiver takes was made");
    }
}

#[test]
fn a_count_larger_than_what_follows_is_refused_before_anything_is_allocated() {
    // The list of lane tails claims 2^32 - 1 entries; a vector for them would be 32 GiB.
    let mut head = vec![3u8];
    head.extend([0; 16]);
    head.extend(u32::MAX.to_le_bytes());
    head.extend([0; 64]);
    let error = FromService::decode(&head, vec![]).unwrap_err().to_string();
    assert!(error.contains("a list of 4294967295 where at most 64 follow"), "{error}");
}

/// A text is sent whole or not at all; an error has to arrive, so it says that its end is missing.
#[test]
fn a_long_text_is_refused_and_an_errors_says_that_it_is_shortened() {
    let why = "ä".repeat(40_000);
    let message = ToService::Objection { reason: why.clone() };
    let error = message.encode().unwrap_err().to_string();
    assert!(error.contains("a text of 80000 bytes"), "{error}");
    let message = FromService::Failed { error: Error::Refused(format!("x{why}")) };
    let Encoded { head, blocks } = message.encode().unwrap();
    let Ok(FromService::Failed { error: Error::Refused(text) }) =
        FromService::decode(&head, blocks)
    else {
        panic!("another error")
    };
    let begin = text.strip_suffix(" [...]").unwrap();
    assert!(text.len() == siftfs_codec::MAX_TEXT - 1 && why.starts_with(&begin[1..]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_message_to_the_service_comes_back(message in any_to_service()) {
        there_and_back(&message);
    }

    #[test]
    fn any_message_from_the_service_comes_back(message in any_from_service()) {
        there_and_back(&message);
    }

    /// Whatever decodes is exactly what its bytes say: no two byte strings are one message.
    #[test]
    fn damaged_messages_are_refused_or_mean_what_they_say(
        message in any_to_service(), at in any::<proptest::sample::Index>(), flip in 1u8..,
    ) {
        let Encoded { mut head, blocks } = message.encode().unwrap();
        let at = at.index(head.len());
        head[at] ^= flip;
        if let Ok(other) = ToService::decode(&head, blocks) {
            prop_assert_eq!(other.encode().unwrap().head, head);
        }
    }

    #[test]
    fn random_bytes_are_refused_or_mean_what_they_say(
        head in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Ok(message) = FromService::decode(&head, vec![]) {
            prop_assert_eq!(message.encode().unwrap().head, head.clone());
        }
        if let Ok(message) = ToService::decode(&head, vec![]) {
            prop_assert_eq!(message.encode().unwrap().head, head);
        }
    }
}

/// The two windows of numbers, at their ends.
#[test]
fn what_was_carried_out_is_told_by_number() {
    let carried = crate::Carried { life: 1, low: 100, before: 1 | 1 << 63, from: 2 | 1 << 63 };
    let told: Vec<u64> = (0..300).filter(|number| carried.has(*number)).collect();
    assert_eq!(told, [36, 99, 101, 163]);
    assert!(!carried.has(u64::MAX) && !carried.has(100 + (1 << 32)));
    let young = crate::Carried { life: 1, low: 2, before: 3 << 62, from: 1 };
    assert_eq!((0..100).filter(|number| young.has(*number)).collect::<Vec<_>>(), [0, 1, 2]);
}
