//! Git: clones of a local repository, and one in which commits and garbage collections follow each
//! other, with everything git can be told to fsync.

use crate::copies::Copies;
use crate::program::guarded;
use crate::work::{App, Site};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const COMMITS: usize = 150;
const FILES: usize = 40;
/// Commits in a row, without any sync but git's own: a crash mostly falls among them.
const ROW: usize = 40;

/// The application.
#[derive(Default)]
pub struct Git {
    clones: Copies,
    commits: Mutex<Commits>,
}

/// git fsyncs what it writes, but no directory after its renames; so the newest commit may be lost
/// to a crash on any file system, while the repository must stay whole. Acknowledged is what was
/// synced.
#[derive(Clone, Default)]
struct Commits {
    made: usize,
    newest: Option<String>,
    acknowledged: Option<String>,
    total: usize,
}

fn git(at: &Site, dir: &Path, args: &[&str]) -> Result<Command> {
    let settings = ["-c", "core.fsync=all", "-c", "gc.auto=0", "-C", arg(dir)?];
    let mut command = guarded("git", &[&settings, args].concat());
    command.env("HOME", &at.scratch).env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "Nobody");
        command.env(format!("GIT_{who}_EMAIL"), "nobody@example.org");
    }
    Ok(command)
}

fn run(at: &Site, name: &str, dir: &Path, args: &[&str]) -> Result<String> {
    Ok(at.run(name, git(at, dir, args)?)?.trim().to_string())
}

fn clone(at: &Site, to: &Path) -> Result<()> {
    let args = ["clone", "-q", "--no-local", "source", arg(to)?];
    run(at, "git-clone", &at.scratch, &args).map(drop)
}

fn fsck(at: &Site, dir: &Path) -> Result<()> {
    run(at, "git-fsck", dir, &["fsck", "--full", "--strict", "--no-dangling"]).map(drop)
}

/// A history, as `git fast-import` takes it.
fn history() -> String {
    let mut text = String::new();
    for n in 0..COMMITS {
        let time = 1_000_000_000 + n;
        let _ = write!(
            text,
            "commit refs/heads/main\ncommitter Nobody <nobody@example.org> {time} +0000\n\
             data <<END\ncommit {n}\nEND\n"
        );
        for f in 0..4 {
            let file = (n * 7 + f * 11) % FILES;
            let lines: String = (0..50).map(|l| format!("{n} {f} {}\n", l * n)).collect();
            let _ = write!(
                text,
                "M 100644 inline dir-{}/file-{file}\ndata <<END\n{lines}END\n",
                file % 5
            );
        }
        text.push('\n');
    }
    text
}

impl Git {
    fn commits<T>(&self, work: impl FnOnce(&mut Commits) -> T) -> T {
        work(&mut self.commits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn commit(&self, at: &Site) -> Result<()> {
        let dir = at.dir.join("work");
        let n = self.commits(|c| {
            c.made += 1;
            c.made
        });
        let path = dir.join(format!("dir-{}/new-{}", n % 5, n % 30));
        fs::write(&path, format!("{n}\n").repeat(n % 500)).map_err(failed(path.display()))?;
        run(at, "git-add", &dir, &["add", "-A"])?;
        run(at, "git-commit", &dir, &["commit", "-q", "--allow-empty", "-m", "more"])?;
        let id = run(at, "git-rev-parse", &dir, &["rev-parse", "HEAD"])?;
        self.commits(|c| c.newest = Some(id));
        Ok(())
    }

    /// Commits in a row, a garbage collection, a clone; again and again.
    fn rounds(&self, at: &Site) -> Result<()> {
        while !at.stopped() {
            for _ in 0..ROW {
                self.commit(at)?;
            }
            run(at, "git-gc", &at.dir.join("work"), &["gc", "-q", "--prune=now"])?;
            at.sync()?;
            self.commits(|c| {
                c.acknowledged = c.newest.clone();
                c.total = c.made;
            });
            self.clones.work_once(at, &|dir: &Path| clone(at, dir))?;
        }
        Ok(())
    }

    /// The working repository: whole, and with every acknowledged commit.
    fn check_work(&self, at: &Site) -> Result<()> {
        let dir = at.dir.join("work");
        unlock(&dir.join(".git")).map_err(failed(dir.display()))?;
        fsck(at, &dir)?;
        if let Some(newest) = self.commits(|c| c.acknowledged.clone()) {
            run(at, "git-merge-base", &dir, &["merge-base", "--is-ancestor", &newest, "HEAD"])
                .map_err(|Failed(e)| Failed(format!("commit {newest} was acknowledged: {e}")))?;
        }
        // A crash may have come between a commit and its index.
        run(at, "git-reset", &dir, &["reset", "-q", "--hard"]).map(drop)
    }
}

/// Takes away the locks of a git that was killed, as git asks for.
fn unlock(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let (path, kind) = entry.and_then(|e| Ok((e.path(), e.file_type()?)))?;
        if kind.is_dir() && path.file_name().is_some_and(|n| n != "objects") {
            unlock(&path)?;
        } else if path.extension().is_some_and(|e| e == "lock") || path.ends_with("gc.pid") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

impl App for Git {
    fn name(&self) -> &'static str {
        "git"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        let source = at.scratch.join("source");
        fs::create_dir(&source).map_err(failed(source.display()))?;
        run(at, "git-init", &source, &["init", "-q", "-b", "main"])?;
        let stream = at.scratch.join("history");
        fs::write(&stream, history()).map_err(failed(stream.display()))?;
        let mut import = git(at, &source, &["fast-import", "--quiet"])?;
        import.stdin(File::open(&stream).map_err(failed(stream.display()))?);
        at.run("git-fast-import", import)?;
        clone(at, &at.dir.join("work"))?;
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        match self.rounds(at) {
            Err(_) if at.stopped() || !at.alive() => Ok(()),
            other => other,
        }
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        self.check_work(at)?;
        self.clones.check(at, |dir| clone(at, dir), |dir| fsck(at, dir))
    }

    fn acknowledged(&self) -> String {
        format!("{} commits, {} clones", self.commits(|c| c.total), self.clones.total())
    }
}

#[cfg(test)]
#[path = "git_tests.rs"]
mod tests;
