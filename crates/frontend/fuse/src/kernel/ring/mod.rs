//! The ring loop: requests come and are answered by io_uring, on the processor of the program that
//! asks. `docs/design/request-loop.md` has the whole picture.
//!
//! `entry` is one ring with its memory, `desk` brings answers to it, `queue` says how many threads
//! there are; here are the threads. Forgets and interrupts still come over `/dev/fuse`
//! (`super::device`).

pub(crate) mod desk;
mod entry;
mod queue;
mod uring;

use super::abi;
use super::handler::{Dispatch, Handler};
use super::reply::Way;
use super::request::header;
use crate::pages::own_mount::start_apart;
use desk::Desk;
use entry::{Entry, Event};
use queue::Queue;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread keeps the memory of large requests while it waits for the next.
const IDLE: Duration = Duration::from_secs(5);
/// How much of it a thread always keeps, in bytes.
const KEPT: usize = 64 << 10;
/// How often a thread that its processor was taken from asks for it again.
const PIN_AGAIN: Duration = Duration::from_secs(1);
/// How often a parked thread asks for others that could not be had.
const COVER_AGAIN: Duration = Duration::from_millis(100);
/// Processors there may be.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Says whether rings can be had, before the kernel is told that there will be some: from then on
/// it holds every request back until each queue has an entry.
///
/// # Errors
/// Why not.
pub(super) fn probe() -> Result<Plan, String> {
    entry::probe().map_err(|e| format!("io_uring is not to be had: {e}"))?;
    let text = std::fs::read_to_string(POSSIBLE).map_err(|e| format!("{POSSIBLE}: {e}"))?;
    let queues = count(&text).ok_or_else(|| format!("{POSSIBLE} makes no sense: {text}"))?;
    Ok(Plan { queues })
}

/// How many processors a list such as `0-3,6` has.
fn count(list: &str) -> Option<u16> {
    let mut all = 0u16;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        all = all.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(all)
}

/// Rings to be.
pub(super) struct Plan {
    /// One queue for each possible processor, whether it is there or not: the kernel uses none
    /// before all are.
    queues: u16,
}

/// What all threads of the loop share.
struct Shared<H> {
    device: Arc<OwnedFd>,
    dispatch: Dispatch<H>,
    /// Processors that this process may use.
    allowed: CpuSet,
    /// Where the mount is.
    place: PathBuf,
    /// Takes how each thread ended.
    ends: Sender<io::Result<()>>,
}

impl<H> Shared<H> {
    /// Is the queue's processor there, and may this process use it?
    fn may_use(&self, queue: u16) -> bool {
        let processor = usize::from(queue);
        processor < CpuSet::MAX_CPU && self.allowed.is_set(processor)
    }
}

/// The threads of the loop once it runs.
pub(super) struct Queues(Vec<Arc<Queue>>);

impl Queues {
    /// Queues; and threads of all, and those of them that have a request.
    pub(super) fn count(&self) -> (usize, (usize, usize)) {
        let all = |of: fn(&Queue) -> usize| self.0.iter().map(|q| of(q)).sum();
        (self.0.len(), (all(Queue::threads), all(Queue::busy)))
    }
}

/// Why no requests come by rings.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// The kernel does not take the rings, for this reason, and sends its requests to the device.
    Refused(String),
    /// Requests come in neither way.
    Failed(io::Error),
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Plan {
    /// Starts a thread for each queue; `ends` takes how each thread ends. When it returns, the
    /// kernel sends its requests to the rings.
    ///
    /// # Errors
    /// [`NotStarted::Refused`], if the kernel sends all requests to `device` instead.
    pub(super) fn start<H: Handler>(
        &self,
        device: &Arc<OwnedFd>,
        dispatch: &Dispatch<H>,
        (spare, place): (usize, PathBuf),
        ends: &Sender<io::Result<()>>,
    ) -> Result<Queues, NotStarted> {
        let shared = Arc::new(Shared {
            device: device.clone(),
            dispatch: dispatch.clone(),
            allowed: sched_getaffinity(None).map_err(io::Error::from)?,
            place,
            ends: ends.clone(),
        });
        let (ready, registered) = mpsc::channel();
        let all = usize::from(self.queues);
        let queues: Vec<_> =
            (0..self.queues).map(|id| Arc::new(Queue::new(id, all, spare))).collect();
        let start = |queue: &Arc<Queue>| {
            // A second one, so that the first request does not find the queue empty, where there
            // may be one.
            let first = if shared.may_use(queue.id) { 2 } else { 1 };
            (0..first).try_for_each(|_| {
                queue.starts();
                another(&shared, queue, Some(ready.clone()))
            })
        };
        let started: io::Result<()> = queues.iter().try_for_each(start);
        drop(ready);
        match started.and_then(|()| registered.into_iter().collect()) {
            Ok(()) => Ok(Queues(queues)),
            Err(error) => {
                entry::refuse(device).map_err(|e| {
                    io::Error::other(format!("{error}; and requests cannot be had back: {e}"))
                })?;
                Err(NotStarted::Refused(error.to_string()))
            }
        }
    }
}

/// Starts a thread of `queue`, which has counted it. `ready` takes whether its entry is registered.
fn another<H: Handler>(
    shared: &Arc<Shared<H>>,
    queue: &Arc<Queue>,
    ready: Option<Sender<io::Result<()>>>,
) -> io::Result<()> {
    let worker = Worker { shared: shared.clone(), queue: queue.clone() };
    let body = move || worker.run(ready);
    let name = format!("siftfs-ring-{}", queue.id);
    let started = thread::Builder::new().name(name).spawn(body);
    started.map(drop).inspect_err(|_| queue.not_started())
}

