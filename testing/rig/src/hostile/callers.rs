//! Many threads of one user that make calls at once.

use super::become_user;
use rustix::thread::{CpuSet, sched_setaffinity};
use siftfs_client::{Compound, Level};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

/// Enough for a call or two.
const STACK: usize = 128 << 10;

/// Makes an empty file `name` in `dir` by a compound.
///
/// # Errors
/// Those of the call.
pub fn make(dir: &Path, name: &str) -> io::Result<()> {
    let dir = File::open(dir)?;
    let mut steps = Compound::on(&dir);
    steps.create(name, 0o600);
    run(steps)
}

/// Removes a file by a compound.
///
/// # Errors
/// As [`make`].
pub fn remove(dir: &Path, name: &str) -> io::Result<()> {
    let dir = File::open(dir)?;
    let mut steps = Compound::on(&dir);
    steps.unlink(name);
    run(steps)
}

fn run(steps: Compound<'_>) -> io::Result<()> {
    steps.run(Level::Visible).map(drop).map_err(io::Error::from)
}

/// Lets the calling thread run on one processor only, whose ring its requests then use.
///
/// # Errors
/// There is no such processor for this process.
pub fn pin(processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

/// The threads; they are waited for when this is dropped.
pub struct Callers {
    threads: Vec<JoinHandle<()>>,
    running: Arc<AtomicUsize>,
}

impl Callers {
    /// Starts `count` threads of `user`, on one processor if one is named. The `i`-th calls
    /// `act(i)` once.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        count: usize,
        (user, processor): (u32, Option<usize>),
        act: impl Fn(usize) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (act, running) = (Arc::new(act), Arc::new(AtomicUsize::new(count)));
        let mut threads = Vec::with_capacity(count);
        for i in 0..count {
            let (act, running) = (act.clone(), running.clone());
            let body = move || {
                let ready = processor.map_or(Ok(()), pin).and_then(|()| become_user(user));
                if ready.is_ok() {
                    act(i);
                }
                running.fetch_sub(1, Ordering::SeqCst);
            };
            threads.push(Builder::new().stack_size(STACK).spawn(body)?);
        }
        Ok(Self { threads, running })
    }

    /// Threads that have not come back yet.
    pub fn left(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
