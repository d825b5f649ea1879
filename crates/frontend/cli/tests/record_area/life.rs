//! Made, mounted, killed, filled, given up and given back.

use crate::setup::Setup;
use crate::support::run;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::time::Duration;

/// A device process that listens on a socket of its own.
fn device(s: &Setup) -> (Child, String) {
    let address = format!("unix:{}", s.text("socket"));
    let mut child = s
        .command()
        .args(["device", &s.volume(), "--listen", &address, "--json"])
        .args(["--log-file", &s.text("device.log")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    (child, address)
}

#[test]
fn small_fsyncs_go_there_and_survive_a_kill() {
    let s = Setup::empty();
    let made = s.mkfs(&["--json"]).ok();
    assert!(made.err.contains("a power cut empties"), "{made:?}");
    let report: Value = serde_json::from_str(&made.out).unwrap();
    assert_eq!(report["record_area"]["persistent"], false);
    assert_eq!(report["record_area"]["bytes"], (64 << 20) - 4096);
    let mounted = s.mount(&[]).ok();
    assert!(mounted.err.contains(&s.place()) && mounted.err.contains("power cut"), "{mounted:?}");
    s.load("f", 60);
    let dispatch = s.dispatch();
    assert_eq!(dispatch["record_area"]["records"], dispatch["all"]["records"], "{dispatch}");
    assert!(dispatch["record_area"]["records"].as_u64() >= Some(60), "{dispatch}");
    let area = s.status()["runtime"]["log"]["record_area"].clone();
    assert_eq!((&area["place"], &area["persistent"]), (&s.place().into(), &false.into()));
    let text = s.siftfs(&["status", &s.dir()]).ok().out;
    assert!(text.contains("VOLATILE") && text.contains("(100 %)"), "{text}");
    s.kill();
    let seen = s.siftfs(&["inspect", &s.volume()]).ok().out;
    assert!(seen.contains("record area mapped file on") && seen.contains("epoch 1"), "{seen}");
    s.mount(&[]).ok();
    s.holds("f", 60);
    s.umount();
    s.assert_plain_ext4();
    s.siftfs(&["fsck", &s.volume()]).ok();
}

/// One durable write of less than 1 KiB, with one fence, for each small fsync, and none
/// of the disk's lanes.
#[test]
fn a_small_fsync_is_one_persist() {
    const FSYNCS: u64 = 50;
    let s = Setup::empty();
    s.mkfs(&[]).ok();
    s.mount(&["-o", "commit=3600"]).ok();
    let file = fs::File::create(s.path("f")).unwrap();
    file.write_all_at(&[1; 64 << 10], 0).unwrap();
    file.sync_all().unwrap();
    s.siftfs(&["checkpoint", &s.dir()]).ok();
    let counts = || {
        let status = s.status();
        let area = &status["runtime"]["log"]["record_area"]["persists"];
        let all = &status["runtime"]["storage"]["staging"]["foreground"];
        let of = |counts: &Value, names: [&str; 3]| names.map(|n| counts[n].as_u64().unwrap());
        let records = status["runtime"]["runtime"]["dispatch"]["record_bytes"].as_u64().unwrap();
        (
            of(area, ["persists", "fences", "bytes"]),
            of(all, ["writes", "flushes", "write_bytes"]),
            records,
        )
    };
    let before = counts();
    for n in 0..FSYNCS {
        file.write_all_at(&[2; 512], n * 600).unwrap();
        file.sync_all().unwrap();
    }
    let after = counts();
    let more = |after: [u64; 3], before: [u64; 3]| {
        after.iter().zip(before).map(|(after, before)| after - before).collect::<Vec<_>>()
    };
    let records = after.2 - before.2;
    assert!(records <= FSYNCS << 10, "{records}");
    assert_eq!(more(after.0, before.0), [FSYNCS, FSYNCS, records], "of the area");
    assert_eq!(more(after.1, before.1), [FSYNCS, FSYNCS, records], "of all lanes together");
}

#[test]
fn a_device_process_digests_it() {
    let s = Setup::new("8M");
    let (mut child, address) = device(&s);
    s.mount(&["--service", &address]).ok();
    s.load("f", 40);
    s.siftfs(&["checkpoint", &s.dir()]).ok();
    s.load("g", 40);
    assert!(s.dispatch()["record_area"]["records"].as_u64() >= Some(80));
    s.kill();
    s.mount(&["--service", &address]).ok();
    s.holds("f", 40);
    s.holds("g", 40);
    s.umount();
    child.kill().unwrap();
    child.wait().unwrap();
    s.assert_plain_ext4();
}

/// While nothing is reclaimed, the area is full for as long as fsyncs come: all of them return, by
/// way of the disk.
#[test]
fn a_full_area_costs_no_fsync_while_its_device_process_stands_still() {
    const FSYNCS: u64 = 600;
    let s = Setup::new("260K");
    let (mut child, address) = device(&s);
    s.mount(&["--service", &address]).ok();
    let file = fs::File::create(s.path("f")).unwrap();
    file.write_all_at(&[1; 64 << 10], 0).unwrap();
    file.sync_all().unwrap();
    s.siftfs(&["checkpoint", &s.dir()]).ok();
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let (done, waited) = std::sync::mpsc::channel::<()>();
    let waker = std::thread::spawn(move || {
        // A wait for the device would last for ever.
        let early = waited.recv_timeout(Duration::from_secs(60)).is_ok();
        kill_process(pid, Signal::CONT).unwrap();
        early
    });
    let data = |n: u64| [n as u8; 512];
    for n in 0..FSYNCS {
        file.write_all_at(&data(n), n % 100 * 600).unwrap();
        file.sync_all().unwrap();
    }
    done.send(()).unwrap();
    assert!(waker.join().unwrap(), "no fsync waited for the device");
    let dispatch = s.dispatch();
    let [here, full] = [&dispatch["record_area"]["records"], &dispatch["elsewhere"]["full"]];
    assert!(here.as_u64() >= Some(200) && full.as_u64() >= Some(200), "{dispatch}");
    s.kill();
    s.mount(&["--service", &address]).ok();
    let read = fs::read(s.path("f")).unwrap();
    for n in FSYNCS - 100..FSYNCS {
        let at = (n % 100 * 600) as usize;
        assert!(read[at..at + 512] == data(n), "write {n}");
    }
    s.umount();
    child.kill().unwrap();
    child.wait().unwrap();
    s.assert_plain_ext4();
}

/// The area is as small as can be, and takes many times what it holds: no fsync fails.
#[test]
fn many_rounds_of_a_small_area() {
    let s = Setup::new("260K");
    s.mount(&[]).ok();
    s.load("f", 2000);
    let dispatch = s.dispatch();
    let [all, here] = ["all", "record_area"].map(|n| dispatch[n]["records"].as_u64().unwrap());
    let elsewhere = dispatch["elsewhere"]["full"].as_u64().unwrap_or_default();
    assert!(all >= 2000 && here + elsewhere == all && here > 1000, "{dispatch}");
    s.kill();
    s.mount(&[]).ok();
    s.holds("f", 2000);
    s.umount();
    s.assert_plain_ext4();
}

#[test]
fn thresholds_at_the_mount_and_later() {
    let s = Setup::new("8M");
    s.mount(&["-o", "record_max=0"]).ok();
    s.load("f", 5);
    let dispatch = s.dispatch();
    assert_eq!(dispatch["record_area"]["records"], 0, "{dispatch}");
    assert_eq!(dispatch["elsewhere"]["off"], dispatch["all"]["records"], "{dispatch}");
    s.mount(&["-o", "remount,record_max=8K,record_share=30"]).ok();
    s.load("g", 5);
    let status = s.status();
    assert!(s.dispatch()["record_area"]["records"].as_u64() >= Some(5), "{status}");
    assert!(status["options"].as_str().unwrap().contains("record_share=30"), "{status}");
    s.umount();
    s.mount(&["-o", "record_share=0"]).fails(2, &["record_share=0", "1 to 100"]);
    s.assert_plain_ext4();
}

/// Overwrites of mapped blocks need no tags, until a remount says otherwise; either way they are
/// there after a kill.
#[test]
fn physical_ranges_at_the_mount_and_later() {
    let s = Setup::new("8M");
    s.mount(&["-o", "commit=3600"]).ok();
    let file = fs::File::create(s.path("f")).unwrap();
    let overwrite = |byte| {
        for n in 0..20 {
            file.write_all_at(&[byte; 512], n * 600).unwrap();
            file.sync_all().unwrap();
        }
        s.dispatch()["physical"].as_u64().unwrap()
    };
    file.write_all_at(&[0; 16 << 10], 0).unwrap();
    file.sync_all().unwrap();
    s.siftfs(&["checkpoint", &s.dir()]).ok();
    let first = s.dispatch()["physical"].as_u64().unwrap();
    let on = overwrite(1);
    assert!(on >= first + 20, "{}", s.dispatch());
    s.siftfs(&["checkpoint", &s.dir()]).ok();
    let digested = s.status()["runtime"]["service"]["digested_ranges"].as_u64();
    assert!(digested >= Some(20), "{}", s.status());
    s.mount(&["-o", "remount,record_physical=off"]).ok();
    assert!(s.status()["options"].as_str().unwrap().contains("record_physical=off"));
    assert_eq!(overwrite(2), on, "{}", s.dispatch());
    s.mount(&["-o", "remount,record_physical=on"]).ok();
    assert!(overwrite(3) >= on + 20, "{}", s.dispatch());
    s.kill();
    s.mount(&[]).ok();
    let read = fs::read(s.path("f")).unwrap();
    assert!((0..20).all(|n| read[n * 600..n * 600 + 512] == [3; 512]));
    s.umount();
    s.mount(&["-o", "record_physical=maybe"]).fails(2, &["record_physical=maybe", "on or off"]);
    s.assert_plain_ext4();
}

/// An area that is lost takes the log with it: no half of a volume stays.
#[test]
fn a_lost_area_is_given_up_on_demand_only() {
    let s = Setup::new("8M");
    s.mount(&[]).ok();
    fs::write(s.path("checkpointed"), "old").unwrap();
    s.umount();
    s.crash_with("f", 5);
    fs::remove_file(s.area()).unwrap();
    let volume = s.volume();
    s.mount(&[]).fails(1, &["record area", "was not found", "--discard-log"]);
    let given_up = s.siftfs(&["recover", &volume, "--discard-log"]).ok();
    assert!(given_up.out.contains("GIVEN UP") && given_up.out.contains("adopt"), "{given_up:?}");
    assert!(run("e2fsck", &["-fy", &volume]).code <= 1);
    s.mount(&[]).fails(1, &["not a SiftFS volume"]);
    let adopt = ["adopt", &volume, "--log", &s.text("log"), "--log-size", "8M"];
    s.siftfs(&[&adopt[..], &["--record-area", &s.place()]].concat()).ok();
    s.crash_with("g", 5);
    s.mount(&[]).ok();
    s.holds("g", 5);
    assert_eq!(fs::read(s.path("checkpointed")).unwrap(), b"old");
    s.umount();
    let released = s.siftfs(&["release", &volume]).ok();
    assert!(released.out.contains("record area"), "{released:?}");
    let slots = fs::read(s.area()).unwrap();
    assert!(slots[..64] == [0; 64] && slots[2048..2112] == [0; 64]);
    s.assert_plain_ext4();
}
