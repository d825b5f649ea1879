use super::*;

fn target(node: u64, drop: bool) -> Target {
    Target { node, generation: 1, drop }
}

#[test]
fn a_file_is_opened_once_for_all_that_wait() {
    let all = [(3, false), (2, false), (3, true), (2, false), (3, false)];
    let all = all.map(|(node, drop)| target(node, drop)).to_vec();
    assert_eq!(merged(all), [target(2, false), target(3, true)], "dropping writes as well");
}

#[test]
fn places_for_answers_that_wait_are_counted() {
    let invalidator = Invalidator::default();
    assert!((0..HELD_BACK).all(|_| invalidator.hold_back()));
    assert!(!invalidator.hold_back());
    invalidator.answered();
    assert!(invalidator.hold_back());
}
