use super::*;

#[test]
fn what_db_bench_prints() {
    let line = "Keys: 16 bytes\n\
        fillsync     :     644.019 micros/op 1552 ops/sec 1.004 seconds 1559 operations;    0.2 MB/s\n";
    assert_eq!(finished(line), Some((1559, 1.004)));
    assert_eq!(finished("fillsync : error"), None);
    assert_eq!(finished("nothing"), None);
}
