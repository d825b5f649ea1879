//! SQLite's own shell, which knows nothing of SiftFS, with one transaction after the other.

use siftfs_rig::place::{Failed, Place, Result, arg, failed, run};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Transactions of a script: more than any machine commits before the program is killed.
const TRANSACTIONS: u64 = 300_000;

/// What SQLite answers without acceleration.
pub fn ask(database: &Path, sql: &str) -> Result<String> {
    let answer = run("sqlite3", &["-batch", "-bail", arg(database)?, sql])?;
    Ok(answer.trim().to_string())
}

/// Makes a database with a write-ahead log.
pub fn create(database: &Path) -> Result<()> {
    let table = "CREATE TABLE log(id INTEGER PRIMARY KEY, payload TEXT);";
    match &*ask(database, &format!("PRAGMA journal_mode=WAL; {table}"))? {
        "wal" => Ok(()),
        other => Err(Failed(format!("{}: its journal is {other}", database.display()))),
    }
}

/// Writes a script of transactions, numbered from 1: each inserts its number and what `payload`
/// says in SQL, and prints its number when it is committed.
pub fn script(path: &Path, payload: impl Fn(u64) -> String) -> Result<()> {
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        for n in 1..=TRANSACTIONS {
            writeln!(file, "INSERT INTO log VALUES({n},{});SELECT {n};", payload(n))?;
        }
        file.flush()
    };
    write().map_err(failed(path.display()))
}

/// A shell at work. It reads the script by itself, so that no other process has to answer it.
pub struct Shell {
    child: Child,
    /// Which one it is, for people.
    name: String,
    /// The numbers of the transactions of which it was told that they are committed.
    told: PathBuf,
    /// What it says when something goes wrong.
    errors: PathBuf,
}

impl Shell {
    /// Starts it on a database. With the `siftfs` command, that is by `siftfs accel`, and it asks
    /// for a lease at its first fsync(2).
    pub fn start(
        place: &Place,
        name: &str,
        siftfs: Option<&Path>,
        (database, script): (&Path, &Path),
    ) -> Result<Self> {
        let mut command = match siftfs {
            None => Command::new("sqlite3"),
            Some(siftfs) => {
                let mut command = Command::new(siftfs);
                command.args(["accel", "--", "sqlite3"]).env("SIFTFS_ACCEL", "eager");
                command
            }
        };
        let [told, errors] = ["told", "errors"].map(|end| place.path(&format!("{name}.{end}")));
        let script = File::open(script).map_err(failed(script.display()))?;
        let make = |path: &Path| File::create(path).map_err(failed(path.display()));
        command.args(["-batch", "-bail", "-cmd", "PRAGMA synchronous=FULL;"]).arg(database);
        command.stdin(script).stdout(make(&told)?).stderr(make(&errors)?);
        let child = command.spawn().map_err(failed(name))?;
        Ok(Self { child, name: name.into(), told, errors })
    }

    /// The newest transaction of which it was told that it is committed, or 0.
    pub fn newest(&self) -> Result<u64> {
        let mut end = [0; 64];
        let file = File::open(&self.told).map_err(failed(self.told.display()))?;
        let long = file.metadata().map_err(failed(self.told.display()))?.len();
        let from = long.saturating_sub(end.len() as u64);
        let len = file.read_at(&mut end, from).map_err(failed(self.told.display()))?;
        // Half a line is no acknowledgement.
        let text = String::from_utf8_lossy(&end[..len]).into_owned();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.rsplit('\n').next().and_then(|line| line.parse().ok()).unwrap_or(0))
    }

    /// Fails if it has ended.
    pub fn goes_on(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait().map_err(failed(&self.name))? else {
            return Ok(());
        };
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        Err(Failed(format!("{} ended before it was killed: {status}\n{said}", self.name)))
    }

    /// Has it wait, until it is let go on.
    pub fn pause(&self, pause: bool) -> Result<()> {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|e| Failed(format!("{}: {e}", self.name)))
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().map_err(failed(&self.name))
    }

    /// Once it was killed: how many transactions it was told are committed, one after the other.
    pub fn end(mut self) -> Result<u64> {
        self.child.wait().map_err(failed(&self.name))?;
        let text = fs::read_to_string(&self.told).map_err(failed(self.told.display()))?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut newest = 0;
        for (n, line) in (1..).zip(whole.lines()) {
            if line != n.to_string() {
                return Err(Failed(format!("{} says {line:?} where {n} is next", self.name)));
            }
            newest = n;
        }
        Ok(newest)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
