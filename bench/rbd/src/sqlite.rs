//! SQLite's shell at work: transactions of one row, counted from outside.

use siftfs_rig::place::{Failed, Result, failed};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Bytes of a row's payload.
const PAYLOAD: usize = 400;
/// What the shell prints when it has done all before.
const DONE: &str = "done";

/// How a database commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// With a write-ahead log.
    Wal,
    /// With a rollback journal, deleted by each commit.
    Delete,
    /// By an atomic section where there are any, and with a rollback journal elsewhere.
    Sections,
}

impl Mode {
    fn journal(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::Delete | Self::Sections => "delete",
        }
    }

    /// The shell: Debian's, or the one beside this program, whose SQLite knows sections.
    fn program(self) -> Result<PathBuf> {
        let own = std::env::current_exe().map_err(failed("own path"))?;
        let program = match self {
            Self::Wal | Self::Delete => "sqlite3".into(),
            Self::Sections => own.with_file_name("siftfs-sqlite"),
        };
        if program.is_absolute() && !program.exists() {
            return Err(Failed(format!("{}: build -p siftfs-sqlite", program.display())));
        }
        Ok(program)
    }
}

/// A shell with an open database, which has one table.
pub struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    /// Makes a database `NAME.sqlite` in `dir`, with its first transactions behind it.
    ///
    /// # Errors
    /// What the shell cannot do.
    pub fn new(mode: Mode, dir: &Path, name: &str) -> Result<Self> {
        let program = mode.program()?;
        let mut child = Command::new(&program)
            .args(["-batch", "-bail", "-cmd", "PRAGMA synchronous=FULL;"])
            .arg(dir.join(format!("{name}.sqlite")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed(program.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failed(format!("{}: no pipes", program.display())));
        };
        let mut shell = Self { child, input, lines: BufReader::new(output).lines() };
        shell.line(&format!("PRAGMA journal_mode={};", mode.journal()))?;
        shell.line("CREATE TABLE log(id INTEGER PRIMARY KEY, payload TEXT);")?;
        shell.transactions(2)?;
        Ok(shell)
    }

    /// Commits this many transactions of one row, one after the other. The last one is durable when
    /// this returns.
    ///
    /// # Errors
    /// The shell has ended: a statement failed.
    pub fn transactions(&mut self, count: u32) -> Result<()> {
        let insert = format!("INSERT INTO log(payload) VALUES(hex(randomblob({})));", PAYLOAD / 2);
        for _ in 0..count {
            self.line(&insert)?;
        }
        self.line(&format!("SELECT '{DONE}';"))?;
        loop {
            match self.lines.next() {
                Some(Ok(line)) if line == DONE => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(Failed("SQLite's shell has given up".into())),
            }
        }
    }

    fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.input, "{line}").map_err(failed("SQLite's shell"))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
