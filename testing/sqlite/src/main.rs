//! A shell for SQLite with atomic sections, as far as the tests need one: it takes the options of
//! SQLite's own shell that they use, one or several whole statements to a line, and prints rows as
//! that one does. It ends with the first error.

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection};
use std::fs::File;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the command line says.
#[derive(Default)]
struct Args {
    /// As if the file system had no sections.
    no_sections: bool,
    /// Lines to begin with.
    first: Vec<String>,
    database: String,
    /// All that is to be done; else standard input is read.
    script: Option<String>,
}

impl Args {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut parsed = Self::default();
        let mut names = Vec::new();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                // It does both always.
                "-batch" | "-bail" => {}
                "-no-sections" => parsed.no_sections = true,
                "-cmd" => parsed.first.push(args.next().ok_or("-cmd takes a statement")?),
                _ if arg.starts_with('-') => return Err(format!("unknown option {arg}").into()),
                _ => names.push(arg),
            }
        }
        let mut names = names.into_iter();
        parsed.database = names.next().ok_or("which database?")?;
        parsed.script = names.next();
        match names.next() {
            Some(more) => Err(format!("what is {more}?").into()),
            None => Ok(parsed),
        }
    }
}

struct Shell {
    database: Connection,
    out: Box<dyn Write>,
}

impl Shell {
    fn line(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [".timeout", ms] => {
                Ok(self.database.busy_timeout(Duration::from_millis(ms.parse()?))?)
            }
            [".output", "stdout"] => {
                self.out = Box::new(std::io::stdout());
                Ok(())
            }
            [".output", file] => {
                self.out = Box::new(File::options().write(true).open(file)?);
                Ok(())
            }
            _ => self.statements(line),
        }
    }

    fn statements(&mut self, sql: &str) -> Result<()> {
        let mut batch = Batch::new(&self.database, sql);
        while let Some(mut statement) = batch.next()? {
            let columns = statement.column_count();
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next()? {
                for column in 0..columns {
                    if column > 0 {
                        write!(self.out, "|")?;
                    }
                    match row.get_ref(column)? {
                        ValueRef::Null => {}
                        ValueRef::Integer(n) => write!(self.out, "{n}")?,
                        ValueRef::Real(n) => write!(self.out, "{n}")?,
                        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                            self.out.write_all(bytes)?
                        }
                    }
                }
                writeln!(self.out)?;
            }
        }
        Ok(self.out.flush()?)
    }
}

fn run() -> Result<()> {
    let args = Args::parse(std::env::args().skip(1))?;
    if !siftfs_sqlite::knows_sections() {
        return Err("SQLite was compiled without ENABLE_BATCH_ATOMIC_WRITE; build it from inside \
                    of the workspace, whose .cargo/config.toml says so"
            .into());
    }
    if args.no_sections {
        siftfs_sqlite::no_sections();
    }
    let database = Connection::open(&args.database)?;
    let mut shell = Shell { database, out: Box::new(std::io::stdout()) };
    for line in &args.first {
        shell.line(line)?;
    }
    if let Some(script) = &args.script {
        return shell.line(script);
    }
    for line in std::io::stdin().lock().lines() {
        shell.line(&line?)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("siftfs-sqlite: {error}");
            ExitCode::FAILURE
        }
    }
}
