//! Leases that pay are asked for again at once, others less and less often.

use super::*;

/// How many leases are asked for in `syncs` calls of fsync(2), each of which has `writes`.
fn asked(pace: &Pace, syncs: u32, writes: u32, refused: bool) -> u32 {
    let mut asked = 0;
    for _ in 0..syncs {
        if !pace.sync() {
            continue;
        }
        asked += 1;
        if refused {
            pace.refused();
            continue;
        }
        pace.granted();
        (0..writes).for_each(|_| pace.wrote());
        pace.ended();
    }
    asked
}

#[test]
fn what_does_not_pay_is_asked_for_seldom() {
    assert_eq!(asked(&Pace::of(1), 1000, 100, false), 1000);
    let refused = asked(&Pace::of(2), 100_000, 0, true);
    assert!((12..50).contains(&refused), "{refused}");
    let short = asked(&Pace::of(3), 100_000, 3, false);
    assert!((12..50).contains(&short), "{short}");
    // Another descriptor of the same file goes on where this one was.
    assert_eq!(asked(&Pace::of(3), 4000, 3, false), 0);
}

#[test]
fn one_that_pays_again_is_as_at_first() {
    let pace = Pace::of(4);
    assert_eq!(asked(&pace, 7, 0, true), 3, "at once, after one, after three");
    let calls = (0..100).find(|_| pace.sync()).unwrap();
    assert!(calls < 8, "{calls}");
    pace.granted();
    (0..PAID).for_each(|_| pace.wrote());
    pace.ended();
    assert!(pace.sync());
}

#[test]
fn a_file_that_is_read_is_the_kernels() {
    let pace = Pace::of(5);
    (0..1000).for_each(|_| pace.wrote());
    assert_eq!((0..10_000).position(|_| pace.read()), Some(MOST_READS as usize));
    pace.sync();
    assert!(!pace.read());
}

/// A database with a rollback journal: between two writes it reads, and looks at its size twice.
#[test]
fn a_lease_that_costs_more_than_it_saves_goes_back() {
    let pace = Pace::of(6);
    let mut leases = 0;
    let mut leased = false;
    for _ in 0..10_000 {
        if !leased && pace.sync() {
            (leases, leased) = (leases + 1, true);
            pace.granted();
        }
        (0..2).for_each(|_| pace.wrote());
        if leased && (pace.read() | pace.look() | pace.look()) {
            pace.ended();
            leased = false;
        }
    }
    assert!((3..7).contains(&leases), "{leases}");
}

/// Others rename files all the time, so that the daemon has to make each fsync(2): the mount does
/// that better. Once in a while it is no reason.
#[test]
fn a_lease_whose_log_is_no_way_goes_back() {
    let pace = Pace::of(7);
    let mut by_daemon = 0;
    let mut leased = false;
    for _ in 0..100_000 {
        let asks = pace.sync();
        if asks && !leased {
            leased = true;
            pace.granted();
        }
        if leased {
            pace.wrote();
            by_daemon += 1;
            if pace.synced(By::DaemonBesideLog) {
                pace.ended();
                leased = false;
            }
        }
    }
    assert!((22..2_000).contains(&by_daemon), "{by_daemon} of 100,000");
    let pace = Pace::of(8);
    let each_fifth = |n: u32| if n.is_multiple_of(5) { By::DaemonBesideLog } else { By::Log };
    assert!((0..10_000).all(|n| !pace.synced(each_fifth(n))));
    assert!((0..10_000).all(|_| !pace.synced(By::Daemon)), "there is no log");
}
