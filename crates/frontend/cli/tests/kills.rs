//! Host, device process and server killed at random moments under load, by `testing/kills`, for a
//! minute;
//! `SIFTFS_KILLS=10m` for so long, `SIFTFS_KILLS_SEED` from that seed; and that the harness itself
//! cannot hang. Needs root, `/dev/fuse`, loop devices and e2fsprogs.

#[allow(dead_code)] // each test program uses a part of it
mod support;

use rustix::process::Signal;
use siftfs_kills::plan::Only;
use siftfs_kills::process::Watch;
use siftfs_kills::summary::Summary;
use siftfs_kills::{Length, Options, duration, kills};
use siftfs_rig::descriptors::own_table;
use std::env::{var, var_os};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use support::Setup;

/// How long the everyday test goes on.
const EVERY_DAY: Duration = Duration::from_secs(45);
/// How long that of servers does: some rounds.
const SERVED: Duration = Duration::from_secs(30);
/// With `SIFTFS_LONG`.
const LONG: Duration = Duration::from_secs(300);

/// Of `usual`, or for as long as SIFTFS_KILLS says.
fn killed(usual: Duration, long: Duration, only: &str) -> Summary {
    let usual = if var_os("SIFTFS_LONG").is_some() { long } else { usual };
    let time = var("SIFTFS_KILLS")
        .map_or(usual, |text| duration(&text).unwrap_or_else(|e| panic!("SIFTFS_KILLS={e}")));
    let seed = var("SIFTFS_KILLS_SEED").map_or(1, |text| {
        text.parse().unwrap_or_else(|_| panic!("SIFTFS_KILLS_SEED is not a number: {text}"))
    });
    let options = Options {
        seed,
        from: 0,
        length: Length::Time(time),
        only: Only::parse(only).unwrap(),
        siftfs: env!("CARGO_BIN_EXE_siftfs").into(),
        dir: None,
        keep: None,
        verbose: false,
    };
    let did = kills(&options, &|line| eprintln!("{line}")).unwrap_or_else(|e| panic!("{}", e.0));
    println!("{did:?}");
    did
}

#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let did = killed(EVERY_DAY, LONG, "accel,plain");
    // It did what it is for, whatever the machine's speed.
    assert!(did.host_kills > 0 && did.device_kills > 0, "nobody was killed");
    assert!(did.acknowledged > 0 && did.trees_after_deaths > 0, "nothing was judged");
    assert!(did.e2fsck_runs > 0 && did.trees_compared > 0, "nothing was unmounted");
    assert!(did.program_syncs > 0 && did.records > 0, "no program had a private log");
}

/// Through mounts of a volume that a server has: servers, mounts and device processes die, and no
/// call fails that the mount outlives.
#[test]
fn nothing_answered_is_lost_by_kills_of_servers() {
    let did = killed(SERVED, LONG, "served");
    assert!(did.server_kills > 0 && did.host_kills > 0, "nobody was killed");
    assert!(did.acknowledged > 0 && did.trees_after_deaths > 0, "nothing was judged");
    assert!(did.incidents.keys().any(|word| word.starts_with("server")), "no load saw a death");
}

/// A thread that has a file with unwritten pages open until `until` ends.
fn holder(path: PathBuf, own: bool, until: Receiver<()>) -> thread::JoinHandle<()> {
    let (tell, told) = channel();
    let body = move || {
        if own {
            own_table().unwrap();
        }
        let mut file = File::create(path).unwrap();
        file.write_all(&[1; 100_000]).unwrap();
        tell.send(()).unwrap();
        let _ = until.recv();
    };
    let thread = thread::spawn(body);
    told.recv().unwrap();
    thread
}

/// Is a process started within `limit` while the host does not answer?
fn starts(own: bool, limit: Duration) -> bool {
    let s = Setup::new();
    s.mount("write_cache=writeback");
    let daemon = s.daemon();
    let (hold, until) = channel();
    let holder = holder(s.path("f"), own, until);
    daemon.stop();
    let (tell, told) = channel();
    let starter = thread::spawn(move || {
        let _ = tell.send(Command::new("true").status().unwrap().success());
    });
    let started = told.recv_timeout(limit);
    daemon.signal(Signal::CONT);
    starter.join().unwrap();
    drop(hold);
    holder.join().unwrap();
    s.umount();
    started == Ok(true)
}

/// Else a host that waits for its device process and the harness that is about to start one wait
/// for each other.
#[test]
fn what_the_load_has_open_keeps_no_process_from_starting() {
    assert!(starts(true, Duration::from_secs(30)));
    let shared = starts(false, Duration::from_secs(2));
    assert!(!shared, "a process does not wait for the host even with files in its table");
}

#[test]
fn without_progress_the_connection_ends() {
    let s = Setup::new();
    // A request that a ring has taken and its stopped thread has not seen ends with the process
    // alone, which the harness kills as well.
    s.mount("requests=device");
    let daemon = s.daemon();
    daemon.stop();
    // Of the daemon, which the harness would kill, it knows nothing here.
    let watch = Watch::start(&[s.dir().as_ref()], Duration::from_secs(1));
    let path = s.path("f");
    let (tell, told) = channel();
    thread::spawn(move || tell.send(File::create(path).map(drop)));
    let ended = told.recv_timeout(Duration::from_secs(30));
    daemon.signal(Signal::CONT);
    let report = watch.report().expect("a report");
    assert!(ended.is_ok_and(|result| result.is_err()), "the call goes on: {report}");
    assert!(report.contains("nothing happened for 1s") && report.contains("aborted"), "{report}");
}
