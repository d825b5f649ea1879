//! SQLite under concurrent transactions, through its own shell, or through one whose SQLite commits
//! by atomic sections and has no journal file (`siftfs-sqlite`).

use crate::place::{Failed, Place, Result, failed, run};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a database commits. Each has its writers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// With a write-ahead log.
    Wal,
    /// With a rollback journal, deleted by each commit.
    Delete,
    /// With a write-ahead log, by one program alone.
    WalAlone,
    /// With a rollback journal, by one program alone.
    DeleteAlone,
    /// By an atomic section of the database file. There is no journal file.
    Sections,
}

impl Mode {
    /// What unmodified SQLite does.
    pub const USUAL: [Self; 2] = [Self::Wal, Self::Delete];
    /// The same with one writer each, of whose files no other program has any open.
    pub const ALONE: [Self; 2] = [Self::WalAlone, Self::DeleteAlone];
    /// Each way of committing.
    pub const ALL: [Self; 3] = [Self::Wal, Self::Delete, Self::Sections];

    fn name(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::Delete => "delete",
            Self::WalAlone => "wal-alone",
            Self::DeleteAlone => "delete-alone",
            Self::Sections => "sections",
        }
    }

    /// As SQLite calls it.
    fn journal(self) -> &'static str {
        match self {
            Self::Wal | Self::WalAlone => "wal",
            Self::Delete | Self::DeleteAlone | Self::Sections => "delete",
        }
    }

    fn writers(self) -> u64 {
        match self {
            Self::WalAlone | Self::DeleteAlone => 1,
            Self::Wal | Self::Delete | Self::Sections => 2,
        }
    }

    fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.sqlite", self.name()))
    }

    /// The shell of who writes to it. Any SQLite may read it.
    fn shell(self) -> Result<PathBuf> {
        match self {
            Self::Wal | Self::Delete | Self::WalAlone | Self::DeleteAlone => Ok("sqlite3".into()),
            Self::Sections => {
                let exe = std::env::current_exe().map_err(failed("own path"))?;
                Ok(exe.with_file_name("siftfs-sqlite"))
            }
        }
    }
}

/// Newest acknowledged transaction of each writer; each writer numbers its own from 1.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged(BTreeMap<(Mode, u64), u64>);

impl Acknowledged {
    /// Transactions in all.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Takes over what a job ended with.
    pub fn add(&mut self, later: Self) {
        for (writer, n) in later.0 {
            let known = self.0.entry(writer).or_default();
            *known = (*known).max(n);
        }
    }

    /// Transactions of the databases that commit like this.
    pub fn total_of(&self, mode: Mode) -> u64 {
        self.0.iter().filter(|((m, _), _)| *m == mode).map(|(_, n)| n).sum()
    }

    fn of(&self, writer: (Mode, u64)) -> u64 {
        self.0.get(&writer).copied().unwrap_or(0)
    }
}

fn sql(database: &Path, script: &str) -> Result<String> {
    let database = crate::place::arg(database)?;
    run("sqlite3", &["-bail", "-batch", "-cmd", ".timeout 60000", database, script])
}

/// Makes the databases in a directory.
pub fn create(dir: &Path, modes: &[Mode]) -> Result<()> {
    for mode in modes {
        let script = format!(
            "PRAGMA journal_mode={}; CREATE TABLE log(writer INTEGER, n INTEGER, \
             payload TEXT, PRIMARY KEY(writer, n));",
            mode.journal()
        );
        sql(&mode.path(dir), &script)?;
    }
    Ok(())
}

/// Every acknowledged transaction is there, and SQLite finds its databases whole.
pub fn verify(dir: &Path, modes: &[Mode], acks: &Acknowledged) -> Result<()> {
    for mode in modes {
        let (database, name) = (mode.path(dir), mode.name());
        let check = sql(&database, "PRAGMA integrity_check;")?;
        if check.trim() != "ok" {
            return Err(Failed(format!("{name} database: integrity_check says {check}")));
        }
        for writer in 0..mode.writers() {
            let n = acks.of((*mode, writer));
            let query = format!(
                "SELECT count(*) FROM log WHERE writer={writer} AND n<={n} AND length(payload)=400;"
            );
            let found = sql(&database, &query)?;
            if found.trim() != n.to_string() {
                return Err(Failed(format!(
                    "{name} database, writer {writer}: {n} transactions were acknowledged, \
                     {} are there",
                    found.trim()
                )));
            }
        }
    }
    Ok(())
}

/// Fails if a database that commits by sections has a journal file: SQLite makes one when it was
/// refused a section.
pub fn no_journal(dir: &Path) -> Result<()> {
    let journal = dir.join(format!("{}.sqlite-journal", Mode::Sections.name()));
    match std::fs::symlink_metadata(&journal) {
        // Or the mount's daemon was killed: nobody knows.
        Err(_) => Ok(()),
        Ok(_) => Err(Failed(format!("{}: there is a journal file", journal.display()))),
    }
}

/// Writers at work.
pub struct Job {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    writers: Vec<((Mode, u64), Child, JoinHandle<u64>)>,
}