/// A thread of a queue.
struct Worker<H> {
    shared: Arc<Shared<H>>,
    queue: Arc<Queue>,
}

impl<H: Handler> Worker<H> {
    fn run(&self, ready: Option<Sender<io::Result<()>>>) {
        self.pin();
        self.shared.dispatch.schedule.enter();
        let (desk, first) = match self.register() {
            Ok(registered) => registered,
            Err(error) => {
                self.queue.not_started();
                match ready {
                    Some(ready) => drop(ready.send(Err(error))),
                    None => tracing::warn!(%error, "no further thread for requests"),
                }
                return;
            }
        };
        if self.queue.registered() {
            self.kick();
        }
        if let Some(ready) = ready {
            let _ = ready.send(Ok(()));
        }
        let end = self.serve(&desk, first);
        desk.close();
        // The session has stopped listening once another thread has failed.
        let _ = self.shared.ends.send(end);
    }

    /// An entry that is registered, and what the kernel said of it so far.
    fn register(&self) -> io::Result<(Arc<Desk>, Option<Event>)> {
        let mut entry = Entry::new(self.shared.device.clone(), self.queue.id)?;
        entry.register()?;
        let first = entry.poll();
        if let Some(Event::Refused(e)) = first {
            let e = io::Error::from_raw_os_error(e);
            return Err(io::Error::other(format!("the kernel refuses a ring: {e}")));
        }
        Ok((Arc::new(Desk::new(entry)), first))
    }

    fn serve(&self, desk: &Arc<Desk>, mut event: Option<Event>) -> io::Result<()> {
        let mut copy = Vec::new();
        let mut pinned = Instant::now();
        loop {
            let next = event.take().map_or_else(|| desk.with(wait), Ok)?;
            match next {
                Event::Request => {}
                Event::End => return Ok(()),
                Event::Idle => {
                    desk.with(Entry::give_back);
                    continue;
                }
                Event::Refused(e) => {
                    let error = io::Error::from_raw_os_error(e);
                    tracing::error!(%error, "the kernel refused an answer");
                    event = desk.with(|entry| entry.register().map(|()| entry.poll()))?;
                    if matches!(event, Some(Event::Refused(_))) {
                        return Err(error);
                    }
                    self.kick();
                    continue;
                }
            }
            self.cover(self.queue.taken());
            self.dispatch(desk, &mut copy);
            self.settle(desk)?;
            self.queue.done();
            // The scheduler moved this thread when its processor went away.
            if sched_getcpu() != usize::from(self.queue.id) && pinned.elapsed() > PIN_AGAIN {
                self.pin();
                pinned = Instant::now();
            }
        }
    }

    /// Carries out the request that the ring has.
    fn dispatch(&self, desk: &Arc<Desk>, copy: &mut Vec<u8>) {
        let unique = desk.read(|message| {
            let head = header(message).expect("a ring's request has a header");
            copy.clear();
            // The data of a write is copied once, from the ring; everything else is short.
            if head.opcode != abi::WRITE {
                copy.extend_from_slice(message);
            }
            head.unique
        });
        desk.open(unique);
        let way = Way::Ring(desk.clone());
        if copy.is_empty() {
            desk.read(|message| self.shared.dispatch.message(message, way));
        } else {
            self.shared.dispatch.message(copy, way);
        }
    }

    /// Starts this many threads for the next requests; false if one could not be had.
    fn cover(&self, missing: usize) -> bool {
        // Each of them is counted, so each has to be tried.
        (0..missing).fold(true, |all, _| match another(&self.shared, &self.queue, None) {
            Ok(()) => all,
            Err(error) => {
                tracing::warn!(%error, "no thread for the next request: it waits for this one");
                false
            }
        })
    }

    /// Returns when the request that was carried out is answered. What the answer waits for may
    /// need requests of this queue, so other threads are there for them, or are asked for until
    /// they are.
    fn settle(&self, desk: &Desk) -> io::Result<()> {
        if !desk.is_open() {
            return desk.settle();
        }
        self.queue.parks();
        while !self.cover(self.queue.beside_parked()) && !desk.wait(COVER_AGAIN) {}
        let settled = desk.settle();
        self.queue.goes_on();
        settled
    }

    /// The queue's processor, if this process may use it and it is there.
    fn processor(&self) -> Option<usize> {
        self.shared.may_use(self.queue.id).then(|| self.queue.id.into())
    }

    fn pin(&self) {
        pin_to(self.processor());
    }

    /// Makes the kernel check for requests that came while no entry waited: an entry that registers
    /// does not take them, one that commits does. So something is asked of the mount, on this
    /// processor, by a thread that does nothing else, and that keeps nothing of a killed daemon. It
    /// is answered without the server, which may be lost.
    fn kick(&self) {
        let (place, processor) = (self.shared.place.clone(), self.processor());
        let ask = move |alone: io::Result<()>| {
            if alone.is_ok() {
                pin_to(processor);
                // Whatever it says: the mount may be gone, or covered by another one.
                let _ = rustix::fs::statfs(&place);
            }
        };
        if let Err(error) = start_apart("siftfs-kick", ask) {
            tracing::warn!(%error, "a request may wait for the end of another");
        }
    }
}

/// Lets the calling thread run on one processor only, if one is named.
fn pin_to(processor: Option<usize>) {
    let Some(processor) = processor else { return };
    let mut set = CpuSet::new();
    set.set(processor);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::debug!(%error, processor, "a request thread runs anywhere");
    }
}

/// Waits for a request; not for ever while much memory is held.
fn wait(entry: &mut Entry) -> io::Result<Event> {
    let limit = (entry.touched() > KEPT).then_some(IDLE);
    entry.wait(limit)
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
