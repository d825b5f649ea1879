//! Two programs that append turn by turn: what their files' places look like, and what it took to
//! find them, with pools of free blocks and without (the paper's last section, beside figure 14).
//! All of it are counts, which no busy machine changes.

use crate::Plan;
use crate::stage::{Stage, System};
use clap::Args;
use serde_json::{Value, json};
use siftfs_rig::place::{Failed, Result, failed};
use siftfs_status::Allocation;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Switches of the mount. Each turn is cut by itself, as soon as it is old.
const WAYS: [(&str, &str); 3] = [
    ("neither", "commit=0.05"),
    ("free-lists", "commit=0.05,free-lists"),
    ("block-pools", "commit=0.05,block-pools"),
];
/// Bytes that a program appends in its turn.
const LENGTHS: [usize; 2] = [4 << 10, 64 << 10];
/// Turns of each program.
const TURNS: usize = 50;
/// Writes with an fsync before the first turn: the library has a lease by then.
const WARM: usize = 16;

/// A program that appends when it is told to.
#[derive(Args)]
pub struct Appender {
    /// The file, made anew
    file: PathBuf,
    /// Bytes of each append
    #[arg(long)]
    bytes: usize,
}

impl Appender {
    /// For each line that it reads it appends once, durably, and prints a line.
    pub fn work(&self) -> Result<()> {
        self.run().map_err(failed(self.file.display()))
    }

    fn run(&self) -> std::io::Result<()> {
        let (file, data) = (File::create_new(&self.file)?, vec![7; self.bytes]);
        for _ in 0..WARM {
            file.write_all_at(&data, 0)?;
            file.sync_data()?;
        }
        let (mut at, mut out) = (self.bytes as u64, std::io::stdout());
        writeln!(out, "ready")?;
        for line in std::io::stdin().lines() {
            line?;
            file.write_all_at(&data, at)?;
            // What a log did not have for `commit=` ends its lease.
            file.sync_data()?;
            at += self.bytes as u64;
            writeln!(out, "appended")?;
        }
        Ok(())
    }
}

/// An [`Appender`] with the library.
struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Program {
    fn start(stage: &Stage<'_>, file: &Path, bytes: usize) -> Result<Self> {
        let (first, rest) = stage.accel.split_first().expect("siftfs accel");
        let mut command = Command::new(first);
        command.args(rest).arg(&stage.worker).arg("append").arg(file);
        command.args(["--bytes", &bytes.to_string()]).env("SIFTFS_ACCEL", "eager");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed("a program that appends"))?;
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let mut program = Self { child, said };
        program.hear()?;
        Ok(program)
    }

    fn hear(&mut self) -> Result<()> {
        let mut line = String::new();
        match self.said.read_line(&mut line).map_err(failed("a program that appends"))? {
            0 => Err(Failed("a program that appends has ended".into())),
            _ => Ok(()),
        }
    }

    fn append(&mut self) -> Result<()> {
        let told = self.child.stdin.as_mut().expect("piped").write_all(b"\n");
        told.map_err(failed("a program that appends"))?;
        self.hear()
    }

    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        match self.child.wait().map_err(failed("a program that appends"))?.success() {
            true => Ok(()),
            false => Err(Failed("a program that appends has failed".into())),
        }
    }
}

/// What came of one way.
struct Row {
    way: &'static str,
    bytes: usize,
    extents: Vec<usize>,
    runs: u64,
    pooled: u64,
    searches: u64,
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "way": self.way,
            "bytes": self.bytes,
            "turns": TURNS,
            "extents": self.extents,
            "runs": self.runs,
            "pooled_runs": self.pooled,
            "searches": self.searches,
        })
    }
}

fn row(
    stage: &Stage<'_>,
    plan: &Plan<'_>,
    (way, options): (&'static str, &str),
    bytes: usize,
) -> Result<Row> {
    stage.mount_again(options)?;
    let names = ["one", "two"].map(|one| format!("{way}-{bytes}-{one}"));
    let paths = names.each_ref().map(|name| stage.file(System::Sift, 0).with_file_name(name));
    let mut programs = Vec::new();
    for path in &paths {
        programs.push(Program::start(stage, path, bytes)?);
    }
    let (before, logged) = (stage.allocation()?, stage.logs()?.records);
    for _ in 0..TURNS {
        for program in &mut programs {
            let runs = stage.allocation()?.runs;
            program.append()?;
            // Its new blocks have their place when the transaction was cut.
            while stage.allocation()?.runs == runs {
                plan.place.go_on()?;
            }
        }
    }
    let after = stage.allocation()?;
    let records = stage.logs()?.records - logged;
    if records < (2 * TURNS) as u64 {
        return Err(Failed(format!("{records} of {} appends went by a private log", 2 * TURNS)));
    }
    programs.into_iter().try_for_each(Program::end)?;
    stage.ended()?;
    let of = |count: fn(&Allocation) -> u64| count(&after) - count(&before);
    let (runs, pooled, searches) =
        (of(|all| all.runs), of(|all| all.pooled_runs), of(|all| all.searches));
    Ok(Row { way, bytes, extents: stage.extents(&names)?, runs, pooled, searches })
}

/// Measures it, and appends what came of it to a figure's text.
pub fn measure(stage: &Stage<'_>, plan: &Plan<'_>, text: &mut String) -> Result<Value> {
    let _ = writeln!(
        text,
        "two programs that append turn by turn, {TURNS} times each, and each turn is cut (counts)\n\
         {:>6} {:<12} {:>14} {:>6} {:>11} {:>9}",
        "bytes", "", "extents", "runs", "from pools", "searches"
    );
    let mut rows = Vec::new();
    for bytes in LENGTHS {
        for way in WAYS {
            let row = row(stage, plan, way, bytes)?;
            let extents: Vec<String> = row.extents.iter().map(ToString::to_string).collect();
            let _ = writeln!(
                text,
                "{bytes:>6} {:<12} {:>14} {:>6} {:>11} {:>9}",
                row.way,
                extents.join(" and "),
                row.runs,
                row.pooled,
                row.searches
            );
            rows.push(row.json());
        }
    }
    Ok(rows.into())
}
