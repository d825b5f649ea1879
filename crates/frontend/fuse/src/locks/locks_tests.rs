use super::waits::LockWaits;
use super::*;

#[test]
fn a_signal_may_come_before_its_request_waits() {
    let waits = LockWaits::default();
    assert!(waits.begin(1) && !waits.is_interrupted(1));
    assert!(waits.interrupt(1) && waits.is_interrupted(1));
    waits.end(1);
    assert!(!waits.is_interrupted(1) && !waits.interrupt(2));
    assert!(!waits.begin(2) && waits.begin(3));
    // Signals for requests of other kinds do not pile up.
    for unique in 10..5000 {
        assert!(!waits.interrupt(unique));
    }
    assert!(waits.begin(2) && !waits.begin(4999));
    let mut begun = waits.over();
    begun.sort_unstable();
    assert_eq!(begun, [2, 3]);
    assert!(waits.is_interrupted(3) && !waits.begin(5));
}

#[test]
fn a_wait_ends_in_time_or_tells_so() {
    let waits = LockWaits::default();
    let (tell, told) = std::sync::mpsc::channel();
    let timer = |n: u32| -> Completion {
        let tell = tell.clone();
        Box::new(move |result| tell.send((n, result.is_ok())).expect("listened to"))
    };
    assert!(waits.begin(1) && waits.goes_on(1));
    waits.end_in_time(1, timer(10));
    assert!(told.try_recv().is_err());
    waits.end(1);
    assert_eq!((told.try_recv(), waits.goes_on(1)), (Ok((10, true)), false));
    waits.end_in_time(1, timer(11));
    assert_eq!(told.try_recv(), Ok((11, true)), "it has ended before");
}

#[test]
fn only_what_is_a_lock_is_one() {
    let lock = |first, last, kind| FileLock { first, last, kind, pid: 3 };
    let end = LockRange::LAST;
    assert_eq!(range(lock(0, end, 0)).unwrap(), LockRange::ALL);
    for (first, last) in [(1, 0), (0, end + 1), (u64::MAX, u64::MAX)] {
        assert_eq!(range(lock(first, last, 0)), Err(errno(libc::EINVAL)));
    }
    let kinds = [0, 1, 2].map(|n| kind(lock(0, 0, n)).unwrap());
    assert_eq!(kinds, [Some(LockKind::Read), Some(LockKind::Write), None]);
    for n in [3, 4, u32::MAX] {
        assert_eq!(kind(lock(0, 0, n)), Err(errno(libc::EINVAL)));
    }
    let whole = ask(1, lock(5, 3, 1), true).unwrap();
    assert_eq!((whole.place, whole.pid), (LockPlace::Whole, 3), "the kernel's range says nothing");
}
