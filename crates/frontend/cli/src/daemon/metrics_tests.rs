use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// Parses a page as a scraper does: every sample belongs to a family that was announced with HELP
/// and TYPE before it, no sample stands twice, values are numbers.
pub fn parse(page: &str) -> BTreeMap<String, f64> {
    let (mut help, mut types) = (BTreeSet::new(), BTreeMap::new());
    let mut samples = BTreeMap::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, text) = rest.split_once(' ').unwrap();
            assert!(!text.is_empty() && help.insert(name), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(help.contains(name) && types.insert(name, kind).is_none(), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s));
            let family = family.filter(|f| types.get(f) == Some(&"histogram")).unwrap_or(name);
            assert!(types.contains_key(family), "{line}");
            assert!(samples.insert(series.to_string(), value.parse().unwrap()).is_none(), "{line}");
        }
    }
    samples
}

fn status() -> Status {
    serde_json::from_str(
        r#"{"version":"1","volume":"/odd \"name\\\n","uptime_s":2.5,"requests":{"write":8},"runtime":{
        "failed":"x","credit_wait":{"count":3},"bulk_wait":{"sum_ns":7000000000},"fsync_latency":{"count":9,"sum_ns":5000000,"buckets":[[1000,0],[1500000,7]]},
        "runtime":{"full_commits":{"TooMuchData":2},"stalls":{"log full":1}},
        "log":{"lanes":[{"bytes":10,"used":3},{"bytes":10,"used":4}]},
        "storage":{"staging":{"foreground":{"writes":5,"flushes":6,"errors":1}}}}}"#,
    )
    .unwrap()
}

/// Each mount is there by its name, also where two are on one directory.
#[test]
fn every_mount_is_watched() {
    let status = serde_json::from_str::<Status>(
        r#"{"mounts":[{"dir":"/a","device":"0:1","requests":{"write":8},"uptime_s":3},
        {"dir":"/a","device":"0:2","subdir":"x","options":"ro","requests":{"write":2,"open":1},
         "request_loop":{"kind":"ring"},"warnings":["odd"]}]}"#,
    );
    let samples = parse(&page(&status.unwrap()));
    for (series, value) in [
        (r#"siftfs_mount_requests_total{device="0:1",dir="/a",kind="write"}"#, 8.0),
        (r#"siftfs_mount_requests_total{device="0:2",dir="/a",kind="open"}"#, 1.0),
        (r#"siftfs_mount_uptime_seconds{device="0:1",dir="/a"}"#, 3.0),
        (r#"siftfs_mount_warnings{device="0:2",dir="/a"}"#, 1.0),
        (
            r#"siftfs_mount_info{device="0:2",dir="/a",subdir="x",options="ro",requests="ring"}"#,
            1.0,
        ),
    ] {
        assert_eq!(samples.get(series), Some(&value), "{series} in {samples:?}");
    }
}

/// With a device process, and without one: nothing is said of a link that there is not.
#[test]
fn a_device_process_is_watched() {
    let with = serde_json::from_str::<Status>(
        r#"{"runtime":{"link":{"placement":"device","connected":true,"fallback":false,"losses":2,
        "objections":3,"refusals":4,"hints":8,"host_cpu_us":1500000,"waited_s":2.5},
        "service":{"checkpoint_last":{"trigger":"emergency","light_batches":1,"raw_inodes":9},
          "checkpoint_total":{"raw_inodes":90,"index_nanos":500000000},
          "device":{"cpu_us":250000,"refusals":5,"hosts":1,"hints":6,
            "programs":{"queues":3,"requests":70,"groups":20,"waited":9,"further_lives":1},
            "workers":{"workers":2,"connections":11,"begun":60,"helped":13,"waited":14,
              "most_helpers":8,"broken":15},
            "io":{"area":{"background":{"writes":7}}}}}}}"#,
    )
    .unwrap();
    let samples = parse(&page(&with));
    for (series, value) in [
        ("siftfs_link_connected", 1.0),
        ("siftfs_link_fallback", 0.0),
        ("siftfs_link_losses_total", 2.0),
        ("siftfs_link_objections_total", 3.0),
        ("siftfs_link_refusals_total", 4.0),
        ("siftfs_link_waited_seconds_total", 2.5),
        ("siftfs_device_refusals_total", 5.0),
        ("siftfs_link_hints_total", 8.0),
        ("siftfs_device_hints_total", 6.0),
        ("siftfs_device_program_queues", 3.0),
        ("siftfs_device_program_requests_total", 70.0),
        ("siftfs_device_program_groups_total", 20.0),
        ("siftfs_device_program_waited_total", 9.0),
        ("siftfs_device_program_further_lives_total", 1.0),
        ("siftfs_device_worker_threads", 2.0),
        ("siftfs_device_worker_connections", 11.0),
        ("siftfs_device_worker_helpers_most", 8.0),
        ("siftfs_device_worker_begun_total", 60.0),
        ("siftfs_device_worker_helped_total", 13.0),
        ("siftfs_device_worker_waited_total", 14.0),
        ("siftfs_device_worker_broken_total", 15.0),
        ("siftfs_cpu_seconds_total{side=\"host\"}", 1.5),
        ("siftfs_cpu_seconds_total{side=\"device\"}", 0.25),
        ("siftfs_device_io_total{region=\"area\",origin=\"background\",kind=\"write\"}", 7.0),
        ("siftfs_checkpoint_inodes_total{kind=\"raw\"}", 90.0),
        ("siftfs_checkpoint_last_inodes{kind=\"raw\"}", 9.0),
        ("siftfs_checkpoint_seconds_total{phase=\"index\"}", 0.5),
        ("siftfs_checkpoint_last{mode=\"light\",trigger=\"emergency\"}", 1.0),
    ] {
        assert_eq!(samples.get(series), Some(&value), "{series} in {samples:#?}");
    }
    let without = parse(&page(&status()));
    assert!(
        without.keys().all(|k| !k.starts_with("siftfs_link") && !k.starts_with("siftfs_device"))
    );
    assert_eq!(without["siftfs_checkpoint_last{mode=\"ordered\",trigger=\"none\"}"], 0.0);
}

