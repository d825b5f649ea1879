use super::*;

/// Each policy decides for all calls, which have numbers under every policy but one.
#[test]
fn decisions_are_made_and_timed() {
    for order in [RequestOrder::Merging, RequestOrder::Basic, RequestOrder::Unordered] {
        let times = decisions(order, 8, 3).unwrap();
        assert_eq!(times.len(), 3);
        assert!(times.iter().all(|nanos| *nanos > 0.0), "{order:?}: {times:?}");
    }
    assert_eq!(ordering(8, 3).unwrap().len(), 3);
}

/// A thread's second write meets its first one, others' do not.
#[test]
fn groups_are_those_of_the_product() {
    let sequence = Sequence::new(RequestOrder::Merging);
    let firsts: Vec<_> =
        [0, 1, 2, 1, 0].map(|thread| decide(&sequence, thread).unwrap().first).into();
    assert_eq!(firsts, [0, 0, 0, 3, 3]);
}
