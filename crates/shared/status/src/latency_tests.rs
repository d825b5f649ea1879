use super::*;

fn latency(buckets: &[(u64, u64)], max_ns: u64) -> Distribution {
    let count = buckets.last().map_or(0, |b| b.1);
    Distribution { count, buckets: buckets.to_vec(), max_ns, ..Distribution::default() }
}

#[test]
fn quantiles_of_what_is_new() {
    let before = latency(&[(100, 50), (200, 50), (400, 50)], 100);
    let after = latency(&[(100, 50), (200, 60), (400, 70)], 390);
    // Ten samples up to 200 ns and ten up to 400: the first fifty do not count.
    assert_eq!(after.quantile_since(&before, 0.25), Some(150.0));
    assert_eq!(after.quantile_since(&before, 0.5), Some(200.0));
    assert_eq!(after.quantile_since(&before, 1.0), Some(400.0));
    assert_eq!(after.quantile_since(&after, 0.5), None);
    let none = Distribution::default();
    assert_eq!(after.quantile_since(&none, 0.5), Some(70.0));
    // Samples above the last bound.
    let above = Distribution { count: 100, ..latency(&[(100, 1)], 9000) };
    assert_eq!(above.quantile_since(&none, 0.99), Some(9000.0));
}
