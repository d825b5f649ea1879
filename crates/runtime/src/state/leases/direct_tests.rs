use super::*;

const INO: InodeNr = 12;
const LEASE: LeaseId = LeaseId(7);

fn blocks(ranges: &[(u64, u64)]) -> RangeSet<Blocks> {
    let mut set = RangeSet::new();
    ranges.iter().for_each(|(start, end)| set.insert(*start, *end));
    set
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
    directs.offer(INO, blocks(&[(2, 4), (8, 9)]));
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
    directs.offer(INO, blocks(&[(2, 4)]));
    // From the choice on, and not only from the grant: the target may have granted it already.
    assert!(stops(directs.touch_blocks(INO, 3, 4)));
    assert_eq!((directs.of(INO), directs.is_asked(INO)), (None, true));
    directs.granted(INO);
    assert_eq!((directs.of(INO), directs.is_asked(INO)), (Some(LEASE), false));
    assert_eq!(directs.end(INO), End::Revoke(LEASE));
    // One thread revokes; who else wants the file waits for it.
    assert_eq!((directs.end(INO), directs.of(INO)), (End::Wait, None));
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
