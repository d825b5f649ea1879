use super::*;

const INO: InodeNr = 12;
const LEASE: LeaseId = LeaseId(7);

fn blocks(ranges: &[(u64, u64)]) -> RangeSet<Blocks> {
    let mut set = RangeSet::new();
    ranges.iter().for_each(|(start, end)| set.insert(*start, *end));
    set
}

fn offered(all: &[(u64, u64)], fresh: &[(u64, u64)]) -> Offered {
    Offered { blocks: blocks(all), fresh: blocks(fresh) }
}

fn stops(step: Step<()>) -> bool {
    match step {
        Ok(()) => false,
        Err(Stop::TakeBack(INO)) => true,
        Err(_) => panic!("it stopped for something else"),
    }
}

fn granted() -> Directs {
    let mut directs = Directs::default();
    directs.ask(INO, LEASE).unwrap();
    directs.offer(INO, offered(&[(2, 4), (8, 9)], &[(3, 4), (8, 9)]));
    directs.granted(INO);
    directs
}

#[test]
fn a_grant_begins_and_ends() {
    let mut directs = Directs::default();
    assert!(!stops(directs.touch(INO)));
    assert_eq!(directs.end(INO), End::Nothing);
    directs.ask(INO, LEASE).unwrap();
    assert_eq!(directs.ask(INO, LEASE).unwrap_err().errno(), libc::EAGAIN);
    assert!(stops(directs.touch(INO)) && !stops(directs.touch_blocks(INO, 0, 100)));
    assert_eq!(directs.end(INO), End::Wait);
    directs.offer(INO, offered(&[(2, 4)], &[]));
    // From the choice on, and not only from the grant: the target may have granted it already.
    assert!(stops(directs.touch_blocks(INO, 3, 4)));
    assert_eq!((directs.settle(INO), directs.is_asked(INO)), (End::Nothing, true));
    directs.granted(INO);
    assert!(!directs.is_asked(INO));
    assert_eq!(directs.end(INO), End::Revoke(LEASE));
    // One thread revokes; who else wants the file waits for it.
    assert_eq!(directs.end(INO), End::Wait);
    assert!(stops(directs.touch(INO)));
    assert_eq!(directs.forget(INO), blocks(&[(2, 4)]));
    assert_eq!(directs.end(INO), End::Nothing);
    directs.lease_ended(INO);
}

#[test]
fn what_lies_beside_granted_blocks_leaves_them() {
    let directs = granted();
    for (first, end, meets) in
        [(0, 2, false), (0, 3, true), (4, 8, false), (3, 9, true), (9, 99, false)]
    {
        assert_eq!(stops(directs.touch_blocks(INO, first, end)), meets, "{first} to {end}");
    }
    assert!(!stops(directs.touch_blocks(INO + 1, 0, 100)));
}

#[test]
fn nothing_is_granted_by_a_lease_that_is_ending() {
    let mut directs = granted();
    directs.lease_ends(INO);
    assert_eq!(directs.end(INO), End::Revoke(LEASE));
    directs.forget(INO);
    assert_eq!(directs.ask(INO, LEASE).unwrap_err().errno(), libc::ESTALE);
    directs.lease_ended(INO);
    directs.ask(INO, LeaseId(8)).unwrap();
}

#[test]
#[should_panic(expected = "rule R29")]
fn r29_no_lease_ends_with_a_grant() {
    granted().lease_ended(INO);
}

/// However many ask, and for however many files.
#[test]
fn nobody_makes_checkpoints_as_often_as_he_likes() {
    let mut directs = Directs::default();
    let made = (0..10_000_000_000u64).step_by(1_000_000).filter(|now| directs.may_bring(*now));
    assert_eq!(made.count(), 100, "in ten seconds of asking each millisecond");
}

#[test]
fn a_loss_is_told_once_and_belongs_to_its_lease() {
    let mut directs = granted();
    assert!(!directs.take_lost(INO));
    directs.note_lost(INO);
    assert!(directs.take_lost(INO) && !directs.take_lost(INO));
    directs.note_lost(INO);
    directs.forget(INO);
    directs.lease_ended(INO);
    assert!(!directs.take_lost(INO));
}

