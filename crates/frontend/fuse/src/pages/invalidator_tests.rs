use super::*;

fn target(node: u64, want: Want) -> Target {
    Target { node, generation: 1, want }
}

#[test]
fn a_file_is_opened_once_for_all_that_wait() {
    use Want::{Close, Drop, Keep, Write};
    let all = [(3, Write), (2, Write), (3, Drop), (2, Write), (3, Keep), (4, Write), (4, Keep)];
    let all = all.map(|(node, want)| target(node, want)).to_vec();
    let once = [target(2, Write), target(3, Drop), target(4, Keep)];
    assert_eq!(merged(all), once, "dropping writes as well, and so does keeping");
    let all = [(5, Close), (5, Keep), (5, Close), (6, Close)];
    let all = all.map(|(node, want)| target(node, want)).to_vec();
    assert_eq!(merged(all), [target(5, Keep), target(5, Close), target(6, Close)]);
}

#[test]
fn places_for_answers_that_wait_are_counted() {
    let invalidator = Invalidator::default();
    assert!((0..HELD_BACK).all(|_| invalidator.hold_back()));
    assert!(!invalidator.hold_back());
    invalidator.answered();
    assert!(invalidator.hold_back());
}
