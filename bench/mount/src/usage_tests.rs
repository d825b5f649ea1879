use super::*;
use std::time::{Duration, Instant};

#[test]
fn a_line_of_stat() {
    let line = "77 (a) b) S 1 1 1 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0";
    assert_eq!(cpu_us(line, 100), Some(3_000_000));
    assert_eq!(cpu_us("77 (a", 100), None);
}

#[test]
fn both_kinds_of_switches_count() {
    let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t5\n";
    assert_eq!(switches(status), 12);
}

#[test]
fn work_and_sleep_are_seen() {
    let before = Usage::own();
    let start = Instant::now();
    while Usage::own().since(&before).cpu_us < 20_000 {
        assert!(start.elapsed() < Duration::from_secs(60), "no processor time is counted");
    }
    std::thread::sleep(Duration::from_millis(2));
    assert!(Usage::own().since(&before).switches > 0);
    assert!(Usage::of_process(std::process::id()).is_some_and(|u| u.switches > 0));
}
