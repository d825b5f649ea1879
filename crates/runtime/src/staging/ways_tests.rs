use super::*;

/// Callers of this many threads, until `windows` windows are measured, where a record costs
/// `shared` or `parallel`; how many went each way.
fn run(ways: &mut Ways, callers: usize, windows: u64, [shared, parallel]: [u64; 2]) -> [u64; 2] {
    let mut went = [0; 2];
    for _ in 0..windows * WINDOW {
        let way = ways.way();
        went[way as usize] += 1;
        ways.published(callers);
        ways.acknowledged(way, if way == Way::Shared { shared } else { parallel });
    }
    went
}

#[test]
fn the_quicker_way_is_found() {
    for (costs, best) in [([400, 300], Way::Parallel), ([300, 400], Way::Shared)] {
        let mut ways = Ways::new(Group::Measured);
        let went = run(&mut ways, 4, 1000, costs);
        assert_eq!(ways.crowds[1].way, best);
        let other = went[best.other() as usize];
        assert!(other > 0, "the other is looked at");
        assert!(other < went[best as usize] / 50, "and rarely: {went:?}");
    }
}

#[test]
fn a_device_that_changes_is_found_out() {
    let mut ways = Ways::new(Group::Measured);
    run(&mut ways, 8, 200, [300, 400]);
    assert_eq!(ways.crowds[2].way, Way::Shared);
    run(&mut ways, 8, 2 * LOOK_MOST, [300, 100]);
    assert_eq!(ways.crowds[2].way, Way::Parallel);
}

/// Two threads and eight may be served best by different ways.
#[test]
fn numbers_of_callers_are_told_apart() {
    let mut ways = Ways::new(Group::Measured);
    for _ in 0..20 {
        run(&mut ways, 2, 20, [100, 200]);
        run(&mut ways, 8, 20, [400, 300]);
    }
    assert_eq!((ways.crowds[0].way, ways.crowds[2].way), (Way::Shared, Way::Parallel));
}

/// A difference that is noise changes nothing, and neither does a clock that stands still.
#[test]
fn a_small_difference_changes_nothing() {
    for costs in [[100, 97], [0, 0]] {
        let mut ways = Ways::new(Group::Measured);
        run(&mut ways, 4, 500, costs);
        assert_eq!(ways.crowds[1].way, Way::Shared, "{costs:?}");
    }
}

#[test]
fn a_caller_alone_is_no_measurement() {
    let mut ways = Ways::new(Group::Measured);
    let went = run(&mut ways, 1, 100, [400, 1]);
    assert_eq!(went[Way::Parallel as usize], 0);
    assert_eq!(ways.report().measured, []);
}

#[test]
fn who_sets_a_way_gets_it() {
    for (word, way) in [("shared", Way::Shared), ("parallel", Way::Parallel)] {
        let mut ways = Ways::new(word.parse().expect("a word of ours"));
        let went = run(&mut ways, 4, 100, [1, 1]);
        assert_eq!(went[way as usize], 100 * WINDOW);
        assert!(!ways.report().by_measurement);
    }
    assert_eq!("auto".parse(), Ok(Group::Measured));
    assert!("both".parse::<Group>().is_err());
}

#[test]
fn what_is_known_is_kept_by_number() {
    assert_eq!([2, 3, 4, 5, 8, 9, 1000].map(crowd_of), [0, 1, 1, 2, 2, 3, 3]);
}
