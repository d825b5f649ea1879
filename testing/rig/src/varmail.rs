//! A mail server's work: what filebench calls Varmail, as a mix of our own.
//!
//! One directory holds messages of 16 KiB, the same number for each thread. A step of a
//! thread deletes one of its messages; creates it anew, appends, fsyncs and closes it; opens
//! another, reads it whole, appends, fsyncs and closes it; opens a third and reads it whole;
//! and stats a fourth.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a message, and the most of an append.
const MESSAGE: usize = 16 << 10;

/// How much of it.
#[derive(Clone, Copy)]
pub struct Varmail {
    /// Threads.
    pub threads: u64,
    /// Messages of each.
    pub messages: u64,
    /// Appends are of any size up to 16 KiB, as filebench's; else of 16 KiB.
    pub any_size: bool,
}

impl Varmail {
    /// Writes the messages that are there at first.
    pub fn prepare(&self, dir: &Path) -> io::Result<()> {
        let data = vec![b'v'; MESSAGE];
        for thread in 0..self.threads {
            for n in 0..self.messages {
                fs::write(self.path(dir, thread, n), &data)?;
            }
        }
        Ok(())
    }

    /// All threads work for so long; steps of all of them, and how long it took.
    pub fn work(&self, dir: &Path, time: Duration) -> io::Result<(u64, Duration)> {
        let data = vec![b'v'; MESSAGE];
        let start = Instant::now();
        let steps = std::thread::scope(|scope| {
            let work = |thread| {
                let data = &data;
                scope.spawn(move || {
                    let mut steps = 0;
                    while start.elapsed() < time {
                        self.step(dir, thread, steps, data)?;
                        steps += 1;
                    }
                    Ok(steps)
                })
            };
            let threads: Vec<_> = (0..self.threads).map(work).collect();
            let panicked = |_| Err(io::Error::other("a worker panicked"));
            let done = threads.into_iter().map(|t| t.join().unwrap_or_else(panicked));
            done.sum::<io::Result<u64>>()
        })?;
        Ok((steps, start.elapsed()))
    }

    fn path(&self, dir: &Path, thread: u64, n: u64) -> PathBuf {
        dir.join(format!("{thread}-{}", n % self.messages))
    }

    /// Bytes of a step's append.
    fn size(&self, n: u64) -> usize {
        match self.any_size {
            true => 1 + usize::try_from(n * 7919 % MESSAGE as u64).unwrap_or(0),
            false => MESSAGE,
        }
    }

    /// The four messages of a step are different ones.
    fn step(&self, dir: &Path, thread: u64, n: u64, data: &[u8]) -> io::Result<()> {
        let message = |which: u64| self.path(dir, thread, n * 7 + which * 61);
        fs::remove_file(message(0))?;
        append_synced(File::create_new(message(0))?, &data[..self.size(n * 2)])?;
        let mut text = Vec::with_capacity(4 * MESSAGE);
        let mut file = OpenOptions::new().read(true).append(true).open(message(1))?;
        file.read_to_end(&mut text)?;
        append_synced(file, &data[..self.size(n * 2 + 1)])?;
        text.clear();
        File::open(message(2))?.read_to_end(&mut text)?;
        fs::metadata(message(3)).map(drop)
    }
}

fn append_synced(mut file: File, data: &[u8]) -> io::Result<()> {
    file.write_all(data)?;
    file.sync_all()
}

#[cfg(test)]
#[path = "varmail_tests.rs"]
mod tests;
