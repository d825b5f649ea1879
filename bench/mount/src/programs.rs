//! Programs that sync: each transaction, record, message, object or write is durable before the
//! next. SQLite and RocksDB are Debian's, unmodified, but for the rows of sections: of SQLite as it
//! is compiled for them, with the same shell in both. The others make the system calls of their
//! kind.

use crate::area::{Bound, Measured, WorkArea, per_second, rate, until};
use crate::system::LOG;
use siftfs_rig::fillsync;
use siftfs_rig::fresh::{fresh, refresh};
use siftfs_rig::place::{Failed, Place, Result, failed};
use siftfs_rig::program::{run_for, run_whole};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Statements in SQLite's script; at the fastest disk's rate more than a cell lasts.
const STATEMENTS: usize = 100_000;
/// Bytes of a row's payload, of which two are the digits of a random one.
pub const PAYLOAD: usize = 400;
/// Bytes of a log's record.
const RECORD: usize = 8192;
/// Bytes of a small log's record.
pub const SMALL_RECORD: usize = 700;
/// Bytes of RocksDB's values.
const VALUE: usize = 100;
/// Directories over which loose objects spread.
const FANS: u64 = 16;
/// One that is bounded by its operations does them in this time.
const LONGEST: Duration = Duration::from_secs(300);
/// A program that is only to begin or to count ends in this time.
const SHORT: Duration = Duration::from_secs(60);

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Transactions of one row in a database with a rollback journal.
    SqliteDelete,
    /// The same with a write-ahead log and `synchronous=FULL`.
    SqliteWal,
    /// As the first one, by an SQLite that commits by atomic sections where there are any, and has
    /// no journal then.
    SqliteSections,
    /// The same program, told that there are none.
    SqliteNoSections,
    /// Records of 8 KiB appended, each with fdatasync.
    Log,
    /// Records of 700 bytes appended, each with fdatasync.
    SmallLog,
    /// Messages written to `tmp`, fsynced, renamed to `new`, and that directory fsynced.
    Mail,
    /// Objects written under a temporary name, fsynced and renamed, as git does.
    Objects,
    /// `db_bench --benchmarks=fillsync`.
    RocksDb,
}

impl Program {
    /// Works in `area`, which is empty, for about so long.
    pub fn measure(self, area: &WorkArea, time: Duration) -> io::Result<Measured> {
        self.work(area, Bound::Time(time))
    }

    /// Works in `area`, which is empty.
    pub fn work(self, area: &WorkArea, bound: Bound) -> io::Result<Measured> {
        match self {
            Self::SqliteDelete => sqlite(area, bound, "delete", shell),
            Self::SqliteWal => sqlite(area, bound, "wal", shell),
            Self::SqliteSections => sqlite(area, bound, "delete", sections),
            Self::SqliteNoSections => sqlite(area, bound, "delete", no_sections),
            Self::Log => log::<RECORD>(area, bound),
            Self::SmallLog => log::<SMALL_RECORD>(area, bound),
            Self::Mail => mail(area, bound),
            Self::Objects => objects(area, bound),
            Self::RocksDb => match bound {
                Bound::Time(time) => rocksdb(area, time),
                Bound::Operations(_) => Err(io::Error::other("db_bench is bounded by time")),
            },
        }
    }
}

/// SQLite's transactions, one to a line.
pub struct Script(PathBuf);

impl Script {
    /// Writes it.
    pub fn generate(place: &Place) -> Result<Self> {
        let path = place.path("transactions.sql");
        let half = PAYLOAD / 2;
        let line = format!("INSERT INTO log(payload) VALUES(hex(randomblob({half})));\n");
        fs::write(&path, line.repeat(STATEMENTS)).map_err(failed(path.display()))?;
        Ok(Self(path))
    }

    /// As much of it as a program is to do, read from its begin.
    fn open(&self, bound: Bound) -> io::Result<File> {
        let Bound::Operations(lines) = bound else { return File::open(&self.0) };
        let text = fs::read_to_string(&self.0)?;
        let lines = text.split_inclusive('\n').take(usize::try_from(lines).unwrap_or(usize::MAX));
        let mut part = tempfile::tempfile()?;
        part.write_all(lines.collect::<String>().as_bytes())?;
        part.rewind()?;
        Ok(part)
    }
}

fn shell(database: &Path) -> Command {
    of(Command::new("sqlite3"), database)
}

/// The shell beside this program.
fn own_shell() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("siftfs-sqlite")
}

fn sections(database: &Path) -> Command {
    of(Command::new(own_shell()), database)
}

fn no_sections(database: &Path) -> Command {
    let mut command = Command::new(own_shell());
    command.arg("-no-sections");
    of(command, database)
}

