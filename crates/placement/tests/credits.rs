//! Which callers wait for credits, and for how many (`docs/design/persistence-path.md`, "Credits").

#[path = "support/calls.rs"]
mod calls;
mod support;

use calls::*;
use serde_json::Value;
use siftfs_placement::LocalVolume;
use support::World;

fn number(status: &Value, path: &str) -> u64 {
    status.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {status:#}"))
}

/// How full the lane is, and how long it is.
fn lane(v: &LocalVolume) -> (u64, u64) {
    let s = status(v);
    (number(&s, "/log/lanes/0/used"), number(&s, "/log/lanes/0/bytes"))
}

const SMALL: usize = 4096;
const BULK: usize = 128 << 10;

#[test]
fn bulk_leaves_the_last_quarter_of_a_lane_to_small_fsyncs() {
    let world = World::new(1);
    let v = world.open();
    let (bulk, small) = (create(&v, "bulk"), create(&v, "small"));
    for _ in 0..100 {
        write_synced(&v, bulk, BULK);
        let (used, len) = lane(&v);
        assert!(used <= len / 4 * 3, "{used} of {len}");
    }
    let s = status(&v);
    assert!(number(&s, "/bulk_wait/count") > 0, "three laps of the lane");
    assert_eq!(number(&s, "/credit_wait/count"), 0);
    assert_eq!(number(&s, "/service/checkpoints_emergency"), 0, "bulk has no emergency");
    // Now as much as bulk may have, and small ones go on where it would wait.
    let waits = number(&s, "/bulk_wait/count");
    while lane(&v).0 + (BULK as u64 + 8192) <= lane(&v).1 / 4 * 3 {
        write_synced(&v, bulk, BULK);
    }
    while lane(&v).0 <= lane(&v).1 / 8 * 7 {
        write_synced(&v, small, SMALL);
    }
    let s = status(&v);
    assert_eq!((number(&s, "/bulk_wait/count"), number(&s, "/credit_wait/count")), (waits, 0));
    v.close().unwrap();
    world.e2fsck();
}

#[test]
fn an_fsync_waits_for_the_next_credits_and_not_for_all() {
    let world = World::new(1);
    let v = world.open();
    let small = create(&v, "small");
    for _ in 0..3 {
        for _ in 0..20 {
            write_synced(&v, small, SMALL);
        }
        v.commit(false).unwrap();
    }
    assert_eq!(number(&status(&v), "/unreclaimed_transactions"), 3);
    while number(&status(&v), "/credit_wait/count") == 0 {
        write_synced(&v, small, SMALL);
    }
    let s = status(&v);
    assert_eq!(number(&s, "/unreclaimed_transactions"), 2, "the oldest one was enough");
    assert_eq!(number(&s, "/service/checkpoints_emergency"), 1);
    assert_eq!(number(&s, "/transaction"), 3, "credits were to be had without another commit");
    // Without anything journaled, it is journaled first.
    while number(&status(&v), "/transaction") == 3 {
        write_synced(&v, small, SMALL);
    }
    v.close().unwrap();
    world.e2fsck();
}
