//! Programs whose fsync(2) is a store of their own to a log that they have mapped, on a real mount.
//! Persistent memory is for a guest (`testing/guest`); here it is `volatile:`.

use crate::deaths::kill_daemon;
use crate::support::{Setup, run, siftfs};
use crate::{Held, counted, told};
use siftfs_accel::Through;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory in memory for the logs of a volume. The test's own goes with it, its mount before.
struct Memory(PathBuf);

impl Memory {
    fn of(s: &Setup) -> Self {
        let dir = s.tmp.path().join("memory");
        fs::create_dir(&dir).unwrap();
        run("mount", &["-t", "tmpfs", "none", dir.to_str().unwrap()]).ok();
        Self(dir)
    }

    fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    fn options(&self) -> String {
        format!("write_cache=writethrough,private_logs=volatile:{}", self.logs().display())
    }

    fn end(self) {
        run("umount", &[self.0.to_str().unwrap()]).ok();
    }
}

#[track_caller]
fn sync(held: &Held) {
    assert_eq!(held.leased.sync(false).unwrap(), Through::Lease(()));
}

fn log_in(dir: &Path) -> PathBuf {
    let all = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut logs = all.filter(|path| path.to_string_lossy().contains("/log-"));
    logs.next().expect("a log")
}

/// Neither kernel nor daemon has a part in it, not even a write of the program's; what was synced
/// is there when the daemon was killed, and after the end nothing is left of the logs. The status
/// names medium and promise.
#[test]
fn a_sync_is_the_programs_own_store() {
    let s = Setup::new();
    let memory = Memory::of(&s);
    s.mount(&memory.options());
    let held = Held::of(&s.path("f"));
    sync(&held);
    let said = told(&s);
    assert_eq!(said["file_logs"], 1);
    let program = &said["programs"][0];
    assert_eq!((&program["medium"], &program["leases"]), (&"volatile".into(), &1.into()));
    assert_eq!(program["pid"], std::process::id());
    assert!(program["promise"].as_str().unwrap().starts_with("volatile: nothing survives"));
    let text = siftfs(&["status", s.dir()]).ok().out;
    assert!(text.contains("(1 by volatile: "), "{text}");
    let kinds = ["WRITE", "FSYNC", "IOCTL", "GETATTR"];
    let before = counted(&s, kinds);
    for n in 0..200 {
        held.append(format!("line {n}\n").as_bytes());
        sync(&held);
    }
    assert_eq!(counted(&s, kinds), before);
    assert_eq!(told(&s)["records"], 0, "the daemon has taken nothing in");
    let used = fs::read(log_in(&memory.logs())).unwrap();
    let used = used.iter().rposition(|byte| *byte != 0).unwrap();
    assert!((199 * 128..200 * 128).contains(&used), "a batch takes two lines: {used}");
    let wanted: String = (0..200).map(|n| format!("line {n}\n")).collect();
    kill_daemon(&s);
    drop(held);
    s.mount(&memory.options());
    assert_eq!(fs::read_to_string(s.path("f")).unwrap(), wanted);
    s.umount();
    s.assert_plain_ext4();
    assert_eq!(fs::read_dir(memory.logs()).unwrap().count(), 0);
    memory.end();
}

/// A log that is made shorter ends neither its program nor the session: the daemon makes durable
/// what the program writes, and what was durable before stays so.
///
/// Seen to fail, by SIGBUS, when the pages are not asked for before the stores.
#[test]
fn r41_a_log_that_is_made_shorter_ends_nobody() {
    let s = Setup::new();
    let memory = Memory::of(&s);
    s.mount(&memory.options());
    let held = Held::of(&s.path("f"));
    sync(&held);
    held.append(b"by the log, ");
    sync(&held);
    let log = fs::OpenOptions::new().write(true).open(log_in(&memory.logs())).unwrap();
    log.set_len(0).unwrap();
    drop(log);
    assert_eq!(told(&s)["records"], 0);
    held.append(b"by the daemon, ");
    sync(&held);
    assert_eq!(told(&s)["records"], 2, "the daemon has taken them in");
    held.append(b"and again");
    sync(&held);
    assert_eq!((&told(&s)["records"], &told(&s)["ended"]), (&3.into(), &0.into()));
    kill_daemon(&s);
    drop(held);
    s.mount(&memory.options());
    let read = fs::read_to_string(s.path("f")).unwrap();
    assert_eq!(read, "by the log, by the daemon, and again");
    s.umount();
    memory.end();
}

/// Memory that lost what lay there: the volume is refused until the logs are given up, and what its
/// own log had is there.
#[test]
fn r16_logs_in_memory_that_is_gone() {
    let s = Setup::new();
    let memory = Memory::of(&s);
    s.mount(&memory.options());
    let held = Held::of(&s.path("f"));
    held.append(b"by the daemon");
    sync(&held);
    held.append(b", by the log");
    sync(&held);
    kill_daemon(&s);
    drop(held);
    let options = memory.options();
    memory.end();
    siftfs(&["mount", s.volume(), s.dir(), "-o", &options]).fails(1, &["missing", "discard-log"]);
    siftfs(&["recover", "--discard-log", s.volume()]).ok();
    s.mount("write_cache=writethrough");
    assert_eq!(fs::read_to_string(s.path("f")).unwrap(), "by the daemon");
    s.umount();
    s.assert_plain_ext4();
}
