//! Who waits for credits, and for how many (`docs/design/persistence-path.md`, "Credits").

mod support;

use serde_json::Value;
use siftfs_placement::LocalVolume;
use siftfs_proto::*;
use support::World;

fn call(v: &LocalVolume, req: Request) -> Reply {
    v.endpoint().call(SessionId(1), &Credentials::default(), req).expect("the request")
}

fn create(v: &LocalVolume, name: &str) -> u32 {
    match call(v, Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 }) {
        Reply::Created { attr, .. } => attr.ino,
        other => panic!("{other:?}"),
    }
}

/// Overwrites the file's first bytes, and syncs.
fn write_synced(v: &LocalVolume, ino: u32, len: usize) {
    let data = WriteData::copy_of(0, &vec![7; len]);
    call(v, Request::Write { ino, offset: 0, data, append: false, kill_priv: false });
    call(v, Request::Fsync { ino, datasync: false });
}

fn status(v: &LocalVolume) -> Value {
    match call(v, Request::Status) {
        Reply::Json(text) => serde_json::from_str(&text).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

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
