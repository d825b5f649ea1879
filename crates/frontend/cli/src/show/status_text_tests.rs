use super::*;

fn status(json: &str) -> Status {
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_mount_in_use() {
    let text = text(&status(
        r#"{"pid":7,"version":"1.2","volume":"/v","dir":"/d","options":"ro","uptime_s":100,
        "time_s":1000,"request_loop":{"kind":"ring","why":"it is there","queues":2,"threads":5,"busy":1},"requests":{"write":1500,"lookup":3,"open":40},"runtime":{
        "fsync_latency":{"count":500,"p50_ns":61000,"p99_ns":1200000,"max_ns":9000000},
        "log":{"journal_bytes":4194304,"journal_used":2097152,"journal_data":"copy","lanes":[{"bytes":1048576,"used":0}]},
        "unreclaimed_transactions":3,
        "runtime":{"full_commits":{"TooMuchData":2,"DirectoryMove":5,"Other":0}},
        "service":{"checkpoints_background":4,"checkpoints_emergency":1,"checkpoint_last_s":988,
          "checkpoint_last":{"batch":2,"surviving_blocks":1500,"write_bytes":8192,"nanos":3000000}},
        "storage":{"area":{"background":{"writes":3,"errors":1}},
                   "journal":{"background":{"writes":4}}}}}"#,
    ));
    for part in [
        "500 since the mount (5.0/s); half within 61 µs, 99 % within 1.2 ms, slowest 9.0 ms",
        "50 %  2.0 MiB of 4.0 MiB, staged data repeated",
        "3 transactions not in the ext4 area yet",
        "last 12 s ago: 2 transactions, 1,500 blocks, 8.0 KiB written in 3.0 ms; 5 in all, 1 waited",
        "5 for a moved directory, 2 for more data than one record takes\n",
        "7 writes (0 bytes), 0 flushes, 0 reads (0 bytes), 1 ERRORS",
        "requests      1,500 write, 40 open, 3 lookup\n",
        "by 2 rings with 5 threads, 1 busy: it is there\n",
        "state         serving",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

/// Of several mounts each has a line; of one, none.
#[test]
fn several_mounts() {
    let of = |mounts: &str| text(&status(&format!(r#"{{"dir":"/a","mounts":[{mounts}]}}"#)));
    let first = r#"{"dir":"/a","options":"shared","uptime_s":100,"requests":{"write":1500,"open":1},
        "request_loop":{"kind":"ring"}}"#;
    let second = r#"{"dir":"/b","subdir":"x/y","uptime_s":3,"warnings":["read-only"],
        "request_loop":{"kind":"device"}}"#;
    let both = of(&format!("{first},{second}"));
    for line in [
        "mount         /a, for 1 min 40 s: shared; 1,501 requests by rings\n",
        "mount         /b shows /x/y, for 3 s: no options; 0 requests over /dev/fuse; read-only\n",
    ] {
        assert!(both.contains(line), "no `{line}` in\n{both}");
    }
    assert!(!of(first).contains("requests by rings"), "{}", of(first));
}

/// A volume that has stopped says why, since when, and what to do.
#[test]
fn a_volume_that_has_stopped() {
    let text = text(&status(
        r#"{"time_s":1000,"runtime":{"failed":"flush failed: EIO","failed_s":970,
        "remedy":"see to the storage"}}"#,
    ));
    assert!(text.contains("FAILED 30 s ago: flush failed: EIO\n"), "{text}");
    assert!(text.contains("changes and fsyncs get EIO; see to the storage\n"), "{text}");
}

#[test]
fn a_volume_that_waits_for_room() {
    let text =
        text(&status(r#"{"runtime":{"no_room":{"why":"write: ENOSPC","for_s":12,"tries":1500}}}"#));
    assert!(text.contains("WAITING FOR ROOM for 12 s, 1,500 tries: write: ENOSPC\n"), "{text}");
}

/// The line that begins so, with these operations.
fn line_of(name: &str, json: &str) -> Option<String> {
    let text = text(&status(&format!(r#"{{"runtime":{{"operations":{json}}}}}"#)));
    text.lines().find_map(|l| Some(l.strip_prefix(name)?.trim().to_string()))
}

#[test]
fn what_programs_have_at_a_target() {
    let line = |json: &str| line_of("direct files", json);
    assert_eq!(line("{}"), None);
    let told = line(r#"{"direct_writers":1,"direct_readers":3,"direct_recalls":1500}"#);
    assert_eq!(told.as_deref(), Some("1 of one program alone, 3 readers, 1,500 taken back"));
    let told = |lives: u64| {
        let programs = format!(
            r#"{{"queues":2,"requests":1500,"groups":7,"waited":3,"further_lives":{lives}}}"#
        );
        let workers = match lives {
            0 => r#"{"workers":2,"connections":1}"#,
            _ => {
                r#"{"workers":2,"connections":3,"begun":9,"helped":1200,"waited":5,
                "most_helpers":8,"broken":6}"#
            }
        };
        let device = format!(r#"{{"programs":{programs},"workers":{workers}}}"#);
        let service = format!(r#"{{"device":{device}}}"#);
        let operations = r#"{"direct_writers":1}"#;
        let of = format!(r#"{{"runtime":{{"operations":{operations},"service":{service}}}}}"#);
        let text = text(&status(&of));
        let line = text.lines().find_map(|l| l.strip_prefix("direct files"));
        line.map(|line| line.trim().to_string()).unwrap()
    };
    let there = "1 of one program alone, 0 readers, 0 taken back; there: 2 queues, 1,500 requests \
                 in 7 groups, 3 waited";
    assert_eq!(told(0), format!("{there}; workers: 2, connections: 1"));
    let workers = "workers: 2, connections: 3, by helpers: 1,200 (8 at most, 5 waits), broken: 6";
    assert_eq!(told(4), format!("{there}, 4 further lives; {workers}"));
}

/// Tickets and sections have a line while there are any.
#[test]
fn what_programs_have_begun() {
    let line = |json: &str| line_of("operations", json);
    assert_eq!(line("{}"), None);
    let held = line(r#"{"tickets":1500,"sections":2,"void_sections":1,"section_bytes":8192}"#);
    let told = "tickets not durable: 1,500; atomic sections: 2 (8.0 KiB), 1 of them void";
    assert_eq!(held.as_deref(), Some(told));
    let held = line(r#"{"sections":1,"section_bytes":100}"#);
    let told = "tickets not durable: 0; atomic sections: 1 (100 bytes)";
    assert_eq!(held.as_deref(), Some(told));
}

/// What was chosen for each device, and why.
#[test]
fn what_the_volume_lies_on() {
    let text = text(&status(
        r#"{"runtime":{"devices":[
        {"path":"/dev/a","kind":"block device","volatile_cache":true,"fua":false,"direct":true,
         "uring":true,"durable_write":"write, fdatasync","why":"one flush"},
        {"path":"/l","kind":"file on tmpfs","durable_write":"RWF_DSYNC","why":"no disk"}],
        "group":{"by":"measurement","way":"parallel","measured":[
        {"callers":"3 to 4","way":"parallel","shared_ns":480000,"parallel_ns":360000}]}}}"#,
    ));
    for part in [
        "storage       /dev/a: block device, volatile cache, no FUA, direct I/O, io_uring\n",
        "              write, fdatasync: one flush\n",
        "storage       /l: file on tmpfs, cache unknown, through the page cache\n",
        "together: durable writes in parallel, by measurement; 3 to 4 callers: parallel (shared 480 µs, parallel 360 µs)\n",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

#[test]
fn a_cluster_that_is_waited_for() {
    let told = |waiting: &str| {
        text(&status(&format!(
            r#"{{"runtime":{{"devices":[{{"path":"rbd:fast/v","kind":"RBD image","volatile_cache":false,
            "durable_write":"write","why":"all replicas","cluster":{{"fsid":"f-1","pool":"fast",
            "object_bytes":4194304,"health":"HEALTH_WARN"{waiting}}}}}]}}}}"#
        )))
    };
    let usual = told(r#","waiting":2,"longest_ms":999"#);
    assert!(usual.contains("pool fast, objects of 4.0 MiB, cluster f-1: HEALTH_WARN\n"), "{usual}");
    let late = told(r#","waiting":1200,"longest_ms":61500"#);
    assert!(late.contains("HEALTH_WARN; WAITING for it: 1,200 calls, for 61 s\n"), "{late}");
}

#[test]
fn who_does_the_background_work() {
    let line = |json: &str| {
        let text = text(&status(&format!(r#"{{"runtime":{json}}}"#)));
        text.lines().find(|l| l.starts_with("service")).unwrap().to_owned()
    };
    assert!(line("{}").ends_with("in this process"));
    let away = line(
        r#"{"link":{"placement":"device","address":"tcp:a:1","away_s":75,"losses":1,
        "trouble":"it was silent"},"service":{"device":{"refusals":2}}}"#,
    );
    for part in [
        "WAITING for 1 min 15 s for the device process at tcp:a:1: it was silent",
        "1 lost",
        "2 refused by it",
    ] {
        assert!(away.contains(part), "{away}");
    }
    let here = r#"{"link":{"placement":"device","connected":true,"peer":"P","messages":1234,
        "objections":3,"host_cpu_us":2500},"service":{"device":{"cpu_us":1500}}}"#;
    assert!(line(here).ends_with("P, 1,234 messages; 3 answers refused here"));
    let all = text(&status(&format!(r#"{{"runtime":{here}}}"#)));
    assert!(all.contains("2.5 ms here, 1.5 ms in the device process"), "{all}");
    let instead =
        r#"{"link":{"placement":"device","address":"A","connected":true,"fallback":true}}"#;
    assert!(line(instead).ends_with("in this process, in place of the one at A"));
}

#[test]
fn a_mount_that_failed_and_one_that_did_nothing() {
    let failed = text(&status(r#"{"runtime":{"failed":"flush: EIO"}}"#));
    assert!(failed.contains("FAILED: flush: EIO") && failed.contains("mount it again"), "{failed}");
    let idle = text(&Status::default());
    assert!(
        idle.contains("fsync         none yet") && idle.contains("full commits  none"),
        "{idle}"
    );
}

#[test]
fn who_serves_the_volume() {
    let of = |server: &str, rest: &str| text(&status(&format!(r#"{{"server":{server}{rest}}}"#)));
    let there = of(r#"{"address":"unix:/x","peer":"the server in process 7","calls":1234}"#, "");
    assert!(there.contains("the server in process 7, connected; 1,234 calls"), "{there}");
    assert!(
        there.contains("in the server's process") && there.contains("at the server"),
        "{there}"
    );
    assert!(!there.contains("placement"), "{there}");
    let logs = r#"{"placement":{"connections":2,"opened":3,"sent":100,"lent":8192,"received":7}}"#;
    let logs = of(logs, "");
    assert!(logs.contains("placement     2 connections of private logs; 100 "), "{logs}");
    assert!(logs.contains("in messages and 8"), "{logs}");
    let lost = r#"{"address":"unix:/x","lost":"it has ended","calls":5}"#;
    let gone = of(lost, r#","runtime":{"failed":"the server is lost"}"#);
    assert!(gone.contains("unix:/x LOST after 5 calls: it has ended"), "{gone}");
    assert!(gone.contains("FAILED: the server is lost") && !gone.contains("fsync  "), "{gone}");
}
