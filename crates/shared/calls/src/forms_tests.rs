use crate::samples::*;
use crate::{FromServer, ToServer, VERSION};
use proptest::prelude::*;
use siftfs_base::{Error, Result};
use siftfs_codec::{Encoded, Message};
use siftfs_proto::{Reply, Request};
use std::collections::BTreeSet;

fn there_and_back<M: Message + PartialEq + std::fmt::Debug>(message: &M) {
    let Encoded { head, blocks } = message.encode().unwrap();
    assert_eq!(&M::decode(&head, blocks).unwrap(), message);
}

#[test]
fn every_variant_comes_back_as_it_was() {
    to_server().iter().for_each(there_and_back);
    from_server().iter().for_each(there_and_back);
}

/// The numbers that the format has are those of 1 to the last one, each with a sample.
#[test]
fn every_number_has_a_sample() {
    let requests: BTreeSet<u8> =
        requests().into_iter().map(|request| number_of(&request)).collect();
    assert_eq!(requests, (1..=62).collect());
    let replies: BTreeSet<u8> = replies().into_iter().map(|reply| reply_number(&reply)).collect();
    assert_eq!(replies, (1..=28).collect());
}

fn call_of(request: Request) -> ToServer {
    let (credentials, request) = (siftfs_proto::Credentials::default(), Box::new(request));
    let (slot, number, change, proofs) = (0, 0, None, None);
    ToServer::Call { slot, number, credentials, request, change, proofs }
}

/// The byte in which a call of this request says its number.
fn number_of(request: &Request) -> u8 {
    let call = call_of(request.clone());
    // Kind, slot, number, and the credentials, which have no rights.
    call.encode().unwrap().head[1 + 4 + 8 + 14]
}

fn reply_number(reply: &Reply) -> u8 {
    let result = Ok(Box::new(reply.clone()));
    let answer = FromServer::Answer { slot: 0, number: 0, result, done: None, proofs: None };
    answer.encode().unwrap().head[1 + 4 + 8 + 1]
}

/// A peer of another version is refused; one of the same version reads the same bytes. So the form
/// of the messages belongs to the number.
#[test]
fn the_form_belongs_to_the_version() {
    let to = to_server().iter().map(|message| message.encode().unwrap()).collect::<Vec<_>>();
    let from = from_server().into_iter().map(|message| message.encode().unwrap());
    // The status document has a form of its own, which any reader takes.
    let from = from.filter(|message| message.head.len() < 1000).collect::<Vec<_>>();
    let sum = [to, from].concat().iter().fold(0, |sum, Encoded { head, blocks }| {
        let counted = siftfs_base::crc32c_append(sum, &(blocks.len() as u32).to_le_bytes());
        siftfs_base::crc32c_append(counted, head)
    });
    assert_eq!(
        (VERSION, sum),
        (11, 2_661_740_346),
        "the bytes of the messages changed: raise VERSION, then put both numbers here"
    );
}

#[test]
fn blocks_are_passed_on_and_not_copied() {
    let written = vec![block(1), block(2)];
    let data = siftfs_proto::WriteData::Blocks(written.clone());
    let request = Box::new(Request::write(siftfs_proto::Handle(1), 0, data));
    let credentials = siftfs_proto::Credentials::default();
    let call =
        ToServer::Call { slot: 0, number: 0, credentials, request, change: None, proofs: None };
    let Encoded { head, blocks } = call.encode().unwrap();
    let Ok(ToServer::Call { request, .. }) = ToServer::decode(&head, blocks) else {
        panic!("no call")
    };
    let Request::Write { data: siftfs_proto::WriteData::Blocks(back), .. } = *request else {
        panic!("no write of blocks")
    };
    for (before, after) in written.iter().zip(&back) {
        assert!(std::ptr::eq(&before[..], &after[..]), "a block was copied");
    }
}

fn is_corrupt<M: std::fmt::Debug>(result: Result<M>) {
    assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
}