impl Job {
    /// Starts all writers, a process each; each goes on after its newest acknowledged transaction.
    /// What is acknowledged is also logged to a file outside the mount. `settings` are statements
    /// that each process begins with.
    pub fn start(
        (dir, modes): (&Path, &[Mode]),
        log: &Path,
        acks: &Acknowledged,
        settings: &'static str,
    ) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log).map_err(failed("log"))?;
        let log = Arc::new(Mutex::new(log));
        let mut job = Self { stop: Arc::default(), count: Arc::default(), writers: Vec::new() };
        for mode in modes.iter().copied() {
            for writer in 0..mode.writers() {
                // A transaction may have been committed and its acknowledgement lost in the crash.
                let query = format!("SELECT max(n) FROM log WHERE writer={writer};");
                let there = sql(&mode.path(dir), &query)?.trim().parse().unwrap_or(0);
                let from = acks.of((mode, writer)).max(there);
                job.add(dir, (mode, writer), from, (log.clone(), settings))?;
            }
        }
        Ok(job)
    }

    fn add(
        &mut self,
        dir: &Path,
        id: (Mode, u64),
        from: u64,
        (log, settings): (Arc<Mutex<File>>, &'static str),
    ) -> Result<()> {
        let program = id.0.shell()?;
        let mut shell = Command::new(&program)
            .args(["-bail", "-batch"])
            .arg(id.0.path(dir))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed(program.display()))?;
        let (Some(mut input), Some(output)) = (shell.stdin.take(), shell.stdout.take()) else {
            return Err(Failed("sqlite3 without pipes".into()));
        };
        let (stop, count) = (self.stop.clone(), self.count.clone());
        let dir = dir.to_path_buf();
        let thread = std::thread::spawn(move || {
            let acknowledge = |n: u64| {
                count.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut log) = log.lock() {
                    let _ = writeln!(log, "{} {} {n}", id.0.name(), id.1);
                }
            };
            let _ = writeln!(input, "{settings}");
            write_until(&stop, &dir, input, output, (id.1, from), acknowledge)
        });
        self.writers.push((id, shell, thread));
        Ok(())
    }

    /// Whether a writer has given up.
    pub fn gave_up(&self) -> bool {
        self.writers.iter().any(|(_, _, thread)| thread.is_finished())
    }

    /// Transactions acknowledged so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Lets the writers work.
    pub fn run_for(&self, place: &Place, time: Duration) -> Result<()> {
        let bar = crate::place::bar(u64::try_from(time.as_millis()).unwrap_or(0), "transactions");
        let start = Instant::now();
        while start.elapsed() < time {
            place.go_on()?;
            std::thread::sleep(Duration::from_millis(50));
            bar.set_position(u64::try_from(start.elapsed().as_millis()).unwrap_or(0));
            bar.set_message(format!("{} transactions", self.count()));
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Stops the writers and returns what was acknowledged.
    pub fn stop(mut self) -> Acknowledged {
        self.stop.store(true, Ordering::Relaxed);
        let mut acks = Acknowledged::default();
        for (id, mut shell, thread) in std::mem::take(&mut self.writers) {
            let end = Instant::now() + Duration::from_secs(20);
            while !thread.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = shell.kill();
            let _ = shell.wait();
            acks.0.insert(id, thread.join().unwrap_or(0));
        }
        acks
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (_, shell, _) in &mut self.writers {
            let _ = shell.kill();
            let _ = shell.wait();
        }
    }
}

/// One transaction after the other until told to stop or the shell gives up (it stops at the
/// first error); returns the newest acknowledged one.
///
/// In DELETE mode SQLite syncs the directory after it has removed the rollback journal, but
/// takes a directory that it cannot *open* for one that needs no sync, and reports success. A
/// daemon killed between the two therefore leaves a "commit" that was never synced. So an
/// acknowledgement counts only if the file system still answered after it; asking with statfs
/// makes nothing durable.
fn write_until(
    stop: &AtomicBool,
    dir: &Path,
    mut input: std::process::ChildStdin,
    output: ChildStdout,
    (writer, from): (u64, u64),
    acknowledge: impl Fn(u64),
) -> u64 {
    // EXTRA also syncs the directory after the rollback journal is deleted: without it SQLite
    // itself promises less, and the newest commit may roll back.
    let mut lines = BufReader::new(output).lines();
    let mut newest = from;
    if writeln!(input, ".timeout 60000\nPRAGMA synchronous=EXTRA;").is_err() {
        return newest;
    }
    while !stop.load(Ordering::Relaxed) {
        let n = newest + 1;
        let sent = writeln!(
            input,
            "BEGIN IMMEDIATE; INSERT INTO log VALUES({writer}, {n}, hex(randomblob(200))); \
             COMMIT; SELECT 'done', {n};"
        );
        let answer = lines.next();
        match (sent, answer) {
            (Ok(()), Some(Ok(line)))
                if line == format!("done|{n}") && rustix::fs::statfs(dir).is_ok() =>
            {
                newest = n;
                acknowledge(n);
            }
            _ => break,
        }
    }
    newest
}
