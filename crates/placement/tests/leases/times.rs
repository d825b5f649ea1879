//! The time of a file that a lender has written.

use crate::holders::*;
use crate::support::World;
use siftfs_base::Timestamp;
use siftfs_proto::*;

/// A holder wrote when it says it did. A session that lends changes no other attribute by that.
#[test]
fn a_lender_says_when_a_file_was_written() {
    let world = World::new(1);
    let v = world.open();
    let kernel = v.session(Opening::kernel()).expect("a session");
    make(&kernel, "f");
    let ino = look_up(&kernel, "f").ino;
    let (session, ..) = lender(&v);
    let access = siftfs_proto::compound::Access::Write;
    let handle = ask(&session, Request::open(ino, access)).expect("open").opened().unwrap();
    let at = Timestamp { sec: 1_600_000_000, nsec: 5 };
    let time = SetAttr { mtime: Some(SetTime::At(at)), ..SetAttr::default() };
    let set = |file: Target, set: SetAttr, times: bool| {
        ask(&session, Request::SetAttr { file, set, times }).map(drop)
    };
    let before = look_up(&kernel, "f");
    for other in [
        SetAttr::default(),
        SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() },
        SetAttr { perm: Some(0o777), ..time.clone() },
        SetAttr { uid: Some(0), ..time.clone() },
        SetAttr { gid: Some(0), ..time.clone() },
        SetAttr { size: Some(0), ..time.clone() },
        SetAttr { atime: Some(SetTime::At(at)), ..time.clone() },
        SetAttr { ctime: Some(at), ..time.clone() },
        SetAttr { kill_priv: true, ..time.clone() },
        SetAttr { kill_setgid: true, ..time.clone() },
        SetAttr { keep_priv: true, ..time.clone() },
    ] {
        assert_eq!(set(handle.into(), other.clone(), true), Err(libc::EPERM), "{other:?}");
    }
    assert_eq!(set(handle.into(), time.clone(), false), Err(libc::EPERM), "without times");
    assert_eq!(set(ino.into(), time.clone(), true), Err(libc::EPERM), "a bare number");
    assert_eq!(look_up(&kernel, "f"), before);
    assert_eq!(set(handle.into(), time, true), Ok(()));
    assert_eq!(look_up(&kernel, "f").mtime, at);
}
