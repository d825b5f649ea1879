//! The workers that serve programs' connections (`docs/design/target.md`, "Workers").

mod counts;
mod helpers;
mod mailbox;
mod member;
mod worker;

pub(crate) use mailbox::{Mailbox, Told};
pub(crate) use member::Newcomer;

use crate::device::calls::{DeviceEnd, Refusals, lock};
use crate::device::programs::{Attached, Tokens};
use counts::Counts;
use helpers::Helpers;
use siftfs_base::{Error, Result};
use siftfs_wire::{StorageCall, WorkerStatistics};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use worker::Worker;

/// Connections of programs at once.
pub(crate) const MOST_CONNECTIONS: usize = 128;

/// How workers work.
#[derive(Clone, Copy, Debug)]
pub struct WorkerOptions {
    /// How many there are, 1 to 64.
    pub workers: usize,
    /// How long one looks for something to do before it sleeps.
    pub spin: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self { workers: processors.clamp(2, 64), spin: Duration::from_micros(20) }
    }
}

/// What all workers have.
struct Common {
    tokens: Arc<Tokens>,
    helpers: Helpers,
    counts: Counts,
    spin: Duration,
    stopping: AtomicBool,
    /// Why connections broke.
    broke: Box<dyn Fn(&Error) + Send + Sync>,
}

impl Common {
    /// A connection has broken; why is counted and told.
    fn broken(&self, error: &Error) {
        self.counts.broke();
        (self.broke)(error);
    }
}

/// All workers, which are started with the first connection. When it is dropped, they end.
pub(crate) struct Workers {
    options: WorkerOptions,
    common: Arc<Common>,
    started: Mutex<Vec<(Arc<Mailbox>, JoinHandle<()>)>>,
    /// Given to connections, and to nothing else that a worker waits for.
    next: AtomicU64,
}

impl Workers {
    /// `broke` is told why a connection broke.
    pub fn new(
        options: WorkerOptions,
        tokens: &Arc<Tokens>,
        broke: Box<dyn Fn(&Error) + Send + Sync>,
    ) -> Self {
        let (tokens, spin) = (tokens.clone(), options.spin);
        let (helpers, counts, stopping) = Default::default();
        let common = Arc::new(Common { tokens, helpers, counts, spin, stopping, broke });
        let next = AtomicU64::new(worker::FIRST_NUMBER);
        Self { options, common, started: Mutex::default(), next }
    }

    /// Has a program's connection served, which has made this call, or has to make one in time.
    /// `refused` is told what it may not ask.
    ///
    /// # Errors
    /// There are too many, or no worker; the connection is closed.
    pub fn admit(
        &self,
        end: DeviceEnd,
        first: Option<(u64, StorageCall)>,
        (patience, refused): (Duration, Refusals),
    ) -> Result<()> {
        let (peer, sender) = (end.peer.clone(), end.sender.clone());
        let newcomer = Newcomer {
            end,
            first,
            until: Instant::now() + patience,
            number: self.next.fetch_add(1, Ordering::Relaxed),
            attached: Attached::new(&self.common.tokens),
            refused,
        };
        let admitted = self.choose().and_then(|mailbox| match mailbox.admit(newcomer) {
            None => Ok(()),
            Some(_) => Err(Error::Refused("this process ends".into())),
        });
        admitted.map_err(|error| {
            sender.close();
            Error::Refused(format!("{peer}: {error}"))
        })
    }

    /// The worker with the fewest.
    fn choose(&self) -> Result<Arc<Mailbox>> {
        let mut started = lock(&self.started);
        if started.is_empty() {
            for at in 0..self.options.workers.clamp(1, 64) {
                match self.start(at) {
                    Ok(worker) => started.push(worker),
                    Err(error) if at == 0 => return Err(error),
                    Err(error) => tracing::warn!(%error, at, "fewer workers than asked for"),
                }
            }
        }
        let members = |mailbox: &Mailbox| mailbox.members.load(Ordering::Acquire);
        let all: usize = started.iter().map(|(mailbox, _)| members(mailbox)).sum();
        if all >= MOST_CONNECTIONS {
            let what = format!("too many connections, at most {MOST_CONNECTIONS}");
            return Err(Error::Refused(what));
        }
        let fewest = started.iter().min_by_key(|(mailbox, _)| members(mailbox));
        let fewest = fewest.map(|(mailbox, _)| mailbox.clone());
        fewest.ok_or_else(|| Error::Refused("no worker".into()))
    }

    fn start(&self, at: usize) -> Result<(Arc<Mailbox>, JoinHandle<()>)> {
        let mailbox = Arc::new(Mailbox::new()?);
        let worker = Worker::new(&mailbox, &self.common)?;
        let thread = thread::Builder::new().name(format!("siftfs-worker{at}"));
        let thread = thread.spawn(move || worker.work());
        let thread = thread.map_err(|e| Error::Refused(format!("no thread for a worker: {e}")))?;
        Ok((mailbox, thread))
    }

    /// What a host shows of them.
    pub fn statistics(&self) -> WorkerStatistics {
        let started = lock(&self.started);
        let members = |(mailbox, _): &(Arc<Mailbox>, _)| mailbox.members.load(Ordering::Acquire);
        WorkerStatistics {
            workers: started.len() as u64,
            connections: started.iter().map(members).sum::<usize>() as u64,
            most_helpers: self.common.helpers.most_busy() as u64,
            ..self.common.counts.statistics()
        }
    }

    /// All connections are closed, soon.
    pub fn stop(&self) {
        self.common.stopping.store(true, Ordering::Release);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
        for (_, thread) in lock(&self.started).drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker ended with a failed assertion");
            }
        }
    }
}

#[cfg(test)]
#[path = "workers_tests.rs"]
mod tests;
