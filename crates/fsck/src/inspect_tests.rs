use super::*;
use crate::tests::Fixture;
use siftfs_device::MemDevice;

#[test]
fn a_dirty_volume() {
    let mut f = Fixture::new();
    f.append(300, 0);
    let seen = inspect(&f.dev as &dyn Device);
    assert_eq!(seen.findings, vec![]);
    assert!(seen.marker.superblock && seen.marker.whole && seen.marker.marked);
    assert_eq!(seen.slots.len(), 10);
    let empty: Vec<_> = seen.slots.iter().filter(|s| s.invalid.is_some()).collect();
    assert!(empty.len() == 2 && empty.iter().all(|s| s.name == "service B"), "{empty:?}");
    assert_eq!(seen.host.unwrap().state, "mounted");
    let lane = &seen.lanes[0];
    assert_eq!(lane.records.iter().map(|r| r.lsn).collect::<Vec<_>>(), [10, 11, 12, 13]);
    assert_eq!(lane.why, "no valid record of this epoch follows");
    assert!(lane.records.iter().all(|r| r.items["data"] == 1 && r.data > 0), "{lane:?}");
    let journal = seen.journal.unwrap();
    assert_eq!(journal.transactions.iter().map(|t| t.seq).collect::<Vec<_>>(), [4, 5]);
    assert_eq!((journal.transactions[0].images, journal.transactions[0].staged), (2, 1));
    // The second transaction's cut contains the first three records.
    assert_eq!(seen.recovery.cut, 13);
    assert_eq!((seen.recovery.replay, seen.recovery.found, seen.recovery.apply), (2, 4, 0));
    f.append(300, 0);
    let after = inspect(&f.dev as &dyn Device);
    assert_eq!((after.recovery.apply, after.recovery.drop), (1, 0));
    assert!(after.recovery.needed && after.recovery.stops.is_none());
    let applied = after.lanes[0].records.iter().filter(|r| r.applies);
    assert_eq!(applied.map(|r| r.lsn).collect::<Vec<_>>(), [14]);
}

#[test]
fn clean_volumes_and_none() {
    let seen = inspect(&Fixture::empty(HostState::Clean).dev as &dyn Device);
    assert!(!seen.recovery.needed && seen.recovery.stops.is_none(), "{seen:?}");
    assert_eq!((seen.recovery.found, seen.recovery.replay), (0, 0));
    let none = inspect(&MemDevice::new(1 << 20) as &dyn Device);
    assert!(none.volume.is_none() && none.recovery.stops.is_some(), "{none:?}");
}

/// A nonce let out would let user data pass for a record.
#[test]
fn no_secret_is_told() {
    let text = serde_json::to_string(&inspect(&Fixture::new().dev as &dyn Device)).unwrap();
    assert!(!text.contains("nonce"), "{text}");
}
