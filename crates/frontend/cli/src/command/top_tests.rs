use super::*;
use siftfs_status::{DeviceStatistics, Link, Remote};

fn status(pid: u32, uptime: f64, fsyncs: u64, staged: u64) -> Status {
    let mut s = Status { pid, uptime_s: uptime, dir: "/d".into(), ..Status::default() };
    s.runtime.fsync_latency =
        Distribution { count: fsyncs, buckets: vec![(100_000, fsyncs)], ..Distribution::default() };
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
fn each_side_has_its_share_of_a_processor() {
    let at = |uptime_s, host_cpu_us, pid, cpu_us| {
        let mut s = Status { pid: 1, uptime_s, ..Status::default() };
        let link = Link::device(Remote { connected: true, ..Remote::default() });
        s.runtime.link = Link { host_cpu_us, ..link };
        s.runtime.service.device = Some(DeviceStatistics { pid, cpu_us, ..Default::default() });
        s
    };
    let text = picture(&at(10.0, 1_000_000, 7, 500_000), &at(12.0, 1_500_000, 7, 600_000));
    assert!(text.contains("process 7; 25 % of a processor here, 5 % there"), "{text}");
    let text = picture(&at(10.0, 0, 7, 500_000), &at(12.0, 0, 8, 200_000));
    assert!(text.contains("process 8; 0 % of a processor here, 10 % there"), "{text}");
    let mut away = at(12.0, 0, 7, 0);
    let trouble = Some("it is stopped".into());
    away.runtime.link = Link::device(Remote { trouble, ..Remote::default() });
    assert!(picture(&at(10.0, 0, 7, 0), &away).contains("it is stopped"));
}

/// Of several mounts each has a line with its own rate.
#[test]
fn several_mounts() {
    let mount = |dir: &str, reads| Mount {
        dir: dir.into(),
        requests: [("read".to_string(), reads)].into(),
        ..Mount::default()
    };
    let at = |uptime_s, a, b| {
        let mounts = vec![mount("/a", a), mount("/b", b)];
        Status { pid: 1, uptime_s, mounts, ..Status::default() }
    };
    let text = picture(&at(10.0, 100, 0), &at(12.0, 200, 8));
    assert!(text.contains("/a  50/s requests") && text.contains("/b  4.0/s requests"), "{text}");
}

#[test]
fn another_daemon_counts_from_its_start() {
    let text = picture(&status(1, 1000.0, 9000, 9), &status(2, 2.0, 10, 9));
    assert!(text.contains("5.0/s"), "{text}");
    let still = status(2, 2.0, 10, 9);
    assert!(picture(&still, &still).contains("0.0/s  p50 -  p99 -"));
}
