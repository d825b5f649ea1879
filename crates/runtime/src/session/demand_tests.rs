use super::*;

#[test]
fn the_newest_is_wanted_and_the_oldest_counts() {
    let demand = Demand::default();
    let asked = |lsn, durable, now| demand.ask(Lsn(lsn), Lsn(durable), now).as_nanos();
    assert_eq!(demand.take(), None);
    assert_eq!(asked(5, 0, 100), 0);
    assert_eq!(asked(9, 4, 130), 30);
    assert_eq!(asked(7, 4, 150), 50);
    assert_eq!(demand.take(), Some(Lsn(9)));
    assert_eq!(asked(9, 4, 170), 0, "somebody sees to what was taken");
    assert_eq!(asked(12, 9, 200), 0, "what was wanted is there");
    assert_eq!(demand.take(), Some(Lsn(12)));
}
