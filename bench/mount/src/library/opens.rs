//! A program that opens files of a directory, looks at them twice, and closes them: this program
//! again, so that it can be started with the library and without it.

use siftfs_rig::place::{Result, failed};
use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files in the directory.
const FILES: usize = 500;
/// Bytes of each.
const BYTES: usize = 1000;

/// Makes the files in a directory that is there.
pub fn prepare(dir: &Path) -> io::Result<()> {
    (0..FILES).try_for_each(|n| fs::write(dir.join(n.to_string()), vec![b'x'; BYTES]))
}

/// The program: for about this many seconds; prints what [`counted`] reads.
pub fn process(dir: &Path, seconds: f64) -> Result<()> {
    let work = || {
        let names = fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect::<io::Result<Vec<_>>>()?;
        look(&names, Duration::from_secs_f64(seconds))
    };
    let (opened, took) = work().map_err(failed(dir.display()))?;
    println!("{opened} {}", took.as_secs_f64());
    Ok(())
}

/// open(2), fstat(2), stat(2) and close(2) of one file after the other until the time is over.
fn look(names: &[PathBuf], time: Duration) -> io::Result<(u64, Duration)> {
    let (start, mut opened) = (Instant::now(), 0);
    if names.is_empty() {
        return Err(io::Error::other("there is no file"));
    }
    while start.elapsed() < time {
        for name in names {
            let file = File::open(name)?;
            black_box(file.metadata()?.len() + fs::metadata(name)?.len());
            opened += 1;
        }
    }
    Ok((opened, start.elapsed()))
}

/// How many files it opened, and in how many seconds.
pub fn counted(printed: &str) -> Option<(u64, f64)> {
    let (opened, seconds) = printed.trim().split_once(' ')?;
    let seconds: f64 = seconds.parse().ok()?;
    (seconds > 0.0).then_some((opened.parse().ok()?, seconds))
}

#[cfg(test)]
#[path = "opens_tests.rs"]
mod tests;
