use super::*;

#[test]
fn what_db_bench_prints() {
    let line = "Keys: 16 bytes\n\
        fillsync     :     644.019 micros/op 1552 ops/sec 1.004 seconds 1559 operations;    0.2 MB/s\n";
    assert_eq!(finished(line), Some((1.004, 1559)));
    assert_eq!(finished("fillsync : error"), None);
    assert_eq!(finished("nothing"), None);
}

#[test]
fn messages_and_objects_have_many_sizes_within_bounds() {
    let sizes: Vec<usize> = (0..100).map(message_size).collect();
    assert!(sizes.iter().all(|s| (1024..=16384).contains(s)), "{sizes:?}");
    let objects: Vec<usize> = (0..100).map(object_size).collect();
    assert!(objects.iter().all(|s| (200..4200).contains(s)), "{objects:?}");
    for mut many in [sizes, objects] {
        many.sort_unstable();
        many.dedup();
        assert!(many.len() > 50);
    }
}
