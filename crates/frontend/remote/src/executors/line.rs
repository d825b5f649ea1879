//! The commands of one session: those that wait, in the order of their arrival, and those that have
//! started and not ended.

use super::touches::{File, Touches};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A command's number, which counts over all sessions in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Ticket(pub u64);

struct Waiting {
    ticket: Ticket,
    touches: Touches,
    brief: bool,
}

/// A command that has started.
pub(super) struct Started {
    pub ticket: Ticket,
    touches: Touches,
    pub since: Duration,
    /// It waits for something else than a processor, and has no executor meanwhile.
    pub lent: bool,
}

/// The commands of a session.
#[derive(Default)]
pub(super) struct Line {
    waiting: VecDeque<Waiting>,
    started: Vec<Started>,
    /// The first that waits and may start, by its place in `waiting`: of all, and of brief ones.
    ready: [Option<usize>; 2],
}

impl Line {
    pub fn arrive(&mut self, ticket: Ticket, touches: Touches, brief: bool) {
        self.waiting.push_back(Waiting { ticket, touches, brief });
        self.look();
    }

    /// Does any of them wait?
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Those that have started.
    pub fn started(&self) -> &[Started] {
        &self.started
    }

    /// The first that may start by the order within the session, of all or of `brief` ones.
    pub fn ready(&self, brief: bool) -> Option<Ticket> {
        Some(self.waiting.get(self.first(brief)?)?.ticket)
    }

    fn first(&self, brief: bool) -> Option<usize> {
        let [all, of_brief] = self.ready;
        if brief { of_brief } else { all }
    }

    /// Starts the one that is ready.
    pub fn start(&mut self, brief: bool, now: Duration) -> Option<Ticket> {
        let Waiting { ticket, touches, .. } = self.waiting.remove(self.first(brief)?)?;
        self.started.push(Started { ticket, touches, since: now, lent: false });
        self.look();
        Some(ticket)
    }

    /// A command is over; none if it had not started.
    pub fn end(&mut self, ticket: Ticket) -> Option<Started> {
        let at = self.started.iter().position(|one| one.ticket == ticket)?;
        let ended = self.started.swap_remove(at);
        self.look();
        Some(ended)
    }

    /// A command lends its executor, or has taken it back. False if it had done so, or has ended.
    pub fn lend(&mut self, ticket: Ticket, lent: bool) -> bool {
        let found = self.started.iter_mut().find(|one| one.ticket == ticket && one.lent != lent);
        let Some(found) = found else { return false };
        found.lent = lent;
        self.look();
        true
    }

    /// A command that waits will not start.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.waiting.retain(|one| one.ticket != ticket);
        self.look();
    }

    /// None of them that wait will start.
    pub fn cancel_all(&mut self) -> Vec<Ticket> {
        let all = self.waiting.drain(..).map(|one| one.ticket).collect();
        self.look();
        all
    }

    /// How long those that are at work have been, together.
    pub fn ongoing(&self, now: Duration) -> Duration {
        self.at_work(now).sum()
    }

    /// How long the one has been that is at work for longest.
    pub fn longest(&self, now: Duration) -> Duration {
        self.at_work(now).max().unwrap_or_default()
    }

    fn at_work(&self, now: Duration) -> impl Iterator<Item = Duration> + '_ {
        self.started.iter().filter(|one| !one.lent).map(move |one| now.saturating_sub(one.since))
    }

    fn look(&mut self) {
        let mut before = Before::default();
        self.started.iter().filter(|one| !one.lent).for_each(|one| before.add(&one.touches));
        let [mut all, mut of_brief] = [None; 2];
        for (at, one) in self.waiting.iter().enumerate() {
            if before.lets(&one.touches) {
                all = all.or(Some(at));
                if one.brief {
                    of_brief = Some(at);
                    break;
                }
            }
            before.add(&one.touches);
        }
        self.ready = [all, of_brief];
    }
}

/// What commands before one are about.
#[derive(Default)]
struct Before {
    /// Files, and whether one of the commands changes them.
    files: HashMap<File, bool>,
    all: bool,
}

impl Before {
    fn add(&mut self, touches: &Touches) {
        self.all |= *touches == Touches::All;
        for file in touches.files() {
            *self.files.entry(file).or_default() |= touches.changes();
        }
    }

    /// May one start that comes behind them?
    fn lets(&self, touches: &Touches) -> bool {
        let free = |file| match self.files.get(&file) {
            None => true,
            Some(changed) => !changed && !touches.changes(),
        };
        match touches {
            Touches::Nothing => true,
            Touches::All => !self.all && self.files.is_empty(),
            Touches::Reads(_) | Touches::Changes(_) => !self.all && touches.files().all(free),
        }
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
