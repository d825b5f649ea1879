use super::*;

const B: u64 = BLOCK_BYTES;

fn fresh(first: u64, count: u64) -> Fresh {
    let run = |first, count, fresh| DirectRun { first, block: 100 + first, count, fresh };
    Fresh::of(&[run(0, first, false), run(first, count, true)])
}

/// The host has to hear of a first write, and of a longer file, once.
#[test]
fn what_the_host_has_to_hear_of() {
    let fresh = fresh(2, 4);
    assert_eq!(fresh.end(), 6 * B);
    assert!(!fresh.concerns(&(0..2 * B)) && fresh.concerns(&(2 * B - 1..2 * B + 1)));
    fresh.wrote(&(0..B), false);
    assert!(!fresh.owes(), "it was written before");
    fresh.wrote(&(2 * B..2 * B + 10), true);
    assert!(fresh.owes() && fresh.concerns(&(0..1)), "an fsync is owed");
    let telling = fresh.tells();
    // Another write comes before the host has answered.
    fresh.wrote(&(3 * B..4 * B), true);
    fresh.told(&telling);
    assert!(fresh.owes());
    fresh.told(&fresh.tells());
    assert!(!fresh.owes() && !fresh.concerns(&(2 * B..4 * B)) && fresh.concerns(&(4 * B..5 * B)));
    // The same blocks again: only if the file grows.
    fresh.wrote(&(2 * B..3 * B), false);
    assert!(!fresh.owes());
    fresh.wrote(&(3 * B..4 * B), true);
    assert!(fresh.owes());
}

/// An older answer takes nothing back.
#[test]
fn answers_come_in_any_order() {
    let fresh = fresh(0, 4);
    fresh.wrote(&(0..B), true);
    let first = fresh.tells();
    fresh.wrote(&(B..2 * B), true);
    let second = fresh.tells();
    fresh.told(&second);
    fresh.told(&first);
    assert!(!fresh.owes());
}

/// What is not kept, and was not told, may be lost with the target.
#[test]
fn what_is_lacking() {
    let fresh = fresh(0, 4);
    assert!(!fresh.lacks(&[]));
    fresh.wrote(&(0..B), true);
    fresh.wrote(&(2 * B..3 * B), true);
    let kept = |offset, len: u64| (offset, vec![0; len as usize]);
    assert!(fresh.lacks(&[]) && fresh.lacks(&[kept(0, B)]));
    assert!(fresh.lacks(&[kept(0, B), kept(2 * B, B - 1)]));
    assert!(!fresh.lacks(&[kept(0, B), kept(2 * B, 10), kept(2 * B + 10, B)]));
    fresh.told(&fresh.tells());
    assert!(!fresh.lacks(&[]));
}

#[test]
fn a_stream_is_told_from_small_durable_appends() {
    let mut appends = Appends::default();
    appends.note(100);
    assert!(!appends.is_stream(), "the first may be the only one");
    appends.note(100);
    assert!(appends.is_stream());
    // Little between two syncs: from then on a stream is as much as is not little.
    appends.synced();
    for _ in 0..10 {
        appends.note(100);
        assert!(!appends.is_stream());
    }
    appends.note(SMALL[0]);
    assert!(appends.is_stream());
    appends.synced();
    // A sync of nothing says nothing.
    appends.synced();
    appends.note(1);
    appends.note(1);
    assert!(appends.is_stream());
}

/// The room of a stream stays over its syncs.
#[test]
fn a_stream_goes_on_behind_a_sync() {
    let mut appends = Appends::default();
    for _ in 0..3 {
        (0..20).for_each(|_| appends.note(SMALL[0] / 10));
        appends.synced();
        appends.note(100);
        assert!(appends.is_stream(), "its first write behind a sync");
    }
    appends.synced();
    appends.note(100);
    assert!(!appends.is_stream(), "it was the last one");
}

/// A single write costs one round trip to the host whatever its length is, so more bytes of it
/// count as little.
#[test]
fn one_durable_write_is_small_for_longer() {
    let mut appends = Appends::default();
    for _ in 0..3 {
        appends.note(SMALL[1] - 1);
        assert!(!appends.is_stream());
        appends.synced();
    }
    appends.note(SMALL[1] - 1);
    appends.note(1);
    assert!(appends.is_stream(), "two writes are judged as several are");
    appends.synced();
    appends.note(SMALL[1]);
    assert!(appends.is_stream());
}

#[test]
fn room_doubles() {
    let mut appends = Appends::default();
    let mut rooms = Vec::new();
    for _ in 0..10 {
        rooms.push(appends.room(1) >> 10);
        appends.asked();
    }
    assert_eq!(rooms, [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 16384]);
    assert_eq!(appends.room(20 << 20), 20 << 20, "a write that is longer has place");
    assert_eq!(appends.room(u64::MAX), ROOM_MOST);
    appends.begin_anew();
    assert_eq!(appends.room(1), 64 << 10);
}
