use super::*;

#[test]
fn a_busy_loop_ends_by_itself_and_when_it_is_told() {
    let (never, start) = (AtomicBool::new(false), Instant::now());
    spin(&never, Duration::from_millis(20));
    assert!(start.elapsed() >= Duration::from_millis(20));
    spin(&AtomicBool::new(true), Duration::from_secs(3600));
    assert!(start.elapsed() < Duration::from_secs(600), "it was told to stop");
}

#[test]
fn only_the_library_of_private_logs_is_taken_off_the_list() {
    assert_eq!(without("/a/libsiftfs_preload.so"), "");
    assert_eq!(
        without("/b/other.so:/a/libsiftfs_preload.so /c/third.so"),
        "/b/other.so:/c/third.so"
    );
    assert_eq!(without(""), "");
}
