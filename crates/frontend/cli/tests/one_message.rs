//! Wrong sizes, unknown options, a log or a device in use, a place that does not fit: one clear
//! message each, with the exit status of the manual's table, and nothing is made or changed.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use std::fs;
use support::{Ran, Setup, run, siftfs};

/// A command line, its exit status, and what its one message says.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

#[track_caller]
fn says_one_thing(ran: &Ran, (args, code, parts): Case<'_>) {
    let shown = || format!("{args:?}: {ran:?}");
    assert_eq!(ran.code, code, "{}", shown());
    assert_eq!(ran.out, "", "{}", shown());
    for part in parts {
        assert!(ran.err.contains(part), "no `{part}` in {}", shown());
    }
    for never in ["panicked", "backtrace", "internal error", "RUST_"] {
        assert!(!ran.err.contains(never), "{}", shown());
    }
    let first = ran.err.lines().next().unwrap_or_default();
    let (ours, usage) = (first.starts_with("siftfs: "), first.starts_with("error: "));
    // A wrong command line gets its usage shown behind the message.
    assert!(ours && ran.err.lines().count() == 1 || usage && code % 14 == 2, "{}", shown());
    let messages =
        ran.err.lines().filter(|l| l.starts_with("siftfs: ") || l.starts_with("error: "));
    assert_eq!(messages.count(), 1, "{}", shown());
    let words: Vec<_> = first.split_whitespace().filter(|w| w.starts_with('/')).collect();
    assert!(words.windows(2).all(|w| w[0].trim_end_matches(':') != w[1]), "{}", shown());
}