#[test]
fn a_message_cut_short_or_with_something_behind_it_is_none() {
    for message in to_server() {
        let Encoded { head, blocks } = message.encode().unwrap();
        for len in 0..head.len() {
            is_corrupt(ToServer::decode(&head[..len], blocks.clone()));
        }
        is_corrupt(ToServer::decode(&[&head[..], &[0]].concat(), blocks.clone()));
        is_corrupt(ToServer::decode(&head, [&blocks[..], &[block(9)]].concat()));
        if let Some((_, fewer)) = blocks.split_last() {
            is_corrupt(ToServer::decode(&head, fewer.to_vec()));
        }
    }
}

/// What decodes is what its bytes say.
fn means_what_it_says<M: Message>(head: &[u8], blocks: Vec<siftfs_base::SharedBlock>) {
    if let Ok(message) = M::decode(head, blocks) {
        assert_eq!(message.encode().unwrap().head, head);
    }
}

#[test]
fn what_is_no_number_time_or_range_is_refused() {
    let head = |request: Request| call_of(request).encode().unwrap().head;
    let refused = |head: &[u8], why: &str| {
        let error = ToServer::decode(head, vec![]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    let ticket = siftfs_proto::Ticket(1);
    let timeout = Some(std::time::Duration::new(1, 2));
    let mut wait = head(Request::Wait { ticket, timeout });
    // What kind of change it is, and whether it has proofs, come last.
    let last = 1 + 1;
    let at = wait.len() - last - 4;
    wait[at..at + 4].copy_from_slice(&1_000_000_000u32.to_le_bytes());
    refused(&wait, "1000000000 nanoseconds");
    let range = siftfs_proto::LockRange::new(5, 9).unwrap();
    let file = siftfs_proto::Handle(1).into();
    let kind = siftfs_proto::LockKind::Read;
    let mut lock = head(Request::GetLock { file, owner: 1, range, kind });
    let at = lock.len() - last - 1 - 8;
    lock[at..at + 8].copy_from_slice(&4u64.to_le_bytes());
    refused(&lock, "a lock of 5 to 4");
    let mut unknown = head(Request::StatFs);
    let at = unknown.len() - last - 1;
    unknown[at] = 99;
    refused(&unknown, "Request of kind 99");
}

#[test]
fn a_compound_of_too_many_steps_is_refused_before_they_are_read() {
    let mut request = requests();
    request.retain(|request| matches!(request, Request::Compound(_)));
    let call = call_of(request.remove(0));
    let mut head = call.encode().unwrap().head;
    let at = 1 + 4 + 8 + 14 + 1 + 4;
    assert_eq!(head[at..at + 4], 19u32.to_le_bytes());
    head[at..at + 4].copy_from_slice(&4097u32.to_le_bytes());
    let error = ToServer::decode(&head, vec![]).unwrap_err().to_string();
    assert!(error.contains("a compound of 4097 steps"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn damaged_messages_are_refused_or_mean_what_they_say(
        which in any::<proptest::sample::Index>(),
        at in any::<proptest::sample::Index>(),
        flip in 1u8..,
    ) {
        let all = to_server();
        let Encoded { mut head, blocks } = which.get(&all).encode().unwrap();
        let place = at.index(head.len());
        head[place] ^= flip;
        means_what_it_says::<ToServer>(&head, blocks);
        let mut all = from_server();
        // A document has more than one form.
        all.retain(|message| message.encode().unwrap().head.len() < 1000);
        let Encoded { mut head, blocks } = which.get(&all).encode().unwrap();
        let place = at.index(head.len());
        head[place] ^= flip;
        if head[0] != 3 || head.get(14) != Some(&25) {
            means_what_it_says::<FromServer>(&head, blocks);
        }
    }

    #[test]
    fn random_bytes_are_refused_or_mean_what_they_say(
        head in proptest::collection::vec(any::<u8>(), 0..200), kind in 1u8..60,
    ) {
        means_what_it_says::<ToServer>(&head, vec![]);
        let call = [&[2; 1][..], &[0; 26], &[kind], &head].concat();
        means_what_it_says::<ToServer>(&call, vec![]);
    }
}
