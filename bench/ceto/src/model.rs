//! Threads of programs as state machines in virtual time, each with steps of its own over files of
//! its own or shared ones: for more threads than this machine has processors. Which request of a
//! file begins when is decided by the product's code ([`Sequence`], [`Queue`]); what the rest takes
//! is assumed, or was measured, and is said by the figure ([`Costs`], [`Step`]).

use crate::costs::{Asked, queue};
use crate::virtual_time::Costs;
use siftfs_base::Rng;
use siftfs_device_target::{Kind, RequestOrder, Sequence};
use siftfs_placement::queue::{Queue, Turn};
use siftfs_rig::place::{Failed, Result};
use siftfs_wire::Place;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes that pass the storage or the network in one interval of [`Costs`] or of a [`Link`].
const BLOCK: u64 = 4096;

/// What one step asks for, and of whom.
#[derive(Clone, Debug)]
pub enum Whose {
    /// The target, by the queue of this file.
    Queue(usize, Kind, Range<u64>),
    /// The host, which works on it alone for this many nanoseconds.
    Host(u64),
}

/// One call of a thread.
#[derive(Clone, Debug)]
pub struct Step {
    /// Who is asked.
    pub whose: Whose,
    /// Bytes that cross the network for it.
    pub wire: u64,
    /// Bytes that are read or written before it is answered.
    pub stored: u64,
    /// Bytes that the storage reads and writes for it at another time.
    pub later: u64,
    /// Its answer counts.
    pub counts: bool,
}

/// A thread, which makes its steps again and again.
#[derive(Clone, Debug, Default)]
pub struct Actor {
    /// Its steps.
    pub steps: Vec<Step>,
    /// It works behind another one: each of its rounds needs one of that one's.
    pub behind: Option<usize>,
    /// Another one works behind it, and may be this many rounds late.
    pub followed: Option<(usize, u64)>,
}

/// What is shared besides [`Costs`].
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Nanoseconds that 4 KiB take the network, all threads together.
    pub interval: u64,
    /// Threads of the host that work.
    pub hosts: usize,
}

/// What happens to an actor's step.
#[derive(Clone, Copy)]
enum Event {
    Begins,
    Sends,
    Arrives,
    Taken(Option<Place>),
    Accessed(Option<Place>),
    Finished(Option<Place>),
    Answered(Option<Place>),
}

/// A file, with the product's order of it.
struct File {
    sequence: Sequence,
    queue: Queue<Asked>,
    spin: u64,
}

struct Run<'a> {
    costs: Costs,
    link: Link,
    actors: &'a [Actor],
    now: u64,
    events: BTreeMap<(u64, u64), (usize, Event)>,
    count: u64,
    counted: u64,
    rng: Rng,
    files: Vec<File>,
    wire: u64,
    storage: u64,
    workers: Vec<u64>,
    hosts: Vec<u64>,
    /// By actor: the step that it is at, its rounds, whether it waits for another one, and the
    /// place of its request.
    at: Vec<usize>,
    rounds: Vec<u64>,
    waits: Vec<bool>,
    places: Vec<Option<Place>>,
}

/// Answers that count, a second, of all actors, over `span` nanoseconds.
///
/// # Errors
/// The target refuses a request, or a step names no file: a mistake of the figure.
pub fn rate(
    actors: &[Actor],
    (files, order): (usize, RequestOrder),
    (costs, link): (&Costs, Link),
    (span, seed): (u64, u64),
) -> Result<f64> {
    let file = || Ok(File { sequence: Sequence::new(order), queue: queue()?, spin: 0 });
    let count = actors.len();
    let mut run = Run {
        costs: *costs,
        link,
        actors,
        now: 0,
        events: BTreeMap::new(),
        count: 0,
        counted: 0,
        rng: Rng::new(seed),
        files: (0..files).map(|_| file()).collect::<Result<_>>()?,
        wire: 0,
        storage: 0,
        workers: vec![0; costs.workers],
        hosts: vec![0; link.hosts],
        at: vec![0; count],
        rounds: vec![0; count],
        waits: vec![false; count],
        places: vec![None; count],
    };
    for actor in 0..count {
        let begin = run.rng.below(costs.storage + 1);
        run.at(begin, actor, Event::Begins);
    }
    while let Some(((now, _), (actor, event))) = run.events.pop_first()
        && now < span
    {
        run.now = now;
        run.step(actor, event)?;
    }
    Ok(run.counted as f64 * 1e9 / span as f64)
}

