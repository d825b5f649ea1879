use super::*;
use siftfs_proto::LockKind;

fn ask(owner: u64, range: (u64, u64), kind: Option<LockKind>) -> LockAsk {
    let place = LockPlace::Range(LockRange::new(range.0, range.1).unwrap());
    LockAsk { owner, pid: 1, place, kind, wait: None }
}

fn held(opens: &Opens) -> Vec<(u64, u64, u64)> {
    let mut all: Vec<_> = opens
        .locks()
        .into_iter()
        .map(|(_, ask)| match ask.place {
            LockPlace::Range(range) => (ask.owner, range.first(), range.last()),
            LockPlace::Whole => (ask.owner, 0, u64::MAX),
        })
        .collect();
    all.sort_unstable();
    all
}

/// What an owner has is what its calls leave it, as fcntl(2) does.
#[test]
fn locks_are_counted_as_they_are_taken_and_given_up() {
    let opens = Opens::default();
    let own = opens.opened((12, How::File(Access::Both)), Handle(1 << 40), None);
    let write = Some(LockKind::Write);
    opens.locked(own, ask(1, (10, 29), write));
    opens.locked(own, ask(2, (40, 49), Some(LockKind::Read)));
    assert_eq!(held(&opens), [(1, 10, 29), (2, 40, 49)]);
    opens.locked(own, ask(1, (15, 19), None));
    assert_eq!(held(&opens), [(1, 10, 14), (1, 20, 29), (2, 40, 49)]);
    opens.locked(own, ask(1, (0, 24), write));
    assert_eq!(held(&opens), [(1, 0, 24), (1, 25, 29), (2, 40, 49)]);
    let whole = LockAsk { place: LockPlace::Whole, ..ask(3, (0, 0), write) };
    opens.locked(own, whole);
    assert!(opens.close_locks(12, 1));
    assert!(!opens.close_locks(13, 1), "another file");
    assert_eq!(held(&opens), [(2, 40, 49), (3, 0, u64::MAX)]);
    assert!(opens.close_locks(12, 3), "another owner's, and one of the whole file");
    opens.locked(own, LockAsk { kind: None, ..whole });
    assert_eq!(held(&opens), [(2, 40, 49)]);
    opens.locked(own, ask(2, (0, 99), None));
    assert!(!opens.close_locks(12, 2), "nobody has any");
    opens.closed(own);
    assert_eq!(held(&opens), []);
}

/// Lost changes are told once by each handle, and to who opens the file next if nobody has it open.
#[test]
fn lost_changes_are_told() {
    let opens = Opens::default();
    let open = || opens.opened((12, How::File(Access::Both)), Handle(5), None);
    let (one, other) = (open(), open());
    opens.lose(12);
    assert!(opens.take_failed(one.into()) && !opens.take_failed(one.into()));
    assert!(opens.take_failed(other.into()));
    opens.lose(12);
    opens.closed(one);
    opens.closed(other);
    let next = open();
    assert!(opens.take_failed(next.into()) && !opens.take_failed(next.into()));
    opens.lose(13);
    let later = opens.opened((13, How::File(Access::Read)), Handle(6), None);
    assert!(opens.take_failed(later.into()));
    // A kernel names the inode, also while it has the file open.
    opens.lose(13);
    let by_number = Target::Inode(13);
    assert!(opens.take_failed(by_number) && !opens.take_failed(by_number));
    assert!(!opens.take_failed(later.into()));
}

#[test]
fn a_handle_outlives_its_server() {
    let opens = Opens::default();
    let own = opens.opened((12, How::Directory), Handle(5), None);
    assert_eq!(opens.server(own), Ok(Handle(5)));
    let opened = Opened { own, ino: 12, how: How::Directory, generation: None, proven: None };
    assert_eq!(opens.all(), [opened]);
    opens.reopened(own, Ok(Handle(9)));
    assert_eq!(opens.server(own), Ok(Handle(9)));
    opens.reopened(own, Err(libc::ESTALE));
    assert_eq!(opens.server(own), Err(errno(libc::ESTALE)));
    assert_eq!(opens.all(), [], "whatever has the number at the next server");
    opens.closed(own);
    assert_eq!(opens.server(own), Err(errno(libc::EBADF)));
}

#[test]
fn a_lost_lock_ends_all_use_of_the_file() {
    let opens = Opens::default();
    let (one, other) = (
        opens.opened((12, How::File(Access::Both)), Handle(5), None),
        opens.opened((12, How::File(Access::Read)), Handle(6), None),
    );
    opens.locked(one, ask(1, (0, 9), Some(LockKind::Write)));
    opens.lock_lost(one);
    for own in [one, other] {
        assert_eq!(opens.server(own), Err(errno(libc::EIO)));
    }
    assert_eq!(held(&opens), []);
}

/// A number whose file is gone names nothing, until the kernel has forgotten it. If it is told of
/// another file of that number before, it may mean either until it has forgotten both.
#[test]
fn a_number_that_is_gone_names_no_other_file() {
    let opens = Opens::default();
    let is = |ino| (opens.is_gone(ino), opens.is_shared(ino));
    opens.gone([(12, 3), (13, 3), (14, 3)]);
    opens.is_there(15, 4);
    assert_eq!([12, 15].map(is), [(true, false), (false, false)]);
    opens.is_forgotten(12);
    opens.is_there(12, 4);
    assert_eq!(is(12), (false, false), "the kernel knows but the later one");
    opens.is_there(13, 4);
    assert_eq!(is(13), (false, true));
    opens.is_there(13, 4);
    assert_eq!(is(13), (false, true), "as long as it has the former one");
    // That one is gone with the next server.
    opens.gone([(13, 4)]);
    assert_eq!(is(13), (true, true));
    opens.is_forgotten(13);
    assert_eq!(is(13), (false, false));
    opens.is_there(14, 3);
    assert_eq!(is(14), (false, false), "it was there after all");
}
