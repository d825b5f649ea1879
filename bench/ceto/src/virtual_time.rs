//! Threads of a program, the network, workers of a target and its storage as state machines in
//! virtual time, for more threads than this machine has processors. Which group a call joins, and
//! which request begins when, is decided by the product's own code ([`Sequence`], [`Queue`]); what
//! the rest takes is assumed, and said ([`Costs`]).

use crate::costs::{Asked, decide, queue};
use siftfs_base::Rng;
use siftfs_device_target::{RequestOrder, Sequence};
use siftfs_placement::queue::{Queue, Turn};
use siftfs_rig::place::{Failed, Result};
use siftfs_wire::{QUEUE_WINDOW, UNORDERED};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the steps take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The program's decision, under the file's spin lock.
    pub decision: u64,
    /// All else that a thread of the program does for a call.
    pub call: u64,
    /// A message, each way.
    pub each_way: u64,
    /// What a worker of the target does with a message that comes, or with an access that ends.
    pub message: u64,
    /// An access to the storage.
    pub storage: u64,
    /// Between the ends of two accesses, when the storage is saturated.
    pub interval: u64,
    /// Workers of the target.
    pub workers: usize,
}

/// What happens at a moment.
enum Event {
    /// A thread begins a call.
    Calls(usize),
    /// It has decided under the spin lock, and sends.
    Decides(usize),
    /// A request is at the target.
    Arrives(Asked),
    /// A worker has taken it.
    Taken(Asked),
    /// The storage has done it.
    Accessed(Asked),
    /// A worker has seen that.
    Finished(Asked),
    /// The program has the answer.
    Answered(Asked),
}

/// One run.
struct Run {
    costs: Costs,
    order: RequestOrder,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    rng: Rng,
    sequence: Sequence,
    queue: Queue<Asked>,
    /// When the spin lock is free, when the storage is, and when each worker is.
    spin: u64,
    storage: u64,
    workers: Vec<u64>,
    /// Whether a thread has the program's lock of the file, and which threads wait for it, under
    /// `Locked`.
    locked: bool,
    waiting: VecDeque<usize>,
    /// Numbers without an answer.
    open: BTreeSet<u64>,
    answered: u64,
}

/// Durable writes a second of threads that overwrite a block of their own each, of one file
/// (DWOM), over `span` nanoseconds.
///
/// # Errors
/// The target refuses a request, which it must not.
///
/// # Panics
/// If there are more threads than a queue has numbers under way.
pub fn rate(
    order: RequestOrder,
    threads: usize,
    costs: &Costs,
    (span, seed): (u64, u64),
) -> Result<f64> {
    assert!(threads as u64 * 2 <= QUEUE_WINDOW, "numbers are in the window");
    let mut run = Run {
        costs: *costs,
        order,
        now: 0,
        events: BTreeMap::new(),
        count: 0,
        rng: Rng::new(seed),
        sequence: Sequence::new(order),
        queue: queue()?,
        spin: 0,
        storage: 0,
        workers: vec![0; costs.workers],
        locked: false,
        waiting: VecDeque::new(),
        open: BTreeSet::new(),
        answered: 0,
    };
    for thread in 0..threads {
        // They do not begin at once.
        let begin = run.rng.below(costs.storage + 1);
        run.at(begin, Event::Calls(thread));
    }
    while let Some(((now, _), event)) = run.events.pop_first()
        && now < span
    {
        run.now = now;
        run.step(event)?;
    }
    Ok(run.answered as f64 * 1e9 / span as f64)
}

impl Run {
    fn at(&mut self, when: u64, event: Event) {
        self.count += 1;
        self.events.insert((when, self.count), event);
    }

    /// Takes about so long: a twentieth more or less.
    fn about(&mut self, nanos: u64) -> u64 {
        nanos - nanos / 20 + self.rng.below(nanos / 10 + 1)
    }

    fn step(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Calls(thread) => self.calls(thread),
            Event::Decides(thread) => self.sends(thread)?,
            Event::Arrives(asked) => self.works(Event::Taken(asked)),
            Event::Taken(asked) => {
                let turn = self.queue.arrive(1, asked).map_err(|e| Failed(e.to_string()))?;
                if let Turn::Begins(asked) = turn {
                    self.accesses(asked);
                }
            }
            Event::Accessed(asked) => self.works(Event::Finished(asked)),
            Event::Finished(asked) => {
                let begins = self.queue.ended(1, asked.place.number, true);
                begins.into_iter().for_each(|asked| self.accesses(asked));
                let back = self.now + self.about(self.costs.each_way);
                self.at(back, Event::Answered(asked));
            }
            Event::Answered(asked) => self.answers(asked),
        }
        Ok(())
    }

    fn calls(&mut self, thread: usize) {
        if self.order == RequestOrder::Locked && std::mem::replace(&mut self.locked, true) {
            self.waiting.push_back(thread);
            return;
        }
        self.spin = self.spin.max(self.now) + self.costs.decision;
        self.at(self.spin, Event::Decides(thread));
    }

    fn sends(&mut self, thread: usize) -> Result<()> {
        let place = decide(&self.sequence, thread)?;
        if place.number != UNORDERED {
            self.open.insert(place.number);
            let low = self.open.first().copied().unwrap_or_default();
            assert!(place.number < low + QUEUE_WINDOW, "the next one would wait for ever");
        }
        let there = self.now + self.about(self.costs.each_way);
        self.at(there, Event::Arrives(Asked { thread, place }));
        Ok(())
    }

    /// The worker that is free first has it as its next message.
    fn works(&mut self, then: Event) {
        let now = self.now;
        let Some(free) = self.workers.iter_mut().min() else { return };
        *free = (*free).max(now) + self.costs.message;
        let done = *free;
        self.at(done, then);
    }

    fn accesses(&mut self, asked: Asked) {
        let done = (self.now + self.about(self.costs.storage)).max(self.storage);
        self.storage = done + self.costs.interval;
        self.at(done, Event::Accessed(asked));
    }

    fn answers(&mut self, asked: Asked) {
        self.sequence.answered(asked.place);
        self.open.remove(&asked.place.number);
        self.answered += 1;
        if self.order == RequestOrder::Locked {
            self.locked = false;
            if let Some(next) = self.waiting.pop_front() {
                self.calls(next);
            }
        }
        let again = self.now + self.about(self.costs.call);
        self.at(again, Event::Calls(asked.thread));
    }
}

#[cfg(test)]
#[path = "virtual_time_tests.rs"]
mod tests;
