use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn error(errno: i32) -> Error {
    Error::Io { op: "write", offset: 0, len: 1, errno }
}

/// Want of space is waited out, whatever it is called; another error ends the wait.
#[test]
fn want_of_space_is_waited_out() {
    let (room, told) = (Room::default(), Arc::new(AtomicU64::new(0)));
    let count = told.clone();
    room.on_change(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut tries = 0;
    let done = room.wait_for(|| {
        tries += 1;
        assert_eq!(room.is_short(), tries > 1, "known while it is waited for");
        assert_eq!(room.report().is_some(), tries > 1);
        match tries {
            1 => Err(error(libc::ENOSPC)),
            2 => Err(error(libc::EDQUOT)),
            _ => Ok(()),
        }
    });
    assert!(done.is_ok() && tries == 3 && !room.is_short() && room.report().is_none());
    assert_eq!(told.load(Ordering::SeqCst), 2, "told of its beginning and its end");
    let mut left = vec![libc::EIO, libc::ENOSPC];
    let failed = room.wait_for(|| Err(error(left.pop().expect("two tries"))));
    assert!(matches!(failed, Err(Error::Io { errno: libc::EIO, .. })), "{failed:?}");
    assert!(!room.is_short());
    let once = room.wait_for(|| Err(error(libc::EIO)));
    assert!(once.is_err() && told.load(Ordering::SeqCst) == 4, "nothing to wait for");
}

/// A volume that is closed or has stopped waits no longer.
#[test]
fn a_wait_is_given_up() {
    let room = Arc::new(Room::default());
    let other = room.clone();
    room.on_change(move || other.give_up());
    let failed = room.wait_for(|| Err(error(libc::ENOSPC)));
    assert!(matches!(failed, Err(Error::Io { errno: libc::ENOSPC, .. })), "{failed:?}");
}
