//! Writers that note what was acknowledged, and the judgement of what is there.

use siftfs_rig::place::{Failed, Result, failed};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Files, each with a writer.
const WRITERS: usize = 4;
/// Longest record, in bytes.
const LONGEST: u64 = 6000;

/// What was acknowledged, of each file, over all runs of writers.
#[derive(Clone, Default)]
pub struct Ledger {
    acknowledged: [u64; WRITERS],
}

/// Writers that append records, each made durable by an fsync before the next.
pub struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<[AtomicU64; WRITERS]>,
    threads: Vec<JoinHandle<()>>,
    seen: Arc<Mutex<Seen>>,
}

/// What the writers have seen.
#[derive(Clone, Default)]
pub struct Seen {
    /// The longest time from a write to its acknowledgement.
    pub longest: Duration,
    /// The first error.
    pub error: Option<(String, i32)>,
}

impl Ledger {
    /// How many records were acknowledged.
    pub fn total(&self) -> u64 {
        self.acknowledged.iter().sum()
    }

    /// Judges the files in `dir`: everything acknowledged is there, whole and in order. What is
    /// behind it, half a record perhaps, is cut off, so that writers can go on.
    pub fn judge(&mut self, dir: &Path) -> Result<()> {
        for (n, acknowledged) in self.acknowledged.iter_mut().enumerate() {
            let path = path_of(dir, n);
            let bytes = match fs::read(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                read => read.map_err(failed(path.display()))?,
            };
            let (there, len) = whole(n, &bytes);
            if there < *acknowledged {
                return Err(Failed(format!(
                    "{}: {acknowledged} records were acknowledged, and {there} are there",
                    path.display()
                )));
            }
            if len < bytes.len() as u64 {
                let file = File::options().write(true).open(&path).map_err(failed("open"))?;
                file.set_len(len).and_then(|()| file.sync_all()).map_err(failed("truncate"))?;
            }
            *acknowledged = there;
        }
        Ok(())
    }

    /// Notes what the writers have been told so far.
    pub fn take_over(&mut self, writers: &Writers) {
        for (total, now) in self.acknowledged.iter_mut().zip(writers.acknowledged.iter()) {
            *total = now.load(Ordering::Relaxed);
        }
    }

    /// Starts writers behind what is there, which was judged.
    pub fn write(&self, dir: &Path) -> Result<Writers> {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged: Arc<[AtomicU64; WRITERS]> =
            Arc::new(self.acknowledged.map(AtomicU64::new));
        let (mut threads, seen) = (Vec::new(), Arc::new(Mutex::new(Seen::default())));
        for n in 0..WRITERS {
            let path = path_of(dir, n);
            let file = File::options().append(true).create(true).open(&path);
            let mut file = file.map_err(failed(path.display()))?;
            let (stop, all, seen) = (stop.clone(), acknowledged.clone(), seen.clone());
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let (next, begun) = (all[n].load(Ordering::Relaxed) + 1, Instant::now());
                    let done = file.write_all(&record(n, next)).and_then(|()| file.sync_data());
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Err(e) = done {
                        let errno = e.raw_os_error().unwrap_or(0);
                        seen.error.get_or_insert_with(|| (e.to_string(), errno));
                        return;
                    }
                    all[n].store(next, Ordering::Relaxed);
                    seen.longest = seen.longest.max(begun.elapsed());
                }
            }));
        }
        Ok(Writers { stop, acknowledged, threads, seen })
    }
}

impl Writers {
    /// How many records have been acknowledged.
    pub fn total(&self) -> u64 {
        self.acknowledged.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Waits until something more is acknowledged.
    pub fn wait_for_more(&self, patience: Duration) -> Result<()> {
        let (before, until) = (self.total(), Instant::now() + patience);
        while self.total() == before {
            if let Some((error, _)) = self.seen().error {
                return Err(Failed(format!("a writer has failed: {error}")));
            }
            if Instant::now() > until {
                return Err(Failed(format!("nothing is acknowledged for {patience:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The longest time from a write to its acknowledgement since this was last asked.
    pub fn take_longest(&self) -> Duration {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner).longest)
    }

    /// What they have seen so far.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends them, and notes what was acknowledged.
    pub fn end(mut self, ledger: &mut Ledger) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok(), "a writer has panicked");
        }
        ledger.take_over(&self);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn path_of(dir: &Path, writer: usize) -> std::path::PathBuf {
    dir.join(format!("ledger-{writer}"))
}

/// A record: its number and length, then bytes that follow from both.
fn record(writer: usize, number: u64) -> Vec<u8> {
    let len = 24 + number.wrapping_mul(7919) % (LONGEST - 24);
    let mut bytes = Vec::with_capacity(len as usize);
    for field in [number, len, writer as u64] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend((24..len).map(|at| (at.wrapping_mul(31) ^ number ^ writer as u64) as u8));
    bytes
}

/// How many whole records there are from the begin on, and their length.
fn whole(writer: usize, bytes: &[u8]) -> (u64, u64) {
    let (mut count, mut at) = (0, 0);
    loop {
        let next = record(writer, count + 1);
        match bytes.get(at..at + next.len()) {
            Some(found) if found == next => (count, at) = (count + 1, at + next.len()),
            _ => return (count, at as u64),
        }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