impl Run<'_> {
    fn at(&mut self, when: u64, actor: usize, event: Event) {
        self.count += 1;
        self.events.insert((when, self.count), (actor, event));
    }

    /// Takes about this time: a twentieth more or less.
    fn about(&mut self, nanos: u64) -> u64 {
        nanos - nanos / 20 + self.rng.below(nanos / 10 + 1)
    }

    fn asks(&self, actor: usize) -> Result<Step> {
        let step = self.actors.get(actor).and_then(|own| own.steps.get(self.at[actor]));
        step.cloned().ok_or_else(|| Failed("an actor without a step".into()))
    }

    fn step(&mut self, actor: usize, event: Event) -> Result<()> {
        let step = self.asks(actor)?;
        match event {
            Event::Begins => self.begins(actor, &step),
            Event::Sends => self.sends(actor, &step)?,
            Event::Arrives => self.works(actor, &step),
            Event::Taken(None) => self.accesses(actor, &step, None),
            Event::Taken(Some(place)) => self.arrives(actor, &step, place)?,
            Event::Accessed(place) => {
                let done = soonest(&mut self.workers, self.now, self.costs.message);
                self.at(done, actor, Event::Finished(place));
            }
            Event::Finished(place) => self.finishes(actor, &step, place)?,
            Event::Answered(place) => self.answers(actor, &step, place),
        }
        Ok(())
    }

    /// May the actor begin a round?
    fn may_begin(&self, actor: usize) -> bool {
        let own = &self.actors[actor];
        let has = own.behind.is_none_or(|other| self.rounds[other] > self.rounds[actor]);
        let late = |(other, most): (usize, u64)| self.rounds[actor] - self.rounds[other] < most;
        has && own.followed.is_none_or(late)
    }

    fn begins(&mut self, actor: usize, step: &Step) {
        if self.at[actor] == 0 && !self.may_begin(actor) {
            self.waits[actor] = true;
            return;
        }
        let decided = match &step.whose {
            Whose::Queue(file, ..) => {
                let spin = &mut self.files[*file].spin;
                *spin = (*spin).max(self.now) + self.costs.decision;
                *spin
            }
            Whose::Host(_) => self.now,
        };
        self.at(decided, actor, Event::Sends);
    }

    fn sends(&mut self, actor: usize, step: &Step) -> Result<()> {
        self.places[actor] = match &step.whose {
            Whose::Queue(file, kind, range) => {
                let sequence = &self.files[*file].sequence;
                let taken = sequence.take(*kind, std::slice::from_ref(range), 1, |_| ());
                Some(taken.map_err(|e| Failed(e.to_string()))?.place(0, 0))
            }
            Whose::Host(_) => None,
        };
        self.wire = self.wire.max(self.now) + intervals(step.wire, self.link.interval);
        let there = self.wire + self.about(self.costs.each_way);
        self.at(there, actor, Event::Arrives);
        Ok(())
    }

    /// The worker of the target, or of the host, that is free first takes it.
    fn works(&mut self, actor: usize, step: &Step) {
        let done = match step.whose {
            Whose::Queue(..) => soonest(&mut self.workers, self.now, self.costs.message),
            Whose::Host(nanos) => soonest(&mut self.hosts, self.now, nanos),
        };
        self.at(done, actor, Event::Taken(self.places[actor]));
    }

    fn arrives(&mut self, actor: usize, step: &Step, place: Place) -> Result<()> {
        let Whose::Queue(file, ..) = step.whose else { return Ok(()) };
        let asked = Asked { thread: actor, place };
        let turn = self.files[file].queue.arrive(1, asked).map_err(|e| Failed(e.to_string()))?;
        if let Turn::Begins(asked) = turn {
            self.accesses(actor, step, Some(asked.place));
        }
        Ok(())
    }

    fn accesses(&mut self, actor: usize, step: &Step, place: Option<Place>) {
        let free = self.storage.max(self.now) + intervals(step.stored, self.costs.interval);
        let done = (self.now + self.about(self.costs.storage)).max(free);
        self.storage = free + intervals(step.later, self.costs.interval);
        self.at(done, actor, Event::Accessed(place));
    }

    fn finishes(&mut self, actor: usize, step: &Step, place: Option<Place>) -> Result<()> {
        if let (Whose::Queue(file, ..), Some(place)) = (&step.whose, place) {
            for asked in self.files[*file].queue.ended(1, place.number, true) {
                let its = self.asks(asked.thread)?;
                self.accesses(asked.thread, &its, Some(asked.place));
            }
        }
        let back = self.now + self.about(self.costs.each_way);
        self.at(back, actor, Event::Answered(place));
        Ok(())
    }

    fn answers(&mut self, actor: usize, step: &Step, place: Option<Place>) {
        if let (Whose::Queue(file, ..), Some(place)) = (&step.whose, place) {
            self.files[*file].sequence.answered(place);
        }
        self.counted += u64::from(step.counts);
        let next = self.now + self.about(self.costs.call);
        self.at[actor] = (self.at[actor] + 1) % self.actors[actor].steps.len();
        self.at(next, actor, Event::Begins);
        if self.at[actor] == 0 {
            self.rounds[actor] += 1;
            let own = &self.actors[actor];
            let others = [own.behind, own.followed.map(|(other, _)| other)];
            for other in others.into_iter().flatten() {
                if std::mem::take(&mut self.waits[other]) {
                    self.at(self.now, other, Event::Begins);
                }
            }
        }
    }
}

/// What these bytes take what passes 4 KiB in this time.
fn intervals(bytes: u64, interval: u64) -> u64 {
    bytes * interval / BLOCK
}

/// When the one that is free first has worked for this long.
fn soonest(all: &mut [u64], now: u64, nanos: u64) -> u64 {
    let Some(free) = all.iter_mut().min() else { return now };
    *free = (*free).max(now) + nanos;
    *free
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
