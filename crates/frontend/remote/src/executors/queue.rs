//! Which command of which session is started next ("`fcfs`" and "`fair`" in
//! `docs/design/command-queues.md`). There are no threads here, and the time is an argument.

use super::line::{Line, Ticket};
use super::touches::Touches;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// By how much processor time a session's account grows in a round.
pub(super) const QUANTUM: Duration = Duration::from_micros(100);
/// The most on an account, in nanoseconds. A session that waits has a quantum at most when rounds
/// end; one that has used less meanwhile comes before it.
const MOST: i64 = 2 * QUANTUM.as_nanos() as i64;
/// A command that has been at work for this long makes its session a long one.
pub(super) const LONG: Duration = Duration::from_millis(1);
/// For how many times as long as the command took ...
const LONG_TIMES: u32 = 100;
/// ... and not longer.
const LONG_MOST: Duration = Duration::from_secs(10);

/// In which order commands are started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// In the order of their arrival over all sessions, as CompoundFS does.
    Fcfs,
    /// Each session has the same share of processor time.
    #[default]
    Fair,
}

/// A session's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SessionNr(u64);

#[derive(Default)]
struct Session {
    line: Line,
    /// Processor time that it may have, in nanoseconds; below zero what it owes.
    account: i64,
    long_until: Duration,
    idle_since: Duration,
    closed: bool,
}

impl Session {
    /// What is on the account, with what is at work just now.
    fn credit(&self, now: Duration) -> i64 {
        self.account.saturating_sub(nanos(self.line.ongoing(now)))
    }

    fn is_long(&self, now: Duration) -> bool {
        now < self.long_until || self.line.longest(now) >= LONG
    }

