//! What a server says, and who receives it: a caller that waits for its answer, or, where no caller
//! does, the session's own thread ("Threads" in `docs/design/network.md`).

use super::slots::{Entry, Noted, Said};
use super::{Caching, Link};
use crate::desk::Held;
use siftfs_base::{Error, Result, corrupt};
use siftfs_calls::{Done, FromServer, Proof, ToServer, Told};
use siftfs_proto::{Notice, Owed, Reply};
use siftfs_transport::{Received, Receiver};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Calls whose answers come within this time follow each other: the session's own thread leaves
/// the receiver to the next caller.
const SHORTLY: Duration = Duration::from_millis(2);
/// Notices that a server may have open. All its other sessions together do not wait for more.
const MOST_NOTICES: usize = 1 << 18;

fn said(result: Result<Box<Reply>>, done: Option<Done>, proofs: Option<Vec<Proof>>) -> Said {
    (result.map(|reply| *reply), Noted { done, proofs: proofs.unwrap_or_default() })
}

/// What the thread has that receives.
pub(super) struct Incoming {
    receiver: Box<dyn Receiver<FromServer>>,
    /// Why nothing comes any more. The session's own thread ends the session then.
    ended: Option<Error>,
    /// When an answer came last.
    answered: Option<Instant>,
}

/// What came of a message.
enum Came {
    /// The answer of a call.
    Answer,
    Other,
    End,
}

impl Incoming {
    pub fn new(receiver: Box<dyn Receiver<FromServer>>) -> Self {
        Self { receiver, ended: None, answered: None }
    }

    /// Notes that an answer came; whether one had come shortly before.
    fn note_answer(&mut self) -> bool {
        let now = Instant::now();
        let before = self.answered.replace(now);
        before.is_some_and(|before| now.duration_since(before) < SHORTLY)
    }
}

impl Link {
    /// The session's own thread: receives while no caller does, until the connection ends. Then
    /// nothing can be called any more.
    pub fn attend(&self) {
        let error = loop {
            let mut incoming = self.desk.attend();
            let error = loop {
                // It stays there, for callers that come later.
                if let Some(error) = &incoming.ended {
                    break Some(error.clone());
                }
                let answer = matches!(self.next(&mut incoming), Came::Answer);
                // Where the next call comes soon, its caller is to receive.
                if answer && incoming.note_answer() && !self.is_due() && !self.slots.are_awaited() {
                    break None;
                }
            };
            match error {
                Some(error) => break error,
                None => self.lay_down(incoming),
            }
        };
        // Before any call fails: the caller may give the session up then, and what the kernel knows
        // counts no more all the same.
        let leaves = self.leaving.load(Ordering::SeqCst);
        self.slots.broke(&error);
        self.sender.close();
        self.over(leaves);
        if let Some(watch) = &self.watch {
            watch.lost(&error);
        }
    }

    /// Waits for the answer of the call in `slot`, and receives meanwhile if no other thread does.
    pub fn answer_of(&self, entry: &Entry<'_>, slot: u32) -> Said {
        entry.wait(slot, || self.receive_for(slot))
    }

    /// Receives until the answer of the call in `slot` is there, if no other thread receives. Such
    /// a thread may have received it after its caller had looked for it: so that is looked for
    /// before each message, with the receiver taken.
    fn receive_for(&self, slot: u32) {
        let Some(mut incoming) = self.desk.try_take(|it| it.ended.is_none()) else { return };
        while !self.slots.has_answer(slot) {
            match self.next(&mut incoming) {
                Came::Answer => {
                    incoming.note_answer();
                }
                Came::Other => {}
                Came::End => return,
            }
        }
        self.lay_down(incoming);
    }

    /// Lays the receiver down: the next caller that waits is to take it. The session's own thread
    /// takes it if none does, at once if something is due.
    fn lay_down(&self, incoming: Held<'_, Incoming>) {
        incoming.lay_down();
        if !self.slots.call_one() && self.is_due() {
            self.desk.call();
        }
    }

    /// Will something come that no caller waits for?
    fn is_due(&self) -> bool {
        self.slots.have_long_ones() || self.cache.as_ref().is_some_and(|it| it.owing.any())
    }