#[track_caller]
fn all(cases: &[Case<'_>]) {
    for case in cases {
        says_one_thing(&siftfs(case.0), *case);
    }
}

#[test]
fn sizes_given_wrongly() {
    let s = Setup::empty();
    let (v, log) = (s.volume(), s.tmp.path().join("log"));
    let log = log.to_str().unwrap();
    let small = "are too few for a volume";
    all(&[
        (&["mkfs", v], 1, &[v, "--size"]),
        (&["mkfs", v, "--size", "0"], 1, &[v, "--size"]),
        (&["mkfs", v, "--size", "12"], 1, &[v, "12 bytes", small, "--size 16512K"]),
        (&["mkfs", v, "--size", "64K"], 1, &[v, "65536 bytes", small]),
        (&["mkfs", v, "--size", "16M"], 1, &[v, small]),
        (&["mkfs", v, "--size", "many"], 2, &["'many'", "--size", "512M"]),
        (&["mkfs", v, "--size", "-5M"], 2, &["'-5M'", "--size", "512M"]),
        (&["mkfs", v, "--size", "1.5G"], 2, &["'1.5G'", "--size"]),
        (&["mkfs", v, "--size", "99999999T"], 2, &["'99999999T'", "--size"]),
        (&["mkfs", v, "--size", "15000000T"], 1, &[v, "16492674416640000000 bytes"]),
        (&["mkfs", v, "--size", ""], 2, &["--size"]),
        (&["mkfs", v, "--size"], 2, &["--size"]),
        (&["mkfs", v, "--size", "64M", "--label", "seventeen letters"], 2, &["--label", "16"]),
        (&["mkfs", v, "--size", "64M", "--lanes", "0"], 2, &["--lanes", "1..=16"]),
        (&["mkfs", v, "--size", "64M", "--lanes", "17"], 2, &["--lanes", "1..=16"]),
        (&["mkfs", v, "--size", "64M", "--log", log], 1, &[v, "--log-size"]),
        (
            &["mkfs", v, "--size", "64K", "--log", log, "--log-size", "8M"],
            1,
            &[v, "65536 bytes", "--size 8192K"],
        ),
        (&["mkfs", &format!("{v}/x"), "--size", "64M"], 1, &[v, "No such file"]),
        (&["mkfs", s.dir(), "--size", "64M"], 1, &[s.dir(), "neither a regular file nor"]),
        (&["mkfs", "/dev/null", "--size", "64M"], 1, &["/dev/null", "neither a regular file nor"]),
    ]);
    assert_eq!(fs::read_dir(s.tmp.path()).unwrap().count(), 1, "something was made");
}

#[test]
fn a_log_too_small() {
    let s = Setup::empty();
    let (v, log) = (s.volume(), s.tmp.path().join("log"));
    let log = log.to_str().unwrap();
    let mkfs = |more: &[&'static str]| [&["mkfs", v, "--size", "64M"], more].concat();
    let apart = |more: &[&'static str]| [&mkfs(&["--log"])[..], &[log], more].concat();
    all(&[
        (&mkfs(&["--log-size", "0"]), 1, &[v, "0 bytes", "--log-size 3072K"]),
        (&mkfs(&["--log-size", "1K"]), 1, &[v, "1024 bytes", "--log-size 3072K"]),
        (&mkfs(&["--log-size", "2M"]), 1, &[v, "too small"]),
        (&mkfs(&["--log-size", "8M", "--lanes", "16"]), 1, &[v, "16 lane", "--log-size 18432K"]),
        (&mkfs(&["--log-size", "100M"]), 1, &[v, "too few", "--size"]),
        (&mkfs(&["--log-size", "little"]), 2, &["--log-size", "'little'"]),
        (&apart(&["--log-size", "1M"]), 1, &[v, "1048576 bytes", "--log-size 3200K"]),
        (&apart(&["--log-size", "900000G"]), 1, &[v, log, "966367641600000 bytes"]),
    ]);
    assert_eq!(fs::read_dir(s.tmp.path()).unwrap().count(), 1, "something was made");
    // What the message says is enough.
    siftfs(&mkfs(&["--log-size", "3072K"])).ok();
    s.assert_plain_ext4();
    siftfs(&["mkfs", v, "--size", "16512K", "--force"]).ok();
    s.assert_plain_ext4();
}

#[test]
fn options_and_words_unknown() {
    let s = Setup::new();
    let (v, d) = (s.volume(), s.dir());
    let refused = |option: &'static str, parts: &'static [&'static str]| {
        let args = ["mount", v, d, "-o", option];
        says_one_thing(&siftfs(&args), (&args, 2, parts));
        let args = ["mount", v, d, "-o", "ro", "-o", &format!("nosuid,{option}")];
        says_one_thing(&siftfs(&args), (&args, 2, parts));
    };
    refused("speed", &["unknown mount option `speed`", "mount.siftfs(8)"]);
    refused("speed=9", &["unknown mount option `speed`"]);
    refused("data=journal", &["unknown mount option `data`"]);
    refused("commit=never", &["commit=never", "0.01 to 3600"]);
    refused("commit", &["commit"]);
    refused("threads=0", &["threads=0", "1 to 64"]);
    refused("cache=1M", &["cache=1M", "8M"]);
    refused("cache=large", &["cache=large", "512M"]);
    refused("ro=1", &["ro=1", "no value"]);
    refused("log_file=here", &["log_file=here", "absolute"]);
    refused("log_level=loud", &["log_level=loud", "debug"]);
    refused("metrics=192.0.2.1:80", &["metrics=192.0.2.1:80", "127.0.0.1"]);
    refused("strictatime", &["strictatime: ", "leave it out"]);
    refused("lazytime", &["lazytime: ", "leave it out"]);
    refused("noload", &["noload", "ro alone", "siftfs inspect"]);
    refused("norecovery", &["norecovery", "ro alone"]);
    all(&[
        (&["format", v], 2, &["'format'"]),
        (&["mkfs"], 2, &["VOLUME"]),
        (&["mkfs", v, "--speed"], 2, &["'--speed'"]),
        (&["mount", v], 2, &["DIR"]),
        (&["mount", v, d, "extra"], 2, &["'extra'"]),
        (&["mount", v, d, "--log-level", "loud"], 2, &["--log-level", "'loud'", "debug"]),
        (&["top", d, "-d", "0"], 2, &["--delay", "0.1 to 3600"]),
        (&["top", d, "--once", "-n", "3"], 2, &["--once", "--count"]),
        (&["fsck"], 16, &["VOLUME"]),
        (&["fsck", v, "--repair-everything"], 16, &["--repair-everything"]),
        (&["recover", v, "--speed"], 16, &["'--speed'"]),
        (&["inspect", v, v], 16, &[v]),
    ]);
    let nothing = siftfs(&[]);
    assert!(nothing.code == 2 && nothing.err.contains("Usage: siftfs <COMMAND>"), "{nothing:?}");
    s.assert_plain_ext4();
}

#[test]
fn places_that_do_not_fit() {
    let s = Setup::new();
    let (v, d) = (s.volume(), s.dir());
    let missing = s.tmp.path().join("missing");
    let missing = missing.to_str().unwrap();
    let log = format!("{missing}/log");
    all(&[
        (&["mount", v, missing], 1, &[missing, "No such file"]),
        (&["mount", v, v], 1, &[v, "not a directory"]),
        (&["mount", missing, d], 1, &[missing, "No such file"]),
        (&["mount", d, d], 1, &[d, "neither a regular file nor"]),
        (&["mount", v, d, "--log", missing], 1, &[missing, "No such file"]),
        (&["mount", v, d, "--log", v], 1, &[v, "the volume itself"]),
        (&["mount", v, d, "--log-file", &log], 1, &[&log, "No such file"]),
        (&["umount", d], 1, &[d, "not a SiftFS mount"]),
        (&["umount", missing], 1, &[missing, "No such file"]),
        (&["status", d], 1, &[d, "not on a SiftFS mount"]),
        (&["top", d], 1, &[d, "not on a SiftFS mount"]),
        (&["sync", d], 1, &[d, "not on a SiftFS mount"]),
        (&["checkpoint", missing], 1, &[missing, "No such file"]),
        (&["fsck", missing], 8, &[missing, "No such file"]),
        (&["recover", missing], 8, &[missing, "No such file"]),
        (&["inspect", d], 8, &[d, "neither a regular file nor"]),
        (&["release", missing], 1, &[missing, "No such file"]),
        (&["adopt", missing, "--log", &log], 1, &[missing, "No such file"]),
        (&["adopt", v, "--log", missing], 1, &[v, "SiftFS volume already", "siftfs release"]),
        (&["mkfs", v, "--size", "64M"], 1, &[v, "holds data already", "--force"]),
    ]);
    s.assert_plain_ext4();
}

/// The message names the process that uses volume, log or device, and says what to do about it.
#[test]
fn in_use() {
    let s = Setup::empty();
    let (v, d) = (s.volume(), s.dir());
    let [log, other] = ["log", "other"].map(|name| s.tmp.path().join(name));
    let (log, other) = (log.to_str().unwrap(), other.to_str().unwrap());
    siftfs(&["mkfs", v, "--size", "64M", "--log", log, "--log-size", "8M"]).ok();
    siftfs(&["mount", v, d]).ok();
    let busy: &[&str] = &[v, "in use by process", "siftfs", "unmount it"];
    let log_busy: &[&str] = &[log, "in use by process", "unmount it"];
    let made_with = ["mkfs", other, "--size", "64M", "--log", log, "--log-size", "8M"];
    all(&[
        (&["mount", v, d], 1, &[d, "already mounted", v, "siftfs umount"]),
        (&["mount", v, s.tmp.path().to_str().unwrap()], 1, busy),
        (&["fsck", v], 8, busy),
        (&["recover", v], 8, busy),
        (&["recover", v, "--discard-log"], 8, busy),
        (&["inspect", v], 8, busy),
        (&["release", v], 1, busy),
        (&["mkfs", v, "--force"], 1, busy),
        (&["adopt", v, "--log", other, "--log-size", "8M"], 1, busy),
        (&made_with, 1, log_busy),
        (&[&made_with[..], &["--force"]].concat(), 1, log_busy),
        (&["fsck", log], 8, log_busy),
        (&["umount", d, "--log", v], 1, &[d, log]),
        (&["status", d, "--log", v], 1, &[d, log]),
    ]);
    s.umount();
    assert!(!fs::exists(other).unwrap());
    siftfs(&["fsck", v]).ok();
}

#[test]
fn a_mounted_device() {
    let s = Setup::new();
    let (v, d) = (s.volume(), s.dir());
    let [at, other] = ["at", "other"].map(|name| s.tmp.path().join(name));
    fs::create_dir(&at).unwrap();
    let (at, other) = (at.to_str().unwrap(), other.to_str().unwrap());
    let device = run("losetup", &["--find", "--show", v]).ok().out;
    let device = device.trim();
    run("mount", &["-t", "ext4", device, at]).ok();
    let parts: &[&str] = &[device, "is mounted on", at, "unmount it first"];
    let below: &[&str] = &[v, device, at, "losetup -d"];
    let made_with = |log| ["mkfs", other, "--size", "64M", "--log", log, "--log-size", "8M"];
    let result = std::panic::catch_unwind(|| {
        all(&[
            (&["mount", device, d], 1, parts),
            (&["mount", v, d], 1, below),
            (&["mkfs", device, "--force"], 1, parts),
            (&["mkfs", v, "--force"], 1, below),
            (&["fsck", device], 8, parts),
            (&["recover", v], 8, below),
            (&["release", device], 1, parts),
            (&["adopt", device, "--log", other, "--log-size", "8M"], 1, parts),
            (&made_with(device), 1, parts),
            (&made_with(v), 1, below),
        ]);
    });
    run("umount", &[at]).ok();
    run("losetup", &["-d", device]).ok();
    result.unwrap_or_else(|e| std::panic::resume_unwind(e));
    assert!(!fs::exists(other).unwrap());
    s.assert_plain_ext4();
}