/// One thread asks the target at a time; the end of a grant waits until what it has told is noted.
#[test]
fn a_settling_ends_before_its_grant() {
    let mut directs = Directs::default();
    assert_eq!(directs.settle(INO), End::Nothing);
    directs.ask(INO, LEASE).unwrap();
    assert_eq!(directs.settle(INO), End::Nothing, "nothing is granted yet");
    directs.offer(INO, offered(&[(2, 4)], &[]));
    directs.granted(INO);
    assert_eq!(directs.settle(INO), End::Revoke(LEASE));
    assert_eq!((directs.settle(INO), directs.end(INO)), (End::Wait, End::Wait));
    assert!(stops(directs.touch_blocks(INO, 2, 3)), "they are the program's still");
    directs.settled(INO);
    assert_eq!(directs.end(INO), End::Revoke(LEASE));
    assert_eq!(directs.settle(INO), End::Wait);
    directs.forget(INO);
    assert_eq!(directs.settle(INO), End::Nothing);
}

/// Rule R30: what the target tells counts only for blocks that were granted as fresh ones.
#[test]
fn r30_the_target_tells_of_nothing_else() {
    let mut directs = granted();
    let told =
        |fresh: &[(u64, u64)], end| Written { fresh: blocks(fresh), end, ..Written::default() };
    for (fresh, end, fits) in [
        (&[(3, 4)][..], 0, true),
        (&[(8, 9), (3, 4)], 9 * BLOCK_BYTES, true),
        (&[], 9 * BLOCK_BYTES + 1, false),
        (&[(2, 3)], 0, false),
        (&[(3, 5)], 0, false),
        (&[(3, 9)], 0, false),
        (&[(100, u64::MAX)], 0, false),
    ] {
        let checked = directs.check_fresh(INO, &told(fresh, end));
        assert_eq!(checked.is_ok(), fits, "{fresh:?} up to {end}");
    }
    assert!(directs.check_fresh(INO + 1, &told(&[(3, 4)], 0)).is_err(), "of another file");
    assert!(directs.has_fresh(INO, 3) && !directs.has_fresh(INO, 2));
    directs.forget(INO);
    assert!(directs.check_fresh(INO, &told(&[(3, 4)], 0)).is_err());
}

/// While the target is asked for more, the file's other users wait, also for what is not granted
/// yet; so does a settling.
#[test]
fn a_grant_grows() {
    let mut directs = granted();
    let more = offered(&[(5, 7)], &[(6, 7)]);
    assert_eq!(directs.may_extend(INO, LeaseId(8)).unwrap_err().errno(), libc::ESTALE);
    assert!(directs.may_extend(INO, LEASE).unwrap());
    directs.offer_more(INO, &more);
    assert!(!directs.may_extend(INO, LEASE).unwrap() && directs.is_asked(INO));
    assert!(stops(directs.touch_blocks(INO, 5, 6)) && directs.has_fresh(INO, 6));
    assert_eq!((directs.end(INO), directs.settle(INO)), (End::Wait, End::Wait));
    directs.extended(INO, &more, true);
    assert!(!directs.is_asked(INO) && stops(directs.touch_blocks(INO, 5, 6)));
    assert_eq!(directs.fresh_blocks(INO), 3);
    assert_eq!(directs.end(INO), End::Revoke(LEASE));
    assert_eq!(directs.may_extend(INO, LEASE).unwrap_err().errno(), libc::ESTALE);
    assert_eq!(directs.forget(INO), blocks(&[(2, 4), (5, 7), (8, 9)]));
}

#[test]
fn what_the_target_does_not_add_is_nobodys() {
    let mut directs = granted();
    let more = offered(&[(5, 7)], &[(6, 7)]);
    directs.offer_more(INO, &more);
    directs.extended(INO, &more, false);
    assert!(!stops(directs.touch_blocks(INO, 5, 7)) && !directs.has_fresh(INO, 6));
    assert!(stops(directs.touch_blocks(INO, 3, 4)));
    directs.lease_ends(INO);
    assert_eq!(directs.may_extend(INO, LEASE).unwrap_err().errno(), libc::ESTALE);
}

#[test]
#[should_panic(expected = "granted once")]
fn a_block_is_granted_once() {
    granted().offer_more(INO, &offered(&[(4, 6), (8, 9)], &[]));
}
