use super::*;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);

fn take_in(reserves: &mut Reserves, session: SessionId, blocks: u64) -> (bool, bool) {
    reserves.begin(session);
    let had = reserves.spend(blocks);
    (had, reserves.end())
}

#[test]
fn only_what_is_taken_in_uses_it() {
    let mut reserves = Reserves::default();
    assert!(!take_in(&mut reserves, ONE, 1).0, "it has none");
    reserves.set_aside(ONE);
    assert!(!reserves.spend(1), "nothing is taken in");
    assert_eq!(take_in(&mut reserves, ONE, 1), (true, true));
    assert_eq!(take_in(&mut reserves, TWO, 1), (false, false));
    reserves.begin(ONE);
    assert!(!reserves.end(), "other space was found");
    assert!(!reserves.spend(1), "it has ended");
    assert_eq!(reserves.left(ONE), Some(LENT_RESERVE - lent_cost(1)));
    assert_eq!(reserves.kept(), LENT_RESERVE, "others leave what is missing alone");
}

#[test]
fn it_is_used_up_filled_up_and_given_back() {
    let mut reserves = Reserves::default();
    [ONE, TWO].into_iter().for_each(|session| reserves.set_aside(session));
    let mut writes = 0;
    while take_in(&mut reserves, ONE, 2).0 {
        writes += 1;
    }
    assert_eq!(writes, LENT_RESERVE / lent_cost(2));
    reserves.set_aside(ONE);
    assert!(reserves.left(ONE) < Some(lent_cost(2)), "it has it already");
    reserves.fill_up();
    assert_eq!(reserves.left(ONE), Some(LENT_RESERVE));
    reserves.give_back(ONE);
    assert_eq!((reserves.left(ONE), reserves.kept()), (None, LENT_RESERVE));
}

/// The worst that a ring may hold, by the writes that cost most: each has its ends in two blocks.
#[test]
fn a_full_ring_and_the_write_before_it_fit() {
    use siftfs_proto::{LENT_BYTES, LENT_WRITE_BYTES, LENT_WRITES};
    let touched = |len: u64| (len + 4094) / 4096 + 1;
    for long in [0, 1, 4, 7, 15, 341, LENT_WRITES] {
        let mut reserves = Reserves::default();
        reserves.set_aside(ONE);
        assert!(take_in(&mut reserves, ONE, touched(LENT_WRITE_BYTES)).0);
        let mut bytes = LENT_BYTES - 2 * (LENT_WRITES - long);
        for nr in 0..LENT_WRITES {
            let len = if nr < long { bytes / (long - nr) } else { 2 };
            bytes -= if nr < long { len } else { 0 };
            let len = len.min(LENT_WRITE_BYTES);
            assert!(take_in(&mut reserves, ONE, touched(len)).0, "write {nr}, {long} long ones");
        }
    }
}
