use super::*;

fn errno(result: Result<()>) -> Option<i32> {
    result.err().map(|error| error.errno())
}

const MOST: usize = 8 << 20;

#[test]
fn what_was_written_is_there_in_its_order() {
    let mut running = Running::default();
    running.append((1, 5), (100, b"ab"), MOST).unwrap();
    running.append((1, 5), (102, b"cd"), MOST).unwrap();
    running.append((1, 5), (100, b"x"), MOST).unwrap();
    running.append((2, 5), (100, b"other"), MOST).unwrap();
    let writes = running.take(1, 5).unwrap();
    assert_eq!((writes.runs, writes.data), (vec![(100, 4), (100, 1)], b"abcdx".to_vec()));
    assert!(running.take(1, 5).is_none());
    running.drop_all(2);
    assert!(running.take(2, 5).is_none());
    assert_eq!(running.memory, 0);
}

#[test]
fn one_owner_has_few_and_all_are_bounded() {
    let mut running = Running::default();
    for id in 0..MOST_RUNNING as u64 {
        running.append((1, id), (0, b"a"), MOST).unwrap();
    }
    assert_eq!(errno(running.append((1, 99), (0, b"a"), MOST)), Some(libc::EAGAIN));
    running.append((1, 0), (0, b"a"), MOST).unwrap();
    running.append((2, 99), (0, b"a"), MOST).unwrap();
    let large = vec![0; 6 << 20];
    running.append((2, 1), (0, &large), MOST).unwrap();
    assert_eq!(errno(running.append((2, 1), (0, &large), MOST)), Some(libc::EFBIG), "of one");
    running.append((2, 2), (0, &large), MOST).unwrap();
    assert_eq!(errno(running.append((2, 3), (0, &large), MOST)), Some(libc::EAGAIN), "of an owner");
    let all = (3..100).find_map(|owner| {
        (0..2).find_map(|id| errno(running.append((owner, id), (0, &large), MOST)))
    });
    assert_eq!(all, Some(libc::EAGAIN), "of all");
    assert!(running.memory <= MOST_OF_ALL);
    for owner in 0..100 {
        running.drop_all(owner);
    }
    assert_eq!(running.memory, 0);
}

#[test]
fn small_ranges_count_as_what_they_take() {
    let mut running = Running::default();
    let place = |i: u64| (2 * i, &b"a"[..]);
    let refused = (0..u64::MAX).find(|i| running.append((1, 1), place(*i), MOST).is_err());
    assert!(refused.unwrap() <= (MOST_BYTES / RUN) as u64);
}
