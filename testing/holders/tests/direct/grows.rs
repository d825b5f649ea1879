//! Grants that grow, and records that are published before blocks are granted.

use crate::town::{FILE, Town, is_direct};
use siftfs_accel::{By, Direct, Through};
use std::time::Duration;

/// Calls beside what is granted, after which more is asked for.
const BESIDE: usize = 64;
/// Longer than a host waits before it brings pending blocks home for a program again.
const AGAIN: Duration = Duration::from_millis(150);

fn read(direct: &Direct, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(direct.read_at(at, &mut bytes), Through::Lease(len));
    bytes
}

/// A stream of appends has room after room by one grant, whose queue and blocks stay.
#[test]
fn a_stream_of_appends_has_one_grant() {
    let town = Town::new();
    let user = town.user();
    let f = user.make("f", &vec![1; FILE]);
    let (session, direct) = town.direct(f);
    let mut model = vec![1; FILE];
    let append = |model: &mut Vec<u8>, byte: u8| {
        let bytes = vec![byte; 50_000];
        assert_eq!(direct.append(&bytes), Through::Lease((model.len() as u64, bytes.len())));
        model.extend(bytes);
    };
    // The first one is no stream yet, and a record.
    (0..2).for_each(|turn| append(&mut model, turn));
    let before = town.counts().grants;
    (2..60).for_each(|turn| append(&mut model, turn));
    let counts = town.counts();
    assert_eq!((counts.grants, counts.direct), (before, 1), "each grant ends the one before");
    let records = counts.ingested.bytes;
    assert!(records < 1 << 20, "{records} bytes of {} are records", model.len());
    assert!(read(&direct, 0, model.len()) == model);
    assert!(matches!(direct.sync_by(true).unwrap(), Through::Lease(_)));
    assert!(is_direct(&direct));
    assert!(user.read(f) == model);
    direct.close().unwrap();
    drop(session);
    town.close();
}

/// A record that was published while its block was not granted is the file's before the block is
/// granted: taken in later, it would come over what was written at the target since.
#[test]
fn what_is_published_comes_before_what_is_granted() {
    let town = Town::new();
    let user = town.user();
    let (f, g) = (user.make("f", &vec![1; FILE]), user.make("g", &vec![1; FILE]));
    let (first, one) = town.direct(f);
    // Nothing is brought home for a while after that: of this file nothing is granted.
    let (session, two) = town.direct(g);
    let before = town.counts().ingested.records;
    assert_eq!(two.write_at(100, b"older"), Through::Lease(5));
    assert_eq!(town.counts().ingested.records, before, "it is published, and not taken in");
    std::thread::sleep(AGAIN);
    for turn in 0..4 * BESIDE {
        assert_eq!(two.write_at(4096 * 9, &[turn as u8; 10]), Through::Lease(10));
    }
    assert!(town.counts().ingested.records > before, "a grant takes it in");
    let records = town.counts().ingested.records;
    assert_eq!(two.write_at(100, b"newer"), Through::Lease(5));
    assert_eq!(two.sync_by(true).unwrap(), Through::Lease(By::Daemon));
    assert_eq!(town.counts().ingested.records, records, "the block is granted");
    assert_eq!(read(&two, 100, 5), b"newer");
    assert_eq!(&user.read(g)[100..105], b"newer");
    drop((one, two, first, session));
    town.close();
}
