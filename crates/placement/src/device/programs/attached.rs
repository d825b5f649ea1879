//! A program's connection: its queues, and which request comes to which of them.

use crate::device::programs::grant::Grant;
use crate::device::programs::grants::{Found, TERM, Tokens};
use crate::device::programs::queue::Turn;
use crate::device::programs::request::{Line, Open, Request, Space, dismiss};
use siftfs_base::{Error, Result};
use siftfs_wire::{CONNECTION_MAX_QUEUES, Place, StorageAnswer, StorageCall, Token};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a connection without a grant may be there.
const IDLE: Duration = Duration::from_secs(5);

/// A program's connection, as its worker has it.
pub(crate) struct Attached {
    tokens: Arc<Tokens>,
    queues: HashMap<u32, Open>,
    /// The number of queues at which those are forgotten whose grants have ended.
    clean_at: usize,
    /// Since when it has no grant.
    idle: Option<Instant>,
}

/// A queue that is to be opened, and what that waits for.
pub(crate) struct Opening {
    grant: Arc<Grant>,
    queue: u32,
    life: u64,
    since: Instant,
    /// The grant's end, and not what runs of the life before.
    ends: bool,
}

/// How far a queue is that is opened.
pub(crate) enum Attaching {
    Done(Result<StorageAnswer>),
    Waits(Opening),
}

impl Attached {
    /// A connection without a queue.
    pub fn new(tokens: &Arc<Tokens>) -> Self {
        let (queues, idle) = Default::default();
        Self { tokens: tokens.clone(), queues, clean_at: 64, idle }
    }

    /// Opens a queue, or says that its grant has ended in order. What that waits for is asked
    /// again and again ([`Attached::look_at`]).
    ///
    /// # Errors
    /// `ESTALE`: the grant has ended so, and what was carried out under it is not known any more.
    /// `EAGAIN`: this life has ended, or there are too many queues. Refused: there is no such
    /// grant, or a newer life of its queue.
    pub fn attach(&mut self, token: &Token, queue: u32, life: u64) -> Attaching {
        let grant = match self.tokens.find(token) {
            Ok(Found::Grant(grant)) => grant,
            Ok(Found::Ended(carried)) => return done(Ok(StorageAnswer::Ended { carried })),
            Err(error) => return done(Err(error)),
        };
        let (over, begun) = grant.queue.begin_life(life);
        dismiss(over);
        let opening = Opening { grant, queue, life, since: Instant::now(), ends: false };
        match begun {
            Ok(None) => Attaching::Waits(opening),
            Ok(Some(carried)) => done(self.open(opening, StorageAnswer::Attached { carried })),
            // The grant ends, and that it is durable is known when it has.
            Err(Error::Posix(libc::ESTALE)) => self.look_at(Opening { ends: true, ..opening }),
            Err(error) => done(Err(error)),
        }
    }

    /// How far a queue is that waited.
    pub fn look_at(&mut self, opening: Opening) -> Attaching {
        let Opening { grant, life, since, ends, .. } = &opening;
        if *ends {
            if !grant.is_over() {
                return Attaching::Waits(opening);
            }
            let ended = self.tokens.ended(grant);
            return done(ended.map(|carried| StorageAnswer::Ended { carried }));
        }
        match grant.queue.drained(*life) {
            None if since.elapsed() < TERM => Attaching::Waits(opening),
            None => done(Err(Error::Posix(libc::EAGAIN))),
            Some(Ok(carried)) => done(self.open(opening, StorageAnswer::Attached { carried })),
            Some(Err(Error::Posix(libc::ESTALE))) => {
                self.look_at(Opening { ends: true, ..opening })
            }
            Some(Err(error)) => done(Err(error)),
        }
    }

    fn open(&mut self, opening: Opening, answer: StorageAnswer) -> Result<StorageAnswer> {
        let Opening { grant, queue, life, .. } = opening;
        if self.queues.len() >= self.clean_at {
            self.queues.retain(|_, open| open.grant.lasts());
            self.clean_at = (2 * self.queues.len()).max(64);
        }
        if self.queues.len() >= CONNECTION_MAX_QUEUES {
            return Err(Error::Posix(libc::EAGAIN));
        }
        if grant.begins_life(life, &self.tokens.counts) {
            // Nobody knows what of them has come. No call of this life is there yet.
            grant.abort_all();
        }
        self.queues.insert(queue, Open { grant, life });
        Ok(answer)
    }

    /// The connection has ended, and with it the lives of its queues.
    pub fn end(&mut self) {
        for (_, Open { grant, life }) in self.queues.drain() {
            dismiss(grant.queue.end_life(life));
        }
    }

    /// A request comes: it begins, waits for its turn, or is answered.
    pub fn arrive(
        &mut self,
        (id, place, call): (u64, Place, StorageCall),
        line: &Arc<Line>,
    ) -> Option<Request> {
        let Some(open) = self.queues.get(&place.queue).cloned() else {
            line.answer(id, Err(Error::Refused(format!("no queue {}", place.queue))));
            return None;
        };
        let Open { grant, life } = open.clone();
        let space = Space::of(&call, &self.tokens.waiting);
        let arrived = space.and_then(|_space| {
            let request =
                Request { id, place, call, open, line: line.clone(), over: false, _space };
            grant.queue.arrive(life, request)
        });
        match arrived {
            Ok(Turn::Begins(request)) => {
                self.tokens.counts.came(place, false);
                Some(request)
            }
            Ok(Turn::Waits { first }) => {
                self.tokens.counts.came(place, true);
                if first {
                    self.tokens.watch(&grant);
                }
                None
            }
            Err(error) => {
                line.answer(id, Err(error));
                None
            }
        }
    }

    /// A connection on which nothing is granted takes a place from others.
    pub fn is_over(&mut self) -> bool {
        match self.queues.values().any(|open| open.grant.lasts()) {
            true => self.idle = None,
            false => drop(self.idle.get_or_insert_with(Instant::now)),
        }
        self.idle.is_some_and(|since| since.elapsed() >= IDLE)
    }
}

fn done(answer: Result<StorageAnswer>) -> Attaching {
    Attaching::Done(answer)
}

#[cfg(test)]
#[path = "attached_tests.rs"]
mod tests;
