//! What a call costs in threads that are woken for it.

use crate::Served;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

/// How often the threads of a process that have this name went to sleep by themselves.
fn slept(pid: u64, name: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let count = |task: std::path::PathBuf| -> Option<u64> {
        let comm = std::fs::read_to_string(task.join("comm")).ok()?;
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let line = status.lines().find(|l| l.starts_with("voluntary_ctxt_switches"))?;
        (comm.trim() == name).then(|| line.split_whitespace().last()?.parse().ok())?
    };
    let all: Vec<u64> = tasks.filter_map(|task| count(task.unwrap().path())).collect();
    assert!(!all.is_empty(), "process {pid} has no thread {name}");
    all.into_iter().sum()
}

/// The thread that looks for a lost server sleeps while the server is there, whatever is called.
#[test]
fn calls_do_not_wake_the_thread_that_looks_for_the_server() {
    const CALLS: u64 = 500;
    let served = Served::start();
    let mount = served.mount("m", "");
    let pid = mount.status()["pid"].as_u64().unwrap();
    let file = OpenOptions::new().write(true).create_new(true).open(mount.path("f")).unwrap();
    file.sync_all().unwrap();
    let (before, calls) =
        (slept(pid, "siftfs-returns"), mount.status()["server"]["calls"].as_u64());
    for number in 0..CALLS {
        file.write_all_at(&[number as u8; 100], number * 100).unwrap();
    }
    let (after, then) = (slept(pid, "siftfs-returns"), mount.status()["server"]["calls"].as_u64());
    assert!(then.unwrap() - calls.unwrap() >= CALLS, "the writes were no calls");
    assert!(after - before < CALLS / 10, "it was woken {} times by {CALLS} calls", after - before);
    drop(file);
    mount.umount();
    served.end();
}
