//! A program in Go: a static binary that makes its system calls itself, so that no library can be
//! loaded into it. It appends lines, and says which of them are durable.

use crate::program::{Output, guarded};
use crate::work::{App, Site};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

const SOURCE: &str = include_str!("../programs/append.go");

/// The application.
#[derive(Default)]
pub struct Go {
    acknowledged: AtomicU64,
}

fn program(at: &Site) -> PathBuf {
    at.scratch.join("go-append")
}

impl Go {
    fn run(&self, at: &Site, what: &str) -> Result<Command> {
        let file = at.dir.join("lines");
        let acknowledged = self.acknowledged.load(Ordering::Relaxed).to_string();
        Ok(guarded(arg(&program(at))?, &[what, arg(&file)?, &acknowledged]))
    }
}

impl App for Go {
    fn name(&self) -> &'static str {
        "go"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        let source = at.scratch.join("append.go");
        fs::write(&source, SOURCE).map_err(failed(source.display()))?;
        let program = program(at);
        let mut build = guarded("go", &["build", "-o", arg(&program)?, arg(&source)?]);
        build.env("GOCACHE", at.scratch.join("go-cache")).env("CGO_ENABLED", "0");
        build.env("GO111MODULE", "off").env("HOME", &at.scratch);
        at.run("go-build", build)?;
        let file = at.dir.join("lines");
        File::create(&file).map_err(failed(file.display()))?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        let writer = at.start("go", self.run(at, "append")?, Output::Piped)?;
        let output = writer.child(|c| c.stdout.take());
        let output = output.ok_or_else(|| Failed("go without a pipe".into()))?;
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            let n = line.parse().map_err(|e| Failed(format!("go says {line}: {e}")))?;
            if at.alive() {
                self.acknowledged.store(n, Ordering::Relaxed);
            }
            if at.stopped() {
                return Ok(());
            }
        }
        Err(Failed(format!("go ended\n{}", writer.printed())))
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        at.run("go-check", self.run(at, "check")?).map(drop)
    }

    fn acknowledged(&self) -> String {
        format!("{} lines", self.acknowledged.load(Ordering::Relaxed))
    }
}