    /// Receives a message, and does what it says.
    fn next(&self, incoming: &mut Incoming) -> Came {
        let error = match incoming.receiver.recv(None) {
            Ok(Received::Message(message)) => {
                let came = match &message {
                    FromServer::Answer { .. } | FromServer::Owing { .. } => Came::Answer,
                    _ => Came::Other,
                };
                match self.take(message) {
                    Ok(()) => return came,
                    Err(error) => error,
                }
            }
            Ok(Received::Timeout) => return Came::Other,
            Ok(Received::Closed) => Error::Link(format!("{} has closed the connection", self.peer)),
            Err(error) => error,
        };
        incoming.ended = Some(error);
        Came::End
    }

    /// Nothing more is told: what the cache has counts no more.
    fn over(&self, leaves: bool) {
        if !leaves {
            self.holder.iter().for_each(|holder| holder.lost());
        }
        let Some(caching) = &self.cache else { return };
        if leaves {
            return caching.owing.end();
        }
        caching.cache.shares(true);
        caching.owing.lost();
        let (cache, looked_up) = (caching.cache.clone(), caching.looked_up.clone());
        caching.notices.give(move || {
            cache.doubts(looked_up.generations());
            cache.lost(looked_up.all());
        });
    }

    fn take(&self, message: FromServer) -> Result<()> {
        let broke = |why: &str| Err(corrupt(format!("message from {}", self.peer), why));
        match message {
            FromServer::Answer { slot, number, result, done, proofs } => {
                match self.slots.answer(slot, number, said(result, done, proofs)) {
                    true => Ok(()),
                    false => broke("it answers a call that is not under way"),
                }
            }
            FromServer::Owing { slot, number, result, done, proofs } => {
                let Some(caching) = &self.cache else {
                    return broke("it answers a session that does not cache before it is done");
                };
                caching.owing.owes((slot, number));
                match self.slots.answer(slot, number, said(result, done, proofs)) {
                    true => Ok(()),
                    false => broke("it answers a call that is not under way"),
                }
            }
            FromServer::Settled { slot, number } => {
                let settled = |caching: &Caching| caching.owing.settled((slot, number));
                match self.cache.as_ref().is_some_and(settled) {
                    true => Ok(()),
                    false => broke("it settles a call that owes nothing"),
                }
            }
            FromServer::Notice { notice, all, told } => self.notice(notice, all, told),
            FromServer::Shares { others } => {
                self.cache.iter().for_each(|caching| caching.cache.shares(others));
                Ok(())
            }
            FromServer::Recall { lease } => match &self.holder {
                Some(holder) => {
                    holder.recall(lease);
                    Ok(())
                }
                None => broke("it recalls a lease of a session that has none"),
            },
            FromServer::Ended { reason, all_answered } => {
                self.all_answered.store(all_answered, Ordering::SeqCst);
                Err(Error::Link(format!("{} has ended the session: {reason}", self.peer)))
            }
            FromServer::Durable { order } => match &self.watch {
                Some(watch) => {
                    watch.durable(order);
                    Ok(())
                }
                None => broke("it tells a client that keeps nothing what is durable"),
            },
            FromServer::Pong { number } => match &self.watch {
                Some(watch) => {
                    watch.answered(number);
                    Ok(())
                }
                None => broke("it answers a question that was not asked"),
            },
            FromServer::Opened { .. } | FromServer::Refused { .. } => {
                broke("it opens a second session")
            }
        }
    }

    /// Has the session's cache take something back, and says so when it has.
    fn notice(&self, number: u64, all: bool, told: Told) -> Result<()> {
        let broke = |why: &str| Err(corrupt(format!("message from {}", self.peer), why));
        let Some(caching) = &self.cache else {
            return broke("it tells a session that does not cache");
        };
        if caching.open.fetch_add(1, Ordering::SeqCst) >= MOST_NOTICES {
            return broke("it tells more than it waits for");
        }
        let (cache, looked_up) = (caching.cache.clone(), caching.looked_up.clone());
        looked_up.notice(&told.attributes);
        let (sender, open) = (self.sender.clone(), caching.open.clone());
        caching.notices.give(move || {
            let mut owed = Owed::default();
            let mut notice = Notice::new(&mut owed);
            let attributes = told.attributes.clone();
            notice.attributes = told.attributes;
            notice.sizes = told.sizes;
            let data = told.data.into_iter();
            notice.data = data.map(|(ino, (start, end))| (ino, start, end)).collect();
            notice.names = told.names;
            match all {
                true => cache.forget_all(notice),
                false => cache.take_back(notice),
            }
            owed.then(Box::new(move || {
                looked_up.taken(&attributes);
                open.fetch_sub(1, Ordering::SeqCst);
                // A connection that is gone says so to its callers.
                let _ = sender.send(ToServer::Taken { notice: number });
            }));
        });
        Ok(())
    }
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
