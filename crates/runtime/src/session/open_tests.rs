//! Tests of the table of sessions.

use super::*;
use siftfs_proto::Limits;

#[test]
fn numbers_are_drawn_and_end() {
    let sessions = Sessions::default();
    let all: Vec<_> = (0..100).map(|_| sessions.begin(Opening::kernel(), false).unwrap()).collect();
    let numbers: std::collections::HashSet<_> = all.iter().map(|session| session.id).collect();
    assert_eq!(numbers.len(), 100);
    assert!(numbers.iter().all(|id| id.0 > 1000), "a number that could be guessed");
    assert!(sessions.end(all[7].id) && !sessions.end(all[7].id));
}

#[test]
fn sessions_are_bounded() {
    let sessions = Sessions::default();
    let all: Vec<_> =
        (0..MOST_SESSIONS).map(|_| sessions.begin(Opening::owner(), false).unwrap()).collect();
    assert_eq!(
        sessions.begin(Opening::owner(), false).err().map(|e| e.errno()),
        Some(libc::ENFILE)
    );
    sessions.end(all[0].id);
    sessions.begin(Opening::owner(), false).unwrap();
}

/// Only the kernel says for whom it asks (rule R31).
#[test]
fn r31_who_acts_comes_from_the_channel() {
    let sessions = Sessions::default();
    let rights = Rights { groups: vec![7], ..Rights::default() };
    let user = sessions.begin(Opening::user(1000, 100, rights.clone()), false).unwrap();
    let claimed = Credentials { pid: 9, umask: 0o22, ..Credentials::default() };
    let acting = user.acting(&claimed);
    assert_eq!((acting.uid, acting.gid, acting.pid, acting.umask), (1000, 100, 9, 0o22));
    assert_eq!(user.rights(&Rights::all()), &rights);
    let kernel = sessions.begin(Opening::kernel(), false).unwrap();
    assert_eq!(*kernel.acting(&claimed), claimed);
    assert_eq!(kernel.rights(&Rights::all()), &Rights::all());
}

#[test]
fn bytes_in_flight_are_bounded() {
    let sessions = Sessions::default();
    let limits = Limits { bytes: 100, ..Limits::default() };
    let session = sessions.begin(Opening { limits, ..Opening::owner() }, false).unwrap();
    let first = session.in_flight(60).unwrap();
    let again = |bytes| session.in_flight(bytes).map(drop).map_err(|e| e.errno());
    assert_eq!(
        (again(41), again(u64::MAX), again(40)),
        (Err(libc::EAGAIN), Err(libc::EAGAIN), Ok(()))
    );
    drop(first);
    assert_eq!(again(100), Ok(()));
}
