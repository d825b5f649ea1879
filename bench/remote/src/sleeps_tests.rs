use super::*;
use std::time::Duration;

#[test]
fn sleeps_are_counted() {
    let before = of(std::process::id()).unwrap();
    for _ in 0..200 {
        std::thread::sleep(Duration::from_micros(100));
    }
    // Threads of other tests that end meanwhile take their few with them.
    assert!(of(std::process::id()).unwrap() >= before + 100);
}

#[test]
fn the_line_of_the_kernel() {
    let status = "Name:\tx\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t3\n";
    assert_eq!(voluntary(status), Some(17));
    assert_eq!(voluntary("nonvoluntary_ctxt_switches:\t3\n"), None);
}