#[test]
fn a_scraper_reads_it() {
    let samples = parse(&page(&status()));
    for (series, value) in [
        ("siftfs_info{version=\"1\",volume=\"/odd \\\"name\\\\\\n\",dir=\"\"}", 1.0),
        ("siftfs_failed", 1.0),
        ("siftfs_uptime_seconds", 2.5),
        ("siftfs_fsync_seconds_bucket{le=\"0.000001\"}", 0.0),
        ("siftfs_fsync_seconds_bucket{le=\"0.0015\"}", 7.0),
        ("siftfs_fsync_seconds_bucket{le=\"+Inf\"}", 9.0),
        ("siftfs_requests_total{kind=\"write\"}", 8.0),
        ("siftfs_fsync_seconds_sum", 0.005),
        ("siftfs_fsync_seconds_count", 9.0),
        ("siftfs_credit_wait_seconds_count", 3.0),
        ("siftfs_bulk_wait_seconds_sum", 7.0),
        ("siftfs_full_commits_total{reason=\"TooMuchData\"}", 2.0),
        ("siftfs_full_commits_total{reason=\"DirectoryMove\"}", 0.0),
        ("siftfs_stalls_total{reason=\"log full\"}", 1.0),
        ("siftfs_staging_used_bytes{lane=\"1\"}", 4.0),
        ("siftfs_io_total{region=\"staging\",origin=\"foreground\",kind=\"flush\"}", 6.0),
        ("siftfs_io_errors_total{region=\"staging\",origin=\"foreground\",kind=\"any\"}", 1.0),
    ] {
        assert_eq!(samples.get(series), Some(&value), "{series} in {samples:#?}");
    }
}
