//! Figure 6's programs: each transaction, or message, is durable before the next.

use crate::mariadb::Server;
use siftfs_rig::fillsync;
use siftfs_rig::place::{Failed, Place, Result, failed, output};
use siftfs_rig::program::{run_for, run_whole};
use siftfs_rig::varmail::Varmail;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Statements of a script: more than a measurement lasts.
const STATEMENTS: usize = 200_000;
/// Rows that updates and deletes find.
const ROWS: usize = 20_000;
/// A program that is only to begin, or to count, ends in this time.
const SHORT: Duration = Duration::from_secs(120);

/// A program of figure 6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    /// filebench's Varmail, in kind, by this many threads.
    Varmail(u64),
    /// sysbench's oltp_insert on MariaDB, by this many threads.
    OltpInsert(u64),
    /// RocksDB's fillsync with values of this many bytes.
    Fillsync(usize),
    /// Mobibench in kind: SQLite's inserts, WAL and synchronous=FULL.
    SqliteInsert,
    /// ... updates.
    SqliteUpdate,
    /// ... deletes.
    SqliteDelete,
}

/// What the paper has for a program: to F2FS, and to ext4.
pub type Paper = (&'static str, &'static str);

impl Program {
    /// All of figure 6.
    pub const ALL: [Self; 11] = [
        Self::Varmail(1),
        Self::Varmail(4),
        Self::OltpInsert(1),
        Self::OltpInsert(4),
        Self::Fillsync(100),
        Self::Fillsync(512),
        Self::Fillsync(1024),
        Self::Fillsync(2048),
        Self::SqliteInsert,
        Self::SqliteUpdate,
        Self::SqliteDelete,
    ];

    /// Those of table II.
    pub const TABLE_2: [Self; 4] =
        [Self::Varmail(1), Self::OltpInsert(1), Self::Fillsync(1024), Self::SqliteUpdate];

    /// For people.
    pub fn name(self) -> String {
        match self {
            Self::Varmail(threads) => format!("Varmail, {threads} threads"),
            Self::OltpInsert(threads) => format!("OLTP-insert, {threads} threads"),
            Self::Fillsync(bytes) => format!("DBbench, {bytes} B"),
            Self::SqliteInsert => "SQLite WAL, insert".into(),
            Self::SqliteUpdate => "SQLite WAL, update".into(),
            Self::SqliteDelete => "SQLite WAL, delete".into(),
        }
    }

    /// The rate to the block lane that this is designed for.
    pub fn target(self) -> f64 {
        match self {
            Self::Varmail(_) => 1.16,
            Self::OltpInsert(_) => 1.18,
            Self::Fillsync(_) => 1.28,
            _ => 1.17,
        }
    }

    /// What the paper says of it.
    pub fn paper(self) -> Paper {
        match self {
            Self::Varmail(_) => ("up to 1.16", "up to 2.18"),
            Self::OltpInsert(_) => ("1.18", "2.09"),
            Self::Fillsync(_) => ("1.28 to 1.33", "up to 5.21"),
            _ => ("1.17", "about 1.3"),
        }
    }

    /// What it needs in `dir`, which is empty, before it is measured any number of times.
    pub fn prepare(self, place: &Place, dir: &Path) -> Result<()> {
        let made = match self {
            Self::Varmail(threads) => mail(threads).prepare(dir),
            Self::OltpInsert(_) => return Server::prepare(place, dir),
            Self::Fillsync(_) => Ok(()),
            Self::SqliteInsert | Self::SqliteUpdate | Self::SqliteDelete => prepare_sqlite(dir),
        };
        made.map_err(failed(self.name()))
    }

