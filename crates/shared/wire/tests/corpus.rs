//! Messages of the block protocol, in both directions: the kept corpus, as it is and changed.
//! `make fuzz` does the same for longer.

#![allow(unsafe_code)] // to count what is allocated

#[path = "../../codec/fuzz/kept.rs"]
mod kept;
#[path = "../fuzz/messages.rs"]
mod messages;
#[path = "../src/samples.rs"]
#[allow(dead_code)]
mod samples;

use kept::Corpus;
use samples::{from_service, to_service};
use siftfs_wire::BlockProtocol;

fn corpus() -> Corpus {
    Corpus::new(env!("CARGO_MANIFEST_DIR"), messages::any_messages)
}

#[test]
fn every_sample_is_in_the_corpus() {
    corpus().has::<BlockProtocol>(&to_service(), &from_service());
}

#[test]
fn the_corpus_is_read_as_it_was() {
    corpus().replay(25, 4);
}

#[test]
fn what_is_changed_is_refused_or_means_what_it_says() {
    let times = if std::env::var_os("SIFTFS_LONG").is_some() { 10_000 } else { 2_000 };
    corpus().changed(times);
}
