//! Sets of files that get their names together: one program publishes by the library, another by
//! `siftfs publish`. What is found must be one whole set, and none that is older than what was
//! acknowledged.

use crate::program::guarded;
use crate::work::{App, Site};
use siftfs_client::{Entry, Level, Publish, Source};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names that each set takes over from the one before, in two directories.
const NAMES: [&str; 4] = ["a/0", "a/1", "b/2", "b/3"];

/// How a set is published.
#[derive(Clone, Copy)]
enum By {
    Library,
    Command,
}

const PUBLISHERS: [(&str, By); 2] = [("library", By::Library), ("command", By::Command)];

/// The application.
#[derive(Default)]
pub struct Publishers {
    /// The newest set of each publisher that was acknowledged, or found.
    newest: [AtomicU64; PUBLISHERS.len()],
}

/// The name that set `n` has for itself.
fn own_name(n: u64) -> String {
    format!("sets/{n}")
}

/// What a file of set `n` has in it: from some bytes to some blocks.
fn content(n: u64, file: usize) -> String {
    let lines = (n as usize * 37 + file * 211) % 900 + 1;
    format!("{n} {file}\n").repeat(lines)
}

/// The files of set `n`: source, name and content.
fn files(n: u64) -> impl Iterator<Item = (String, String, String)> {
    let own = own_name(n);
    let names = NAMES.into_iter().map(String::from).chain([own]).enumerate();
    names.map(move |(file, name)| (format!("{file}.new"), name, content(n, file)))
}

/// Writes set `n` and publishes it.
fn publish(at: &Site, dir: &Path, by: By, n: u64) -> Result<()> {
    for (source, _, content) in files(n) {
        let source = dir.join(source);
        fs::write(&source, content).map_err(failed(source.display()))?;
    }
    match by {
        By::Library => {
            let entries = files(n).map(|(source, to, _)| {
                let source = Source::Path(source.into_bytes());
                Entry { source, to: to.into_bytes(), replace: true }
            });
            let publish = Publish { entries: entries.collect(), level: Level::Durable };
            let open = File::open(dir).map_err(failed(dir.display()))?;
            siftfs_client::publish(open.as_fd(), &publish).map_err(failed("publish"))
        }
        By::Command => {
            let Some(program) = at.siftfs() else {
                return Err(Failed("nothing is published under the kernel's ext4".into()));
            };
            let mut command = guarded(arg(program)?, &["publish"]);
            for (source, to, _) in files(n) {
                command.arg(dir.join(source)).arg(dir.join(to));
            }
            at.run("siftfs-publish", command).map(drop)
        }
    }
}

/// Publishes set after set until work ends.
fn work(at: &Site, name: &str, by: By, newest: &AtomicU64) -> Result<()> {
    let dir = at.dir.join(name);
    while !at.stopped() {
        let next = newest.load(Ordering::Relaxed) + 1;
        match publish(at, &dir, by, next) {
            Ok(()) if at.alive() => {}
            Err(error) if at.alive() && !at.stopped() => return Err(error),
            // It was under way when work ended, and may have happened.
            _ => break,
        }
        newest.store(next, Ordering::Relaxed);
        // An older set's own name is of no more use.
        if next > 2 {
            let old = dir.join(own_name(next - 2));
            fs::remove_file(&old).map_err(failed(old.display()))?;
        }
    }
    Ok(())
}

/// Text of the file at `name`, if there is one.
fn text(dir: &Path, name: &str) -> Result<Option<String>> {
    let path = dir.join(name);
    match fs::read(&path) {
        // What a crash might leave need not be text.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(path.display())(e)),
    }
}

/// Whether `dir` has set `n`, all of it and nothing newer.
fn has(dir: &Path, n: u64) -> Result<bool> {
    for (_, name, content) in files(n).filter(|_| n > 0) {
        if text(dir, &name)? != Some(content) {
            return Ok(false);
        }
    }
    let nothing = || NAMES.iter().try_fold(true, |so, name| Ok(so && text(dir, name)?.is_none()));
    Ok((n > 0 || nothing()?) && text(dir, &own_name(n + 1))?.is_none())
}

/// The set that `dir` has behind `acknowledged` of them: that one, or the one that was under way
/// when the mount died.
fn found(dir: &Path, acknowledged: u64) -> Result<u64> {
    for n in [acknowledged, acknowledged + 1] {
        if has(dir, n)? {
            return Ok(n);
        }
    }
    let mut there = Vec::new();
    for name in NAMES.into_iter().map(String::from).chain([own_name(acknowledged + 1)]) {
        let text = text(dir, &name)?;
        there.push(text.map(|t| (t.lines().next().unwrap_or_default().to_string(), t.len())));
    }
    Err(Failed(format!(
        "{}: of {acknowledged} sets that were published, there is {there:?}",
        dir.display()
    )))
}

impl App for Publishers {
    fn name(&self) -> &'static str {
        "publish"
    }

    fn prepare(&mut self, at: &Site) -> Result<()> {
        for (name, _) in PUBLISHERS {
            for part in ["a", "b", "sets"] {
                let dir = at.dir.join(name).join(part);
                fs::create_dir_all(&dir).map_err(failed(dir.display()))?;
            }
        }
        at.sync()
    }

    fn work(&self, at: &Site) -> Result<()> {
        std::thread::scope(|scope| {
            let publishers = PUBLISHERS.iter().zip(&self.newest);
            let threads: Vec<_> = publishers
                .map(|((name, by), newest)| scope.spawn(move || work(at, name, *by, newest)))
                .collect();
            let panicked = |_| Err(Failed("a publisher panicked".into()));
            threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(panicked))
        })
    }

    fn check(&mut self, at: &Site) -> Result<()> {
        for ((name, _), newest) in PUBLISHERS.iter().zip(&mut self.newest) {
            *newest.get_mut() = found(&at.dir.join(name), *newest.get_mut())?;
        }
        Ok(())
    }

    fn is_told_of_a_lost_server(&self) -> bool {
        true
    }

    fn acknowledged(&self) -> String {
        let each = self.newest.iter().map(|n| n.load(Ordering::Relaxed).to_string());
        format!("{} sets", each.collect::<Vec<_>>().join(" and "))
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
