//! Tests of what recovery remembers.

use super::*;
use siftfs_log::NameOpKind;

fn op(lsn: u64, sec: i64) -> NameOp {
    let kind = NameOpKind::Unlink { dir: 2, name: b"a".to_vec(), ino: 12 };
    NameOp { lsn: Lsn(lsn), time: Timestamp { sec, nsec: 0 }, kind }
}

/// Only the very next operation, at the same time and of the same name, leaves no trace.
#[test]
fn a_file_is_undone_by_the_operation_right_behind() {
    let times = (Timestamp { sec: 1, nsec: 0 }, Timestamp { sec: 2, nsec: 0 });
    let bound = (2, b"a".to_vec(), 12);
    let made = || Made::new(&op(7, 50), bound.clone(), times);
    assert_eq!(made().undone_by(&op(8, 50), &bound), Some(times));
    assert_eq!(made().undone_by(&op(9, 50), &bound), None);
    assert_eq!(made().undone_by(&op(8, 51), &bound), None);
    assert_eq!(made().undone_by(&op(8, 50), &(2, b"b".to_vec(), 12)), None);
}

/// A record that the base has already moves nothing back.
#[test]
fn what_is_applied_only_grows() {
    let base = RecoveryCut { ops_cut: Lsn(3), staged_cut: Lsn(5), lane_upto: vec![4096, 8192] };
    let mut recovery = Recovery::new(base);
    recovery.applied(Lsn(4), 0, 1024);
    recovery.applied(Lsn(6), 1, 12_288);
    let cut = recovery.cut();
    assert_eq!((cut.ops_cut, cut.staged_cut), (Lsn(3), Lsn(6)));
    assert_eq!(cut.lane_upto, [4096, 12_288]);
    assert!(recovery.keeps_orphans());
    recovery.all_applied(Lsn(9));
    assert_eq!((recovery.cut().ops_cut, recovery.cut().staged_cut), (Lsn(9), Lsn(9)));
    assert!(!recovery.keeps_orphans());
}
