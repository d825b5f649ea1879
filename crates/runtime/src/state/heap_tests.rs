//! A burst of small objects is given back.

use super::*;

/// Every thousandth object stays: the heap cannot shrink from its end.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn a_burst_is_given_back() {
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
        text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("pages") * 4096
    };
    let mut burst: Vec<Box<[u8; 1000]>> = (0..100_000).map(|_| Box::new([1; 1000])).collect();
    let full = resident();
    let mut i = 0;
    burst.retain(|_| {
        i += 1;
        i % 1000 == 0
    });
    let (_, free) = usage();
    assert!(free > 80 << 20, "{free} bytes are free and kept");
    trim();
    let left = resident();
    assert!(left + (70 << 20) < full, "{full} bytes, and {left} after trimming");
    assert_eq!(burst.len(), 100);
}
