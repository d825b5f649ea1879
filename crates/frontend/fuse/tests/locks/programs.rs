//! Many waits, and a database.

use crate::pair::{Mount, Pair};
use crate::puppet::{PATIENCE, Puppet};
use siftfs_fuse::{FuseMount, MountOptions, WriteCache};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Threads that each open a file and lock it for a moment.
const CROWD: &str = r#"
import fcntl, os, resource, sys, threading
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
threading.stack_size(64 << 10)
path, count = sys.argv[1], int(sys.argv[2])
def lock():
    file = os.open(path, os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.close(file)
all = [threading.Thread(target=lock) for _ in range(count)]
for one in all:
    one.start()
print("begun", flush=True)
for one in all:
    one.join()
print("done", flush=True)
"#;

/// A program that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// 3,000 programs that wait for one lock keep nobody from anything else, and each gets it in the
/// end.
#[test]
fn a_crowd_that_waits_stops_nothing() {
    const CROWDED: usize = 3000;
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        let mut holder = Puppet::with(&one.path("f"));
        assert_eq!(holder.call("flock f write try"), "ok");
        let crowd = Command::new("python3")
            .args(["-c", CROWD])
            .arg(other.path("f"))
            .arg(CROWDED.to_string())
            .stdout(Stdio::piped())
            .spawn();
        let mut crowd = Running(crowd.expect("python3"));
        let mut told = BufReader::new(crowd.0.stdout.take().expect("a pipe"));
        let mut line = String::new();
        told.read_line(&mut line).expect("it says that it has begun");
        until("all wait", || other.count("setlkw") == CROWDED as u64);
        other.settle(CROWDED);
        for mount in &pair.mounts {
            let made = mount.path(&format!("made-{}", mount.count("create")));
            std::fs::write(&made, b"data").expect("a file is made");
            assert_eq!(std::fs::read(&made).expect("it is read"), b"data");
            std::fs::remove_file(&made).expect("it is removed");
            rustix::fs::statfs(mount.path("")).expect("statfs");
        }
        let mut third = Puppet::with(&other.path("g"));
        assert_eq!(third.call("posix f write 0 0 wait"), "ok");
        assert_eq!(holder.call("close f"), "ok");
        let mut rest = String::new();
        told.read_to_string(&mut rest).expect("it says that it is done");
        assert_eq!(rest, "done\n");
        assert!(crowd.0.wait().expect("it ends").success());
    });
}

/// Writes rows, each in a transaction of its own, beside another program that does so.
const WRITER: &str = r#"
import sqlite3, sys
path, mode, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
db = sqlite3.connect(path, timeout=100, isolation_level=None)
assert db.execute(f"pragma journal_mode={mode}").fetchone()[0] == mode
db.execute("create table if not exists t (n integer primary key, text text)")
for n in range(first, first + count):
    db.execute("begin immediate")
    db.execute("insert into t values (?, ?)", (n, "x" * (n % 700)))
    db.execute("commit")
db.close()
"#;

/// Says what is in the table, if all of it makes sense.
const CHECKER: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
print(*db.execute("select count(*), min(n), max(n) from t").fetchone())
"#;

fn writer(path: &Path, mode: &str, first: usize, count: usize) -> Child {
    let [first, count] = [first, count].map(|n| n.to_string());
    let python = Command::new("python3")
        .args(["-c", WRITER])
        .arg(path)
        .arg(mode)
        .args([first, count])
        .spawn();
    python.expect("python3")
}

/// Two writers of one database, whose locks the daemon keeps: nothing of it is lost or torn. With
/// a write-ahead log they share memory, which two mounts do not.
#[test]
fn sqlite_has_its_locks() {
    Pair::each(|pair| {
        for (mode, second) in [("wal", 0), ("delete", 0), ("delete", 1)] {
            let name = format!("{mode}-{second}.db");
            let paths = [0, second].map(|mount: usize| pair.mounts[mount].path(&name));
            // The first makes the table.
            assert!(writer(&paths[0], mode, 0, 1).wait().expect("it ends").success());
            let before = locks(&pair.mounts[0]);
            assert!(writer(&paths[0], mode, 1, 99).wait().expect("it ends").success());
            println!(
                "{mode}: {} requests about locks for 99 rows",
                locks(&pair.mounts[0]) - before
            );
            let both = [(&paths[0], 100), (&paths[1], 200)];
            for mut one in both.map(|(path, first)| writer(path, mode, first, 100)) {
                assert!(one.wait().expect("it ends").success());
            }
            for path in &paths {
                let said = Command::new("python3").args(["-c", CHECKER]).arg(path).output();
                let said = said.expect("python3");
                assert_eq!(String::from_utf8_lossy(&said.stdout), "300 0 299\n", "{said:?}");
            }
        }
    });
}

fn locks(mount: &Mount) -> u64 {
    ["getlk", "setlk", "setlkw"].map(|kind| mount.count(kind)).iter().sum()
}

/// A mount may not hold back what others would have to see.
#[test]
fn a_shared_mount_has_no_writeback_cache() {
    let write_cache = WriteCache::Writeback;
    let options = MountOptions { shared: true, write_cache, ..MountOptions::default() };
    let dir = tempfile::tempdir().expect("a directory");
    let pair = Pair::new(options.requests);
    let made = FuseMount::new(pair.session(), dir.path(), &options);
    let why = made.err().expect("it is refused").to_string();
    assert!(why.contains("shared") && why.contains("writeback"), "{why}");
    pair.end();
}
