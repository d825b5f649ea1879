use super::*;

#[test]
fn buckets_count_every_sample_once() {
    let latency = Latency::default();
    assert!(latency.distribution().buckets.iter().all(|b| b.1 == 0));
    for ns in [0, 1, 999, 1000, 1001, 1_600, 65_000, 65_000, 9_000_000_000, 40_000_000_000] {
        latency.record(ns);
    }
    let d = latency.distribution();
    assert_eq!((d.count, d.sum_ns), (10, 49_000_000_000 + 134_601));
    let upto = |bound| d.buckets.iter().find(|b| b.0 == bound).map(|b| b.1);
    assert_eq!(upto(1_500), Some(5));
    assert_eq!(upto(2_000), Some(6));
    assert_eq!(upto(50_000), Some(6));
    assert_eq!(upto(70_000), Some(8));
    assert_eq!(upto(7_000_000_000), Some(8));
    assert_eq!(d.buckets.last(), Some(&(10_000_000_000, 9)));
    assert!(d.buckets.is_sorted() && d.buckets.is_sorted_by_key(|b| b.1));
    assert_eq!(d.buckets.len(), 43);
}