    /// Works for so long; operations in a second.
    pub fn measure(self, place: &Place, dir: &Path, time: Duration) -> Result<f64> {
        let rate = |(operations, seconds): (u64, f64)| operations as f64 / seconds;
        let measured = match self {
            Self::Varmail(threads) => {
                mail(threads).work(dir, time).map(|(steps, took)| (steps, took.as_secs_f64()))
            }
            Self::OltpInsert(threads) => {
                Server::start(place, dir)?.insert(threads, time).map_err(|e| io::Error::other(e.0))
            }
            Self::Fillsync(bytes) => {
                let _ = fs::remove_dir_all(dir.join("db"));
                fillsync::run(dir, bytes, time)
            }
            Self::SqliteInsert | Self::SqliteUpdate | Self::SqliteDelete => self.sqlite(dir, time),
        };
        measured.map(rate).map_err(failed(self.name()))
    }

    /// A transaction of one statement, and what counts them afterwards.
    fn statements(self) -> (&'static str, &'static str) {
        match self {
            Self::SqliteUpdate => (
                "UPDATE log SET payload = hex(randomblob(50)), n = n + 1 WHERE id = 1 + abs(random()) % 20000;\n",
                "SELECT sum(n) FROM log;",
            ),
            Self::SqliteDelete => (
                "DELETE FROM log WHERE id = (SELECT min(id) FROM log);\n",
                "SELECT 2000000 - count(*) FROM log;",
            ),
            _ => (
                "INSERT INTO log(payload) VALUES(hex(randomblob(50)));\n",
                "SELECT count(*) FROM log;",
            ),
        }
    }

    /// The shell reads the script by itself; it is killed when the time is over, and what it did is
    /// counted.
    fn sqlite(self, dir: &Path, time: Duration) -> io::Result<(u64, f64)> {
        let (statement, count) = self.statements();
        let script = dir.with_extension("sql");
        fs::write(&script, statement.repeat(STATEMENTS))?;
        let before = counted(dir, count)?;
        let ended = run_for(shell(dir).stdin(File::open(&script)?), time)?;
        fs::remove_file(&script)?;
        if ended.status.is_some_and(|s| !s.success()) {
            return Err(io::Error::other(format!("sqlite3: {}", ended.printed)));
        }
        Ok((counted(dir, count)?.saturating_sub(before), ended.time.as_secs_f64()))
    }
}

fn mail(threads: u64) -> Varmail {
    Varmail { threads, messages: 1000 / threads, any_size: true }
}

fn shell(dir: &Path) -> Command {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail", "-cmd", "PRAGMA synchronous=FULL;"]).arg(dir.join("database"));
    command
}

fn counted(dir: &Path, count: &str) -> io::Result<u64> {
    let said = run_whole(shell(dir).arg(count), SHORT, &[0])?.printed;
    said.trim().parse().map_err(|_| io::Error::other(said))
}

fn prepare_sqlite(dir: &Path) -> io::Result<()> {
    let rows = format!(
        "PRAGMA journal_mode=wal; CREATE TABLE log(id INTEGER PRIMARY KEY, payload TEXT, n INTEGER \
         DEFAULT 0); WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < {ROWS}) \
         INSERT INTO log(payload) SELECT hex(randomblob(50)) FROM c;"
    );
    run_whole(shell(dir).arg(rows), SHORT, &[0]).map(drop)
}

/// Fails where a program is missing, with what installs it.
pub fn missing(programs: &[Program]) -> Result<()> {
    let needs = |of: fn(&Program) -> bool, names: &[&str]| -> Result<()> {
        let names = names.iter().filter(|_| programs.iter().any(of));
        for name in names {
            output(name, &["--version"])
                .map_err(|Failed(e)| Failed(format!("{e}; run scripts/install-deps.sh bench")))?;
        }
        Ok(())
    };
    needs(|p| matches!(p, Program::Fillsync(_)), &["db_bench"])?;
    needs(|p| matches!(p, Program::OltpInsert(_)), &["mariadbd", "sysbench"])?;
    needs(|p| p.target() == Program::SqliteInsert.target(), &["sqlite3"])
}
