use super::*;

#[test]
fn numbers() {
    assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    let times = [700.0, 1500.0, 62_000.0, 2.5e6, 3.1e8, 4e9].map(latency);
    assert_eq!(times, ["700 ns", "1.5 µs", "62 µs", "2.5 ms", "310 ms", "4.0 s"]);
    let lengths = [5.9, 61.0, 7260.0, 90_000.0, -1.0].map(duration);
    assert_eq!(lengths, ["5 s", "1 min 1 s", "2 h 1 min", "1 d 1 h", "0 s"]);
    assert_eq!([rate(5, 2.0), rate(90_000, 2.0), rate(1, 0.0)], ["2.5/s", "45,000/s", "0.0/s"]);
}

#[test]
fn bars() {
    assert!(fill(0, 100).starts_with("[....................]   0 %"));
    assert!(fill(50, 100).starts_with("[##########..........]  50 %"));
    assert!(fill(200, 100).starts_with("[####################] 100 %"));
    assert!(fill(1, u64::MAX).starts_with("[#..................."));
    assert!(fill(0, 0).contains("0 %"));
}