    fn is_idle(&self) -> bool {
        !self.line.waits() && self.line.started().is_empty()
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Rounds after which an account with this much is above zero.
fn rounds(credit: i64) -> i64 {
    if credit > 0 { 0 } else { credit.unsigned_abs() as i64 / nanos(QUANTUM) + 1 }
}

/// The queue of all sessions.
pub(super) struct Queue {
    schedule: Schedule,
    executors: usize,
    /// Commands that have an executor and do not lend it.
    at_work: usize,
    sessions: BTreeMap<SessionNr, Session>,
    /// Those with a command that waits, in the order of their turns.
    turns: VecDeque<SessionNr>,
    next_ticket: u64,
    next_session: u64,
}

impl Queue {
    pub fn new(schedule: Schedule, executors: usize) -> Self {
        Self {
            schedule,
            executors,
            at_work: 0,
            sessions: BTreeMap::new(),
            turns: VecDeque::new(),
            next_ticket: 0,
            next_session: 0,
        }
    }

    /// A session begins.
    pub fn open(&mut self) -> SessionNr {
        let number = SessionNr(self.next_session);
        self.next_session += 1;
        self.sessions.insert(number, Session::default());
        number
    }

    /// A session ends: which of its commands will not start.
    pub fn close(&mut self, number: SessionNr) -> Vec<Ticket> {
        let Some(session) = self.sessions.get_mut(&number) else { return Vec::new() };
        session.closed = true;
        let cancelled = session.line.cancel_all();
        self.turns.retain(|turn| *turn != number);
        self.forget(number);
        cancelled
    }

    fn forget(&mut self, number: SessionNr) {
        if self.sessions.get(&number).is_some_and(|session| session.closed && session.is_idle()) {
            self.sessions.remove(&number);
        }
    }

    /// A command arrives; none if its session has ended.
    pub fn arrive(
        &mut self,
        number: SessionNr,
        (touches, brief): (Touches, bool),
        now: Duration,
    ) -> Option<Ticket> {
        let session = self.sessions.get_mut(&number).filter(|session| !session.closed)?;
        if session.is_idle() && session.account < 0 {
            let idle = nanos(now.saturating_sub(session.idle_since));
            session.account = session.account.saturating_add(idle).min(0);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        if !session.line.waits() {
            self.turns.push_back(number);
        }
        session.line.arrive(ticket, touches, brief);
        Some(ticket)
    }

    /// Starts the next command, if there is an executor for one that may start.
    pub fn start(&mut self, now: Duration) -> Option<Ticket> {
        if self.at_work >= self.executors {
            return None;
        }
        let (number, brief) = match self.schedule {
            Schedule::Fcfs => (self.first()?, false),
            Schedule::Fair => self.turn(now)?,
        };
        let session = self.sessions.get_mut(&number)?;
        let ticket = session.line.start(brief, now)?;
        if !session.line.waits() {
            self.turns.retain(|turn| *turn != number);
        }
        self.at_work += 1;
        Some(ticket)
    }

    /// The session whose command came first.
    fn first(&self) -> Option<SessionNr> {
        let ready =
            |number: &SessionNr| Some((self.sessions.get(number)?.line.ready(false)?, *number));
        self.turns.iter().filter_map(ready).min().map(|(_, number)| number)
    }

    /// The session with the most on its account, and whether a brief command of it is to be
    /// started.
    fn turn(&mut self, now: Duration) -> Option<(SessionNr, bool)> {
        let last = self.is_last();
        let brief = |session: &Session| last && session.is_long(now);
        let ready = |number: &SessionNr| {
            let session = self.sessions.get(number)?;
            session.line.ready(brief(session))?;
            Some((*number, session.credit(now)))
        };
        let ready: Vec<_> = self.turns.iter().filter_map(ready).collect();
        let least = ready.iter().map(|(_, credit)| rounds(*credit)).min()?;
        // Of several with the most, the one that waits for its turn for longest.
        let (chosen, _) = *ready.iter().rev().max_by_key(|(_, credit)| *credit)?;
        let brief = brief(self.sessions.get(&chosen)?);
        if least > 0 {
            let more = least.saturating_mul(nanos(QUANTUM));
            for session in self.sessions.values_mut() {
                session.account = session.account.saturating_add(more).min(MOST);
            }
        }
        let at = self.turns.iter().position(|turn| *turn == chosen)?;
        let turn = self.turns.remove(at)?;
        self.turns.push_back(turn);
        Some((chosen, brief))
    }

    /// Is the executor that would be taken now the one that is kept for brief commands, and for
    /// sessions that are not long?
    fn is_last(&self) -> bool {
        let open = self.sessions.values().filter(|session| !session.closed).count();
        self.executors >= 2 && open > 1 && self.at_work + 1 >= self.executors
    }

    /// A command has ended, after this much processor time; one that had not started will not.
    pub fn end(&mut self, number: SessionNr, ticket: Ticket, now: Duration, used: Duration) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        match session.line.end(ticket) {
            Some(ended) => {
                self.at_work -= usize::from(!ended.lent);
                if used >= LONG {
                    let until = now.saturating_add(used.saturating_mul(LONG_TIMES).min(LONG_MOST));
                    session.long_until = session.long_until.max(until);
                }
            }
            None => {
                session.line.cancel(ticket);
                if !session.line.waits() {
                    self.turns.retain(|turn| *turn != number);
                }
            }
        }
        session.idle_since = now;
        self.charge(number, used);
        self.forget(number);
    }

    /// A session's thread has worked for it beside its commands.
    pub fn charge(&mut self, number: SessionNr, used: Duration) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.account = session.account.saturating_sub(nanos(used));
        }
    }

    /// A command that has started waits for something else than a processor, or works again.
    /// False if that was known.
    pub fn lend(&mut self, number: SessionNr, ticket: Ticket, lent: bool) -> bool {
        let session = self.sessions.get_mut(&number);
        if !session.is_some_and(|session| session.line.lend(ticket, lent)) {
            return false;
        }
        match lent {
            true => self.at_work -= 1,
            false => self.at_work += 1,
        }
        true
    }

    /// Does a command wait?
    pub fn waits(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Every command that has started, and whether it lends.
    pub fn started(&self) -> impl Iterator<Item = (SessionNr, Ticket, bool)> + '_ {
        self.sessions.iter().flat_map(|(number, session)| {
            session.line.started().iter().map(|one| (*number, one.ticket, one.lent))
        })
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
