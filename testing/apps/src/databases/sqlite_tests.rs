//! SQLite's own tests of atomic batch writes, from the source package of the system's SQLite.

use crate::program::guarded;
use crate::work::{App, Site};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The scripts, and how many tests each has at least.
const SCRIPTS: [(&str, u64); 2] = [("atomic.test", 3), ("atomic2.test", 100)];

/// The application.
pub struct SqliteTests {
    /// What `scripts/build-sqlite-tests.sh` built.
    built: PathBuf,
    passed: AtomicU64,
}

/// How many tests a script ran, all of which passed. Without sections it skips them, and says so.
fn judge(script: &str, least: u64, printed: &str) -> Result<u64> {
    let summary = printed.lines().find_map(|line| {
        let (errors, rest) = line.split_once(" errors out of ")?;
        let tests = rest.split_whitespace().next()?.parse().ok()?;
        Some((errors.parse::<u64>().ok()?, tests))
    });
    match summary {
        _ if printed.contains("Skipping tests") => {
            Err(Failed(format!("{script} finds no sections on the mount:\n{printed}")))
        }
        Some((0, tests)) if tests >= least => Ok(tests),
        _ => Err(Failed(format!("{script}, of which {least} tests must pass:\n{printed}"))),
    }
}

impl SqliteTests {
    /// With what was built beside this program.
    pub fn new() -> Result<Self> {
        let exe = std::env::current_exe().map_err(failed("own path"))?;
        let built = exe.with_file_name("sqlite-tests");
        if !built.join("build/testfixture").exists() {
            return Err(Failed(format!(
                "SQLite's tests are not built: scripts/build-sqlite-tests.sh {}",
                built.display()
            )));
        }
        Ok(Self { built, passed: AtomicU64::new(0) })
    }

    /// Runs a script in a directory of its own on the mount.
    fn script(&self, at: &Site, script: &str, least: u64) -> Result<u64> {
        let dir = at.dir.join("tests");
        std::fs::create_dir_all(&dir).map_err(failed(dir.display()))?;
        let (program, script_at) =
            (self.built.join("build/testfixture"), self.built.join("source/test").join(script));
        let mut command = guarded(arg(&program)?, &[arg(&script_at)?]);
        command.current_dir(&dir);
        judge(script, least, &at.run(script, command)?)
    }
}

impl App for SqliteTests {
    fn name(&self) -> &'static str {
        "sqlite-tests"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        while !at.stopped() {
            for (script, least) in SCRIPTS {
                let tests = self.script(at, script, least);
                if at.stopped() {
                    // In the middle of a script, as a rule.
                    return Ok(());
                }
                let tests = tests?;
                if at.alive() {
                    self.passed.fetch_add(tests, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// The scripts pass on the volume as it is. The kernel's ext4 has no sections.
    fn check(&mut self, at: &Site) -> Result<()> {
        if !at.is_ours() {
            return Ok(());
        }
        for (script, least) in SCRIPTS {
            let tests = self.script(at, script, least)?;
            self.passed.fetch_add(tests, Ordering::Relaxed);
        }
        Ok(())
    }

    fn acknowledged(&self) -> String {
        format!("{} tests passed", self.passed.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[path = "sqlite_tests_tests.rs"]
mod tests;
