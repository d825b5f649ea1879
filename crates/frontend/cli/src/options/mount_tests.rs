use super::*;
use crate::options::parsed::FileLogs;
use siftfs_fuse::Requests;
use siftfs_placement::{LogsPlace, TransportOptions};
use std::time::Duration;

fn parsed(list: &str) -> Result<Options, String> {
    parse(&[list.to_string()], false)
}

#[test]
fn options_reach_kernel_and_volume() {
    let o = parsed("rw,noatime,ro,nosuid,commit=0.25,cache=64M,threads=8,x-systemd.a=b,,").unwrap();
    assert!(o.mount.read_only && o.open.read_only && o.mount.nosuid && !o.mount.nodev);
    assert_eq!((o.open.commit_ms, o.open.page_cache, o.mount.threads), (250, 64 << 20, 8));
    assert_eq!(o.mount.subtype.as_deref(), Some("siftfs"));
    assert_eq!(parsed("log=/a/b").unwrap().open.log, Some("/a/b".into()));
    assert!(parsed("log=").is_err());
    assert_eq!(parsed("subtype=").unwrap().mount.subtype, None);
    assert_eq!(parsed("subtype=x").unwrap().mount.subtype.as_deref(), Some("x"));
    let o = parse(&["commit=5".into(), "commit=7".into()], false).unwrap();
    assert_eq!(o.open.commit_ms, 7000);
}

#[test]
fn requests_and_their_threads() {
    let usual = parsed("").unwrap().mount;
    assert_eq!((usual.requests, usual.priority), (Requests::Auto, Priority::Nice));
    for (list, requests, priority) in [
        ("requests=ring,priority=normal", Requests::Ring, Priority::Normal),
        ("requests=device,priority=slice", Requests::Device, Priority::Slice),
        ("requests=ring,requests=auto,priority=nice", Requests::Auto, Priority::Nice),
        ("priority=nice,priority=realtime", Requests::Auto, Priority::Realtime),
    ] {
        let mount = parsed(list).unwrap().mount;
        assert_eq!((mount.requests, mount.priority), (requests, priority), "{list}");
    }
    for bad in ["requests=", "requests=rings", "priority=", "priority=10", "priority=Realtime"] {
        assert!(parsed(bad).unwrap_err().contains("not one of"), "{bad}");
    }
}

#[test]
fn the_connection_to_a_device_process_can_be_set() {
    let transport = |list| parsed(list).map(|o| o.service.transport);
    let usual = TransportOptions::default();
    assert_eq!(transport("ro").unwrap(), usual);
    assert_eq!(transport("service_spin=0").unwrap().spin, Duration::ZERO);
    assert_eq!(transport("service_spin=10000").unwrap().spin, Duration::from_millis(10));
    assert_eq!(transport("service_memory=0").unwrap().shared_memory, 0);
    assert_eq!(transport("service_memory=1G").unwrap().shared_memory, 1 << 30);
    for bad in ["service_spin=10001", "service_spin=", "service_memory=2G", "service_memory=x"] {
        assert!(transport(bad).is_err(), "{bad}");
    }
}

#[test]
fn wrong_options_are_named() {
    for bad in [
        "norw",
        "commit=",
        "commit=0",
        "commit=1e3",
        "commit=-1",
        "commit=99999999999999999999",
        "commit=1.",
        "commit=1.2345",
        "cache=1M",
        "cache=x",
        "threads=0",
        "threads=99",
        "subtype=a,b=",
        "subtype=a/b",
        "low_watermark=0",
        "ro=1",
    ] {
        assert!(parsed(bad).is_err(), "{bad}");
    }
    assert!(parsed("speed=high").unwrap_err().contains("`speed`"));
}

/// What fstab, systemd and mount(8) say besides, and that the later of two wins.
/// Where other mounts may look, the kernel must not hold back what is written.
#[test]
fn a_shared_mount_has_no_writeback_cache() {
    assert!(parsed("shared").unwrap().mount.shared && !parsed("ro").unwrap().mount.shared);
    for list in ["shared,write_cache=writeback", "write_cache=writeback,shared"] {
        let why = parsed(list).unwrap_err();
        assert!(why.contains("shared") && why.contains("write_cache=writeback"), "{why}");
    }
    assert!(parsed("shared,write_cache=writeback,write_cache=writethrough").is_ok());
}

