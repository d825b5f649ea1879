//! A mail server's work: what filebench calls Varmail, as a mix of our own.
//!
//! One directory holds a thousand messages of 16 KiB, a quarter of them each thread's. A step of a
//! thread deletes one of its messages; creates it anew, appends 16 KiB, fsyncs and closes it; opens
//! another, reads it whole, appends 16 KiB, fsyncs and closes it; opens a third and reads it whole;
//! and stats a fourth. The row's number is steps in a second, of all threads.

use crate::cell::{Measured, THREADS, WorkArea, rate};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MESSAGES: u64 = 250;
const MESSAGE: usize = 16 << 10;

/// Four threads work for so long.
pub fn measure(area: &WorkArea, time: Duration) -> io::Result<Measured> {
    let data = vec![b'v'; MESSAGE];
    for thread in 0..THREADS {
        for n in 0..MESSAGES {
            fs::write(path(&area.dir, thread, n), &data)?;
        }
    }
    area.settle()?;
    area.count(|| {
        let start = Instant::now();
        let steps = std::thread::scope(|scope| {
            let work = |thread| {
                let (dir, data) = (&area.dir, &data);
                scope.spawn(move || {
                    let mut steps = 0;
                    while start.elapsed() < time {
                        step(dir, thread, steps, data)?;
                        steps += 1;
                    }
                    Ok(steps)
                })
            };
            let threads: Vec<_> = (0..THREADS).map(work).collect();
            let panicked = |_| Err(io::Error::other("a worker panicked"));
            let done = threads.into_iter().map(|t| t.join().unwrap_or_else(panicked));
            done.sum::<io::Result<u64>>()
        })?;
        Ok(rate(steps, start.elapsed()))
    })
}

fn path(dir: &Path, thread: u64, n: u64) -> PathBuf {
    dir.join(format!("{thread}-{}", n % MESSAGES))
}

fn append_synced(mut file: File, data: &[u8]) -> io::Result<()> {
    file.write_all(data)?;
    file.sync_all()
}

/// The four messages of a step are different ones.
fn step(dir: &Path, thread: u64, n: u64, data: &[u8]) -> io::Result<()> {
    let message = |which: u64| path(dir, thread, n * 7 + which * 61);
    fs::remove_file(message(0))?;
    append_synced(File::create_new(message(0))?, data)?;
    let mut text = Vec::with_capacity(4 * MESSAGE);
    let mut file = OpenOptions::new().read(true).append(true).open(message(1))?;
    file.read_to_end(&mut text)?;
    append_synced(file, data)?;
    text.clear();
    File::open(message(2))?.read_to_end(&mut text)?;
    fs::metadata(message(3)).map(drop)
}

#[cfg(test)]
#[path = "varmail_tests.rs"]
mod tests;
