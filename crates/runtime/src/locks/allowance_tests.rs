use super::*;

const MIB: u64 = 1 << 20;

fn left(allowance: &Allowance, user: u32) -> u64 {
    let mut charge = allowance.of(user);
    let mut bytes = 0;
    for step in (0..40).rev().map(|bit| 1 << bit) {
        if charge.grow(step) {
            bytes += step;
        }
    }
    bytes
}

#[test]
fn one_user_leaves_something_to_the_others() {
    let all = Allowance::default();
    assert_eq!((left(&all, 1), left(&all, 2)), (SHARE, SHARE));
    let first = all.wait(1, SHARE).expect("all of the share");
    assert_eq!((left(&all, 1), left(&all, 2)), (0, MOST - SHARE));
    let mut second = all.wait(2, MOST - SHARE - MIB).expect("most of what is left");
    assert_eq!((left(&all, 1), left(&all, 2), left(&all, 3)), (0, MIB, MIB));
    second.shrink_to(MIB);
    assert_eq!(left(&all, 3), MOST - SHARE - MIB);
    drop((first, second));
    assert_eq!(left(&all, 3), SHARE);
    let usage = all.usage();
    assert_eq!(usage.now, 0);
    assert!(usage.peak == MOST && usage.refused > 0, "{usage:?}");
}

#[test]
fn more_than_anybody_may_have() {
    let all = Allowance::default();
    assert_eq!(all.wait(1, SHARE + 1).err(), Some(errno(libc::E2BIG)));
    assert_eq!(all.wait(1, u64::MAX).err(), Some(errno(libc::E2BIG)));
    assert!(!all.of(1).grow(u64::MAX));
    let mut charge = all.wait(1, 5).expect("some");
    assert!(!charge.grow(u64::MAX - 2), "no sum wraps round");
    charge.shrink_to(10);
    assert_eq!(all.usage().now, 5);
}

/// Those that come while there is nothing left wait until something is; of those who come while
/// eight wait, none does.
#[test]
fn who_waits_is_told() {
    let all = Allowance::default();
    let mut held = all.wait(1, SHARE).expect("all of the share");
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let all = all.clone();
            std::thread::spawn(move || all.wait(1, SHARE / 8).map(drop))
        })
        .collect();
    while all.0.table().waiting < WAITERS {
        if waiters.iter().any(std::thread::JoinHandle::is_finished) {
            break;
        }
        std::thread::yield_now();
    }
    // A slow machine may have let one of them lose its patience by now.
    if all.0.table().waiting == WAITERS {
        assert_eq!(all.wait(1, 1).err(), Some(errno(libc::EAGAIN)));
        all.wait(2, 1).expect("another user need not wait");
        held.shrink_to(0);
        let told: Vec<_> = waiters.into_iter().map(|w| w.join().expect("it ends")).collect();
        assert!(told.iter().any(Result::is_ok), "{told:?}");
    }
    drop(held);
    assert_eq!(all.usage().now, 0);
}

/// Nobody waits for ever.
#[test]
fn patience_ends() {
    let all = Allowance::default();
    let held = all.wait(1, SHARE).expect("all of the share");
    assert_eq!(all.wait(1, 1).err(), Some(errno(libc::EAGAIN)));
    drop(held);
    all.wait(1, 1).expect("it is there again");
}
