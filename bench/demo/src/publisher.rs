//! Sets of files that get their names together, again and again, until the mount dies in the
//! middle.

use siftfs_client::{Entry, Level, Publish, Source, publish};
use siftfs_rig::place::{Failed, Result, failed};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Files of a set.
const FILES: u32 = 4;

/// A thread that publishes.
pub struct Publisher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

fn home(mount: &Path) -> PathBuf {
    mount.join("published")
}

/// What a file of set `n` has in it.
fn content(n: u64, file: u32) -> String {
    format!("{n} {file}\n").repeat(300)
}

impl Publisher {
    /// Starts it behind set `from`, of which it is known that it is there.
    pub fn start(mount: &Path, from: u64) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, dir) = (stop.clone(), home(mount));
        fs::create_dir_all(&dir).map_err(failed(dir.display()))?;
        let thread = std::thread::spawn(move || {
            let mut newest = from;
            // The mount's end is this thread's.
            while !stopped.load(Ordering::Relaxed) && set(&dir, newest + 1).is_ok() {
                newest += 1;
            }
            newest
        });
        Ok(Self { stop, thread })
    }

    /// Ends it; the newest set that was acknowledged.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

/// Writes a set under other names and publishes it.
fn set(dir: &Path, n: u64) -> std::io::Result<()> {
    let mut entries = Vec::new();
    for file in 0..FILES {
        let (source, to) = (format!("{file}.new"), file.to_string());
        fs::write(dir.join(&source), content(n, file))?;
        let source = Source::Path(source.into_bytes());
        entries.push(Entry { source, to: to.into_bytes(), replace: true });
    }
    publish(File::open(dir)?.as_fd(), &Publish { entries, level: Level::Durable })
}

/// Which set is there, whole, after `acknowledged` of them: that one, or the one that was under way
/// when the mount died.
pub fn check(mount: &Path, acknowledged: u64) -> Result<u64> {
    let dir = home(mount);
    let read = |file: u32| {
        let path = dir.join(file.to_string());
        match fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && acknowledged == 0 => Ok(None),
            other => other.map(Some).map_err(failed(path.display())),
        }
    };
    let found = (0..FILES).map(read).collect::<Result<Vec<_>>>()?;
    let is = |n: u64| {
        let mut files = (0..).zip(&found);
        files.all(|(file, text)| text.as_deref().map_or(n == 0, |text| text == content(n, file)))
    };
    [acknowledged, acknowledged + 1].into_iter().find(|n| is(*n)).ok_or_else(|| {
        let firsts = found.iter().flatten().map(|text| text.lines().next().unwrap_or_default());
        let firsts: Vec<&str> = firsts.collect();
        Failed(format!("of {acknowledged} sets of files that were published, there are {firsts:?}"))
    })
}
