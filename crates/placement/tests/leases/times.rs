//! The time of a file that the holder of its lease has written.

use crate::holders::*;
use siftfs_base::Timestamp;
use siftfs_proto::*;

/// A holder wrote when it says it did, but not before the file was changed last, and not after now
/// (rule R54). Times go by no other request of a session that lends.
#[test]
fn r54_a_holder_says_when_a_file_was_written() {
    let world = roomy(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    make(&kernel, "f");
    let before = look_up(&kernel, "f");
    let (session, told, _) = lender(&v);
    let handle = ask(&session, opening(before.ino)).expect("open").opened().unwrap();
    let wrote = |time: Timestamp| {
        let lease = lease(&session, handle).expect("a lease");
        let data = b"x".to_vec().into();
        let write =
            Request::LeaseWrite { lease, offset: 0, data, time: Some(time), durable: false };
        ask(&session, write).expect("it is written");
        give_back(&session, lease).expect("it is given back");
        let attr = look_up(&kernel, "f");
        assert_eq!(attr.mtime, attr.ctime, "as by a write");
        attr.mtime
    };
    let later = |by: i64| Timestamp { sec: before.mtime.sec + by, ..before.mtime };
    assert_eq!(wrote(later(-1000)), before.mtime, "not dated back");
    let ahead = wrote(later(1_000_000_000));
    assert!(ahead < later(1_000_000), "not dated ahead: {ahead:?}");
    assert!(ahead >= before.mtime);
    assert_eq!(wrote(ahead), ahead);
    let time = SetAttr { mtime: Some(SetTime::At(later(0))), ..SetAttr::default() };
    let set = Request::SetAttr { file: handle.into(), set: time, times: true };
    assert_eq!(ask(&session, set).map(drop), Err(libc::EPERM));
    drop(told);
}
