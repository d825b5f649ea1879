use super::*;

#[test]
fn a_busy_loop_ends_by_itself_and_when_it_is_told() {
    let (never, start) = (AtomicBool::new(false), Instant::now());
    spin(&never, Duration::from_millis(20));
    assert!(start.elapsed() >= Duration::from_millis(20));
    spin(&AtomicBool::new(true), Duration::from_secs(3600));
    assert!(start.elapsed() < Duration::from_secs(600), "it was told to stop");
}