#[test]
fn options_of_mount() {
    let o = parsed("defaults,noauto,nofail,_netdev,x-systemd.automount,X-mount.mkdir=755").unwrap();
    assert!(!o.mount.read_only && !o.mount.nosuid && !o.mount.nodev && !o.mount.noexec);
    let o = parsed("ro,nosuid,nodev,noexec,sync,noallow_other").unwrap().mount;
    assert!(o.read_only && o.nosuid && o.nodev && o.noexec && o.sync && !o.allow_other);
    let o = parsed("ro,nosuid,nodev,noexec,sync,rw,suid,dev,exec,async,allow_other").unwrap();
    assert!(!o.mount.read_only && !o.open.read_only && !o.mount.sync && o.mount.allow_other);
    assert!(!o.mount.nosuid && !o.mount.nodev && !o.mount.noexec);
    let o = parsed("user,exec").unwrap().mount;
    assert!(o.nosuid && o.nodev && !o.noexec);
    let o = parsed("owner").unwrap().mount;
    assert!(o.nosuid && o.nodev && !o.noexec);
}

/// Access times are kept as relatime has it, or not at all; what cannot be kept to is refused by
/// name.
#[test]
fn access_times() {
    let noatime = |list| parsed(list).map(|o| (o.mount.noatime, o.open.noatime));
    for (list, want) in [
        ("", false),
        ("noatime", true),
        ("noatime,relatime", false),
        ("relatime,noatime,nodiratime,nolazytime,nostrictatime", true),
        ("noatime,atime", false),
    ] {
        assert_eq!(noatime(list).unwrap(), (want, want), "{list}");
    }
    for list in ["strictatime", "lazytime", "noatime,diratime"] {
        let word = list.split(',').next_back().unwrap();
        assert!(parsed(list).unwrap_err().starts_with(&format!("{word}: ")), "{list}");
    }
}

/// Sloppy passes over what it does not know, and over nothing else.
#[test]
fn sloppy() {
    let lists = ["ro,speed,colour=red".to_string()];
    assert!(parse(&lists, true).unwrap().mount.read_only);
    assert!(parse(&lists, false).is_err());
    for wrong in ["commit=never", "cache=1M", "ro=1"] {
        assert!(parse(&[wrong.into()], true).is_err(), "{wrong}");
    }
}

/// Where what they hold gets its blocks from.
#[test]
fn pools_are_switched() {
    use siftfs_placement::Pools;
    let pools = |options: &str| parsed(options).unwrap().open.pools;
    assert_eq!(pools("ro"), Pools::None);
    assert_eq!(pools("free-lists"), Pools::Shared);
    for options in ["block-pools", "free-lists,block-pools", "block-pools,free-lists"] {
        assert_eq!(pools(options), Pools::PerSession, "{options}");
    }
    for wrong in ["free-lists=1", "block-pools=on", "nofree-lists"] {
        assert!(parsed(wrong).is_err(), "{wrong}");
    }
}

/// How what private logs hold is taken in.
#[test]
fn the_back_end_is_switched() {
    use siftfs_grantor::{How, Locate};
    assert_eq!(parsed("ro").unwrap().ingest, How::default());
    let all = parsed("ingest_threads=4,no-index-cache,fetch-thread").unwrap().ingest;
    assert_eq!((all.threads, all.locate, all.fold_fetch), (4, Locate::Uncached, false));
    assert_eq!(parsed("no-pipeline").unwrap().ingest.threads, 1);
    for wrong in ["ingest_threads=0", "ingest_threads=5", "no-pipeline=1"] {
        assert!(parsed(wrong).is_err(), "{wrong}");
    }
}

/// A kernel that owns sizes, or programs that have no operations, and private logs.
#[test]
fn private_logs_exclude_what_they_cannot_be_beside() {
    let o = parsed("private_logs=on").unwrap();
    assert!(o.mount.private_logs && o.mount.has_front() && !o.mount.shared);
    assert!(!parsed("private_logs=on,private_logs=off").unwrap().mount.has_front());
    assert!(parsed("private_logs=on,shared").unwrap().mount.shared);
    for (list, beside) in [
        ("private_logs=on,write_cache=writeback", "write_cache=writeback"),
        ("operations=off,private_logs=on", "operations=off"),
    ] {
        let why = parsed(list).unwrap_err();
        let message = format!("private_logs=on and {beside} exclude each other: ");
        assert!(why.starts_with(&message), "{why}");
    }
    assert!(parsed("private_logs=on,operations=off,operations=on").is_ok());
    assert!(parsed("private_logs=yes").unwrap_err().contains("absolute path"));
    let place = |dir: &str, volatile| FileLogs::In(LogsPlace { dir: dir.into(), volatile });
    assert_eq!(parsed("private_logs=/logs").unwrap().file_logs, place("/logs", false));
    let volatile = parsed("private_logs=volatile:/dev/shm/logs").unwrap();
    assert_eq!(volatile.file_logs, place("/dev/shm/logs", true));
    for bad in ["volatile:", "volatile:logs", "Volatile:/logs"] {
        let refused = parsed(&format!("private_logs={bad}")).unwrap_err();
        assert!(refused.contains("volatile:/DIR"), "{refused}");
    }
}
