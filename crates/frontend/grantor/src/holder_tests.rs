use super::*;

#[test]
fn times_are_said_and_understood() {
    for (sec, nsec) in [(0, 0), (1, 5), (-1, 999_999_999), (1_700_000_000, 123)] {
        let time = Timestamp { sec, nsec };
        assert_eq!(timestamp(nanoseconds(time)), time);
    }
    let far = Timestamp { sec: i64::MAX, nsec: 0 };
    assert_eq!(nanoseconds(far), i64::MAX);
    assert_eq!(timestamp(i64::MIN).sec, -9_223_372_037);
}

#[test]
fn a_holder_cannot_have_written_before_its_lease_or_after_now() {
    let since = Timestamp { sec: 1_000_000, nsec: 7 };
    assert_eq!(believable(0, since), since);
    assert_eq!(believable(i64::MIN, since), since);
    let within = Timestamp { sec: 1_000_000, nsec: 8 };
    assert_eq!(believable(nanoseconds(within), since), within);
    let now = believable(i64::MAX, since);
    assert!(now.sec < 9_000_000_000 && now > within);
}

#[test]
fn what_is_recalled_is_done_once_and_in_order() {
    let recalls = Recalls::default();
    recalls.add(Weak::new(), LeaseId(1));
    recalls.add(Weak::new(), LeaseId(2));
    recalls.close();
    assert_eq!(recalls.next().map(|(_, lease)| lease), Some(LeaseId(1)));
    assert_eq!(recalls.next().map(|(_, lease)| lease), Some(LeaseId(2)));
    assert!(recalls.next().is_none());
}
