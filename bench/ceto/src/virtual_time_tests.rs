use super::*;

/// Nothing but network and storage takes time.
const FREE: Costs = Costs {
    decision: 0,
    call: 0,
    each_way: 7_000,
    message: 0,
    storage: 7_000,
    interval: 0,
    workers: 4,
};
const SPAN: u64 = 20_000_000;

fn kilo(order: RequestOrder, threads: usize) -> f64 {
    rate(order, threads, &FREE, (SPAN, 1)).unwrap() / 1000.0
}

#[track_caller]
fn about(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.05, "{found} instead of {expected}");
}

/// By the lock one call goes at a time, whatever the number of threads: 21 us each. Without an
/// order each thread goes by itself.
#[test]
fn the_bounds_are_those_of_arithmetic() {
    for threads in [1, 2, 8] {
        about(kilo(RequestOrder::Locked, threads), 1000.0 / 21.0);
        about(kilo(RequestOrder::Unordered, threads), threads as f64 * 1000.0 / 21.0);
    }
    for order in [RequestOrder::Basic, RequestOrder::Merging] {
        about(kilo(order, 1), 1000.0 / 21.0);
    }
}

/// Writes that are groups of their own overlap on the network alone: the storage does one at a
/// time. Those of other blocks share a group.
#[test]
fn groups_run_as_the_target_has_them() {
    about(kilo(RequestOrder::Basic, 8), 1000.0 / 7.0);
    about(kilo(RequestOrder::Basic, 20), 1000.0 / 7.0);
    assert!(kilo(RequestOrder::Merging, 8) > 1.8 * kilo(RequestOrder::Basic, 8));
    assert!(kilo(RequestOrder::Merging, 8) < 1.01 * kilo(RequestOrder::Unordered, 8));
}

/// Workers, the storage's rate and the spin lock are bounds, too.
#[test]
fn what_is_used_up_is_a_bound() {
    let of = |costs: Costs| rate(RequestOrder::Unordered, 20, &costs, (SPAN, 1)).unwrap() / 1000.0;
    about(of(Costs { interval: 2_000, ..FREE }), 500.0);
    about(of(Costs { message: 2_000, workers: 1, ..FREE }), 250.0);
    about(of(Costs { message: 2_000, workers: 2, ..FREE }), 500.0);
    about(of(Costs { decision: 4_000, ..FREE }), 250.0);
}
