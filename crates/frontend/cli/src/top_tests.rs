use super::*;

fn status(pid: u64, uptime: f64, fsyncs: u64, staged: u64) -> Status {
    let mut s = Status { pid, uptime_s: uptime, dir: "/d".into(), ..Status::default() };
    s.runtime.fsync_latency =
        Latency { count: fsyncs, buckets: vec![(100_000, fsyncs)], ..Latency::default() };
    s.runtime.runtime.staged_bytes = staged;
    s.runtime.runtime.full_commits.insert("TooMuchData".into(), fsyncs / 100);
    s
}

#[test]
fn rates_are_of_the_time_between() {
    let text = picture(&status(1, 10.0, 1000, 1 << 20), &status(1, 12.0, 1400, 3 << 20));
    assert!(text.contains("200/s  p50 50 µs  p99 99 µs"), "{text}");
    assert!(text.contains("1.0 MiB/s staged"), "{text}");
    assert!(text.contains("4 full commits"), "{text}");
}

#[test]
fn another_daemon_counts_from_its_start() {
    let text = picture(&status(1, 1000.0, 9000, 9), &status(2, 2.0, 10, 9));
    assert!(text.contains("5.0/s"), "{text}");
    let still = status(2, 2.0, 10, 9);
    assert!(picture(&still, &still).contains("0.0/s  p50 -  p99 -"));
}
