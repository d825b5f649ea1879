use super::*;

#[test]
fn work_ends_by_its_bound() {
    let mut done = Vec::new();
    let work = |n| {
        done.push(n);
        Ok(())
    };
    let counted = until(Bound::Operations(3), work).expect("no error");
    assert_eq!((counted.operations, done), (3, vec![0, 1, 2]));
    let start = Instant::now();
    let timed = until(Bound::Time(Duration::from_millis(5)), |_| Ok(())).expect("no error");
    assert!(start.elapsed() >= Duration::from_millis(5) && timed.operations > 0);
    assert!(until(Bound::Operations(3), |_| Err(io::Error::other("broken"))).is_err());
}
