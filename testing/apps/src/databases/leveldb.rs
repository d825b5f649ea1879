//! LevelDB with synchronous writes, through its Python binding: a process writes ascending keys,
//! and says which of them are durable.

use crate::program::{Output, guarded};
use crate::work::{App, Needs, Site};
use siftfs_rig::place::{Failed, Result, arg};
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// The application.
#[derive(Default)]
pub struct LevelDb {
    acknowledged: AtomicU64,
}

/// Writes from a number on and says each number whose write returned. Tables are small, so that
/// they are written, compacted and removed all the time.
const WRITE: &str = "
import sys, plyvel
db = plyvel.DB(sys.argv[1], create_if_missing=True, write_buffer_size=1 << 18, max_file_size=1 << 18)
n = int(sys.argv[2])
while True:
    n += 1
    key = b'%012d' % n
    db.put(key, (key + b' ') * (1 + n * 7 % 60), sync=True)
    print(n, flush=True)
";

/// Every key up to a number is there with its value. Everything that is there is read, with its
/// checksums, and what is behind that number is whole, too.
const CHECK: &str = "
import sys, plyvel
db = plyvel.DB(sys.argv[1], paranoid_checks=True)
n = 0
with db.iterator(verify_checksums=True, fill_cache=False) as entries:
    for key, value in entries:
        n += 1
        assert key == b'%012d' % n, (n, key)
        assert value == (key + b' ') * (1 + n * 7 % 60), (n, value)
assert n >= int(sys.argv[2]), ('%s writes were acknowledged, %s are there' % (sys.argv[2], n))
";

fn python(at: &Site, script: &str, number: u64) -> Result<Command> {
    let db = at.dir.join("db");
    let number = number.to_string();
    // Debian's, whose package the binding is.
    Ok(guarded("/usr/bin/python3", &["-c", script, arg(&db)?, &number]))
}

impl App for LevelDb {
    fn name(&self) -> &'static str {
        "leveldb"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        let script = "import sys, plyvel\nplyvel.DB(sys.argv[1], create_if_missing=True).close()";
        at.run("leveldb-make", python(at, script, 0)?)?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        let from = self.acknowledged.load(Ordering::Relaxed);
        let writer = at.start("leveldb", python(at, WRITE, from)?, Output::Piped)?;
        let output = writer.child(|c| c.stdout.take());
        let output = output.ok_or_else(|| Failed("python3 without a pipe".into()))?;
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            let n = line.parse().map_err(|e| Failed(format!("leveldb says {line}: {e}")))?;
            if at.alive() {
                self.acknowledged.store(n, Ordering::Relaxed);
            }
            if at.stopped() {
                return Ok(());
            }
        }
        Err(Failed(format!("leveldb ended\n{}", writer.printed())))
    }

    /// What was written and not acknowledged may be there. It is written once more, with the same
    /// value.
    fn check(&mut self, at: &Site) -> Result<()> {
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        at.run("leveldb-check", python(at, CHECK, acknowledged)?).map(drop)
    }

    fn needs(&self) -> Needs {
        Needs::Leases
    }

    fn acknowledged(&self) -> String {
        format!("{} writes", self.acknowledged.load(Ordering::Relaxed))
    }
}
