//! What a checkpoint says about itself, where a device process made it and where the mount did.

use crate::support::{Setup, siftfs};
use crate::{Device, mount, put, status};
use serde::Deserialize;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Updates of the same files again and again, and files that go before their checkpoint.
fn load(setup: &Setup) {
    for round in 0..8 {
        for name in ["a", "b", "c"] {
            put(setup, name);
        }
        put(setup, &format!("short-lived-{round}"));
        std::fs::remove_file(setup.path(&format!("short-lived-{round}"))).unwrap();
        siftfs(&["sync", setup.dir()]).ok();
    }
}

fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} in {report}"))
}

/// All fields there are, in their proportions.
fn consistent(report: &Value, coalesces: bool) {
    let n = |field: &str| number(report, field);
    for field in [
        "batch",
        "staged",
        "raw_tags",
        "surviving_tags",
        "raw_blocks",
        "surviving_blocks",
        "raw_images",
        "surviving_images",
        "raw_inodes",
        "surviving_inodes",
        "reads",
        "read_bytes",
        "writes",
        "write_bytes",
        "windows",
        "journal_credits",
        "staging_credits",
        "index_nanos",
        "read_nanos",
        "write_nanos",
        "flush_nanos",
        "nanos",
    ] {
        assert!(n(field) > 0, "{field} in {report}");
    }
    for kind in ["tags", "blocks", "images", "inodes"] {
        let (raw, left) = (n(&format!("raw_{kind}")), n(&format!("surviving_{kind}")));
        assert!(left <= raw, "{kind} in {report}");
        assert!(!coalesces || left < raw, "no {kind} were saved: {report}");
    }
    assert_eq!(n("coalesced_batches") + n("light_batches") > 0, coalesces, "{report}");
    assert!(n("flushes") >= 2, "area and service record: {report}");
    assert!(n("read_bytes") >= n("reads") && n("write_bytes") >= 512 * n("writes"), "{report}");
    assert_eq!((n("journal_credits") % 4096, n("staging_credits") % 4096), (0, 0), "{report}");
    let phases = ["index_nanos", "read_nanos", "write_nanos", "flush_nanos"];
    let phases: u64 = phases.iter().map(|phase| n(phase)).sum();
    assert!(phases <= n("nanos"), "{report}");
}

/// Last and total as the status has them, and whether Prometheus says the same.
fn judge(setup: &Setup, coalesces: bool, device: bool) {
    load(setup);
    let answer = siftfs(&["checkpoint", setup.dir(), "--json"]).ok().out;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let status = status(setup);
    let typed = siftfs_status::Status::deserialize(&status).unwrap();
    assert_eq!(typed.runtime.link.remote.is_some(), device);
    assert_eq!(serde_json::to_value(typed).unwrap(), status, "all of it, and nothing else");
    let service = &status["runtime"]["service"];
    let total = &service["checkpoint_total"];
    consistent(total, coalesces);
    assert_eq!(service["checkpoint_last"], answer, "the last is the one that was asked for");
    assert_eq!(answer["trigger"], "emergency");
    assert!(
        number(&answer, "raw_inodes") > 0 && number(&answer, "surviving_inodes") > 0,
        "{answer}"
    );
    let text = siftfs(&["status", setup.dir()]).ok().out;
    let mode = if coalesces { "coalesce, emergency: " } else { "ordered, emergency: " };
    for part in [mode, "inode updates", "of staging and", "index "] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let top = siftfs(&["top", setup.dir(), "--once", "-d", "0.1"]).ok().out;
    let who = if device { "of a processor here, " } else { "in this process; " };
    for part in ["last: ", "inode updates", who] {
        assert!(top.contains(part), "no `{part}` in\n{top}");
    }
    let page = scrape(setup);
    for (series, field) in [
        ("tags_total{kind=\"raw\"}", "raw_tags"),
        ("tags_total{kind=\"surviving\"}", "surviving_tags"),
        ("blocks_total{kind=\"raw\"}", "raw_blocks"),
        ("inodes_total{kind=\"raw\"}", "raw_inodes"),
        ("inodes_total{kind=\"surviving\"}", "surviving_inodes"),
        ("io_total{kind=\"read\"}", "reads"),
        ("io_bytes_total{kind=\"write\"}", "write_bytes"),
        ("transactions_total", "batch"),
        ("windows_total", "windows"),
        ("credit_bytes_total{region=\"staging\"}", "staging_credits"),
    ] {
        let found = value(&page, &format!("siftfs_checkpoint_{series}"));
        assert_eq!(found, number(total, field) as f64, "{series}");
    }
    let seconds = value(&page, "siftfs_checkpoint_seconds_total{phase=\"all\"}");
    assert!((seconds - number(total, "nanos") as f64 / 1e9).abs() < 1e-9, "{seconds}");
    assert!(value(&page, "siftfs_cpu_seconds_total{side=\"host\"}") > 0.0);
    let there = page.contains("siftfs_cpu_seconds_total{side=\"device\"} ");
    assert_eq!(there, device, "{page}");
    if device {
        assert!(value(&page, "siftfs_cpu_seconds_total{side=\"device\"}") > 0.0);
        assert_eq!(value(&page, "siftfs_link_connected"), 1.0);
        assert_eq!(value(&page, "siftfs_device_refusals_total"), 0.0);
        // Those that were waited for count as their callers'.
        let io = |origin| {
            let labels = format!("region=\"area\",origin=\"{origin}\",kind=\"write\"");
            value(&page, &format!("siftfs_device_io_bytes_total{{{labels}}}"))
        };
        let written = io("foreground") + io("background");
        assert!(written >= number(total, "write_bytes") as f64, "{written}");
    }
}

fn socket(setup: &Setup) -> String {
    setup.tmp.path().join("metrics").display().to_string()
}

fn scrape(setup: &Setup) -> String {
    let mut stream = UnixStream::connect(socket(setup)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|l| l.strip_prefix(&format!("{series} ")));
    line.unwrap_or_else(|| panic!("no {series} in {page}")).parse().unwrap()
}

#[test]
fn of_a_device_process() {
    let setup = Setup::new();
    for mode in ["ordered", "coalesce"] {
        let device = Device::start(&setup, &["--replay", mode]);
        let metrics = format!("metrics={},commit=3600", socket(&setup));
        mount(&setup, &["-o", &metrics]).ok();
        judge(&setup, mode == "coalesce", true);
        setup.umount();
        device.kill();
    }
    setup.assert_plain_ext4();
}

#[test]
fn of_the_mounts_own_process() {
    let setup = Setup::new();
    for mode in ["ordered", "coalesce"] {
        setup.mount(&format!("metrics={},commit=3600,replay={mode}", socket(&setup)));
        judge(&setup, mode == "coalesce", false);
        setup.umount();
    }
    setup.assert_plain_ext4();
}