fn of(mut command: Command, database: &Path) -> Command {
    command.args(["-batch", "-bail", "-cmd", "PRAGMA synchronous=FULL;"]).arg(database);
    command
}

/// The shell reads the script by itself, so that no other process has to answer it; it is killed
/// when the time is over, if it is bounded by that, and the rows are counted.
fn sqlite(
    area: &WorkArea,
    bound: Bound,
    mode: &str,
    shell: fn(&Path) -> Command,
) -> io::Result<Measured> {
    let database = area.dir.join("database");
    let create = format!(
        "PRAGMA journal_mode={mode}; CREATE TABLE log(id INTEGER PRIMARY KEY, payload TEXT);"
    );
    run_whole(shell(&database).arg(create), SHORT, &[0])?;
    area.settle()?;
    area.count(|| {
        let script = area.inputs.script.open(bound)?;
        let limit = match bound {
            Bound::Time(time) => time,
            Bound::Operations(_) => LONGEST,
        };
        let ended = run_for(shell(&database).stdin(script), limit)?;
        if ended.status.is_some_and(|s| !s.success()) {
            return Err(io::Error::other(format!("sqlite3: {}", ended.printed)));
        }
        let counted =
            run_whole(shell(&database).arg("SELECT count(*) FROM log;"), SHORT, &[0])?.printed;
        let rows = counted.trim().parse().map_err(|_| io::Error::other(counted))?;
        if matches!(bound, Bound::Operations(all) if all != rows) {
            return Err(io::Error::other(format!("sqlite3: {rows} rows; {}", ended.printed)));
        }
        Ok(rate(rows, ended.time))
    })
}

fn log<const BYTES: usize>(area: &WorkArea, bound: Bound) -> io::Result<Measured> {
    let path = area.dir.join(LOG);
    let mut file = File::create_new(&path)?;
    file.write_all(&fresh::<BYTES>())?;
    file.sync_all()?;
    drop(file);
    area.settle()?;
    area.count(|| {
        // Here: what is open when a process is started shares its offset with that one, and is let
        // alone by the library of private logs.
        let mut file = File::options().write(true).open(&path)?;
        file.seek(SeekFrom::End(0))?;
        until(bound, |_| {
            file.write_all(&fresh::<BYTES>())?;
            file.sync_data()
        })
    })
}

fn write_synced(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(data)?;
    file.sync_all()
}

/// Bytes of a message: 1 to 16 KiB.
fn message_size(n: u64) -> usize {
    1024 + usize::try_from(n * 2654 % 15360).unwrap_or(0)
}

fn mail(area: &WorkArea, bound: Bound) -> io::Result<Measured> {
    let (tmp, new) = (area.dir.join("tmp"), area.dir.join("new"));
    fs::create_dir(&tmp)?;
    fs::create_dir(&new)?;
    area.settle()?;
    let mut message = vec![0; 16 << 10];
    area.count(|| {
        until(bound, |n| {
            let name = format!("{n}.message");
            write_synced(&tmp.join(&name), refresh(&mut message[..message_size(n)]))?;
            fs::rename(tmp.join(&name), new.join(&name))?;
            File::open(&new)?.sync_all()
        })
    })
}

/// Bytes of an object: 200 to 4,200.
fn object_size(n: u64) -> usize {
    200 + usize::try_from(n * 1327 % 4000).unwrap_or(0)
}

fn objects(area: &WorkArea, bound: Bound) -> io::Result<Measured> {
    for fan in 0..FANS {
        fs::create_dir(area.dir.join(format!("{fan:02x}")))?;
    }
    area.settle()?;
    let mut object = vec![0; 8 << 10];
    area.count(|| {
        until(bound, |n| {
            let dir = area.dir.join(format!("{:02x}", n % FANS));
            let temporary = dir.join("tmp_obj");
            write_synced(&temporary, refresh(&mut object[..object_size(n)]))?;
            fs::rename(&temporary, dir.join(format!("{n:038x}")))
        })
    })
}

fn rocksdb(area: &WorkArea, time: Duration) -> io::Result<Measured> {
    area.count(|| {
        let (operations, seconds) = fillsync::run(&area.dir, VALUE, time)?;
        Ok(per_second(operations, seconds))
    })
}

/// Which of the programs are not there.
pub fn missing() -> Result<()> {
    for program in ["sqlite3", "db_bench"] {
        Command::new(program)
            .arg("--version")
            .output()
            .map_err(|e| Failed(format!("{program}: {e}; scripts/install-deps.sh bench")))?;
    }
    let shell = own_shell();
    if !shell.exists() {
        return Err(Failed(format!("{}: build -p siftfs-sqlite", shell.display())));
    }
    Ok(())
}

#[cfg(test)]
#[path = "programs_tests.rs"]
mod tests;
