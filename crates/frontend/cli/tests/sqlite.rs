//! What a transaction of SQLite costs on a file system with atomic sections: requests of the
//! kernel, writes and flushes, as the kernel counts them, and no journal file. One test, so that no
//! other thread starts a process, whose copies of SQLite's descriptors would be closed and counted.

#[path = "support/counts.rs"]
#[allow(dead_code)] // as below
mod counts;
#[allow(dead_code)] // each test program uses a part of it
mod support;

use counts::{Loop, counted, ours, socket};
use siftfs_sqlite::Connection;
use std::collections::BTreeMap;
use support::{Setup, siftfs};

/// Transactions.
const TIMES: u64 = 200;
const INSERT: &str = "INSERT INTO log(payload) VALUES(hex(randomblob(200)))";

/// A volume on `device` with a database that has a page or two already.
fn mounted(device: &Loop, cache: &str) -> (Setup, Connection) {
    let s = Setup::empty();
    siftfs(&["mkfs", &device.0, "--size", "128M", "--log-size", "48M", "--force"]).ok();
    let (metrics, idle) = (socket(&s), "commit=3600,low_watermark=1");
    let options = format!("write_cache={cache},metrics={},{idle}", metrics.display());
    siftfs(&["mount", &device.0, s.dir(), "-o", &options]).ok();
    let database = Connection::open(s.path("database")).unwrap();
    let table = "CREATE TABLE log(id INTEGER PRIMARY KEY, payload TEXT)";
    database.execute_batch(&format!("PRAGMA synchronous=FULL; {table};")).unwrap();
    for _ in 0..5 {
        database.execute(INSERT, []).unwrap();
    }
    siftfs(&["sync", s.dir()]).ok();
    siftfs(&["checkpoint", s.dir()]).ok();
    (s, database)
}

fn names(s: &Setup) -> Vec<String> {
    let entries = std::fs::read_dir(s.path("")).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_transaction_is_eight_requests_one_write_and_one_flush() {
    assert!(siftfs_sqlite::knows_sections());
    let tmp = tempfile::tempdir().unwrap();
    let device = Loop::over(&tmp.path().join("below"));
    for cache in ["writethrough", "writeback"] {
        let (s, database) = mounted(&device, cache);
        let before = (ours(&s), device.counts(), counted(&s));
        for _ in 0..TIMES {
            database.execute(INSERT, []).unwrap();
        }
        let after = counted(&s);
        let (kernel, ours) = (device.counts() - before.1, ours(&s) - before.0);
        let sent = |(kind, n): (&String, &u64)| {
            let n = n - before.2.get(kind).copied().unwrap_or(0);
            (n > 0).then(|| (kind.clone(), n))
        };
        let sent: BTreeMap<String, u64> = after.iter().filter_map(sent).collect();
        let requests = sent.values().sum::<u64>();
        println!("{cache}: {requests} requests in {TIMES} transactions: {sent:?}");
        println!("{cache}: {ours:?} by us, {kernel:?} by the kernel");
        assert_eq!((kernel.writes, kernel.flushes), (TIMES, TIMES), "{cache}");
        assert_eq!(ours, kernel, "{cache}");
        assert!(requests <= 8 * TIMES, "{cache}: {requests} requests: {sent:?}");
        let made = ["create", "mknod", "unlink", "rename"].map(|kind| sent.get(kind));
        assert_eq!(made, [None; 4], "{cache}: a journal file was made");
        assert_eq!(names(&s), ["database", "lost+found"], "{cache}");
        let count = "SELECT count(*) FROM log";
        let rows: i64 = database.query_row(count, [], |row| row.get(0)).unwrap();
        assert_eq!(rows, TIMES as i64 + 5);
        drop(database);
        support::patient(|| siftfs(&["umount", s.dir()])).ok();
    }
}
