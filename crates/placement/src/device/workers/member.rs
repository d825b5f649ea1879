//! A connection, as its worker has it.

use crate::device::calls::{DeviceEnd, Refusals};
use crate::device::programs::{Attached, Attaching, Line, Opening, Request, Within};
use crate::device::workers::Mailbox;
use siftfs_base::{Error, Result, corrupt};
use siftfs_transport::{Awaited, Received};
use siftfs_wire::{FromService, PROTOCOL_VERSION, StorageAnswer, StorageCall, ToService};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Accesses under way.
const MOST_OF_ONE: usize = 16;
/// Messages of one turn.
const TURN: usize = 16;
/// Requests that may begin, with which nothing more is taken.
const MOST_READY: usize = 64;
/// Kept bytes with which nothing more is taken.
const PAUSES_AT: usize = 1 << 20;
/// Kept bytes with which it is ended.
const MOST_KEPT: usize = 16 << 20;
/// How long nothing of what is kept may leave.
const TERM: Duration = Duration::from_secs(10);

/// A connection that a worker is to have.
pub(crate) struct Newcomer {
    pub end: DeviceEnd,
    /// Its first call, if that has come.
    pub first: Option<(u64, StorageCall)>,
    /// When it has to have come.
    pub until: Instant,
    /// What a worker calls it.
    pub number: u64,
    pub attached: Attached,
    pub refused: Refusals,
}

/// Why a connection ends.
pub(super) enum Ends {
    /// In order: what is on its way arrives.
    Closed,
    /// It is broken, or breaks the protocol.
    Broke(Error),
}

/// One connection.
pub(super) struct Member {
    pub end: DeviceEnd,
    pub awaited: Awaited,
    pub line: Arc<Line>,
    attached: Attached,
    /// When a grant has to be named; `None` when one was.
    first: Option<Instant>,
    /// Requests whose turn it is.
    pub ready: VecDeque<Request>,
    /// Those for a helper, inside their grants.
    pub slow: VecDeque<(Request, Within)>,
    /// Those that a helper has, and all that have begun.
    pub helped: usize,
    pub under_way: usize,
    /// Queues that are opened, with the calls that ask for them.
    openings: Vec<(u64, Opening)>,
    /// It is not asked before its descriptors say something.
    pub armed: bool,
    /// Its socket is to tell of room.
    pub wants_room: bool,
    kept: usize,
    kept_since: Instant,
    /// Its first call was refused: it is not served.
    refused: bool,
}

impl Member {
    /// The worker has it from now on.
    ///
    /// # Errors
    /// It cannot be waited for together with others.
    pub fn new(newcomer: Newcomer, mailbox: &Arc<Mailbox>) -> Result<Self> {
        let Newcomer { mut end, first, until, number, attached, refused } = newcomer;
        let awaited = end.receiver.attend()?.ok_or_else(|| {
            Error::Refused(format!("{}: it cannot be waited for with others", end.peer))
        })?;
        let (sender, mailbox) = (end.sender.clone(), mailbox.clone());
        let line = Arc::new(Line { sender, refused, mailbox, number });
        let mut member = Self {
            end,
            awaited,
            line,
            attached,
            first: Some(until),
            ready: VecDeque::new(),
            slow: VecDeque::new(),
            helped: 0,
            under_way: 0,
            openings: Vec::new(),
            armed: false,
            wants_room: false,
            kept: 0,
            kept_since: Instant::now(),
            refused: false,
        };
        if let Some((id, call)) = first {
            member.first_call(id, &call);
        }
        Ok(member)
    }

    /// Is it not asked, because too much of it is there?
    pub fn pauses(&self) -> bool {
        self.kept >= PAUSES_AT || self.ready.len() >= MOST_READY
    }

    /// Has it as much under way as it may?
    pub fn is_full(&self) -> bool {
        self.under_way >= MOST_OF_ONE
    }

    /// The next request that may begin, if the worker is not `full`; one that is over always may.
    pub fn next_ready(&mut self, full: bool) -> Option<Request> {
        let able = |request: &Request| request.over || !(full || self.is_full());
        self.ready.front().is_some_and(able).then(|| self.ready.pop_front())?
    }

    /// Has it answers that did not fit?
    pub fn keeps(&self) -> bool {
        self.kept > 0
    }

    pub fn has_openings(&self) -> bool {
        !self.openings.is_empty()
    }

    /// Takes what is there, a turn of it at most; whether anything was.
    pub fn receive(&mut self) -> std::result::Result<bool, Ends> {
        let mut came = false;
        for _ in 0..TURN {
            if self.refused {
                return Err(Ends::Closed);
            }
            if self.pauses() {
                break;
            }
            match self.end.receiver.recv(Some(Duration::ZERO)) {
                Ok(Received::Message(message)) => self.take(message)?,
                Ok(Received::Timeout) => break,
                Ok(Received::Closed) => return Err(Ends::Closed),
                Err(error) => return Err(Ends::Broke(error)),
            }
            came = true;
        }
        Ok(came)
    }

    fn take(&mut self, message: ToService) -> std::result::Result<(), Ends> {
        match message {
            ToService::Storage { id, call: call @ StorageCall::Attach { .. } } => {
                match self.first {
                    Some(_) => self.first_call(id, &call),
                    None => self.attach(id, &call),
                }
                Ok(())
            }
            _ if self.first.is_some() => {
                let reason = "here are programs served that a host has granted something";
                (self.line.refused)(&Error::Refused(reason.into()));
                // One that has gone does not need to know.
                let _ = self.end.sender.post(FromService::Refused { reason: reason.into() });
                Err(Ends::Closed)
            }
            ToService::Queued { id, place, call } => {
                self.ready.extend(self.attached.arrive((id, place, call), &self.line));
                Ok(())
            }
            ToService::Storage { id, .. } => {
                let what = "a call that is no program's";
                self.line.answer(id, Err(Error::Refused(what.into())));
                Ok(())
            }
            _ => {
                let what = "a message that is no call on the storage";
                Err(Ends::Broke(corrupt("message of the block protocol", what)))
            }
        }
    }

    fn first_call(&mut self, id: u64, call: &StorageCall) {
        match call {
            StorageCall::Attach { version, .. } if *version != PROTOCOL_VERSION => {
                let what = format!(
                    "the program speaks version {version} of the block protocol, this device \
                     process version {PROTOCOL_VERSION}: use the same siftfs on both sides"
                );
                self.refused = true;
                self.line.answer(id, Err(Error::Refused(what)));
            }
            call => self.attach(id, call),
        }
    }

    fn attach(&mut self, id: u64, call: &StorageCall) {
        if let StorageCall::Attach { token, queue, life, .. } = call {
            let attaching = self.attached.attach(token, *queue, *life);
            self.goes_on(id, attaching);
        }
    }

    fn goes_on(&mut self, id: u64, attaching: Attaching) {
        match attaching {
            Attaching::Waits(opening) => self.openings.push((id, opening)),
            Attaching::Done(answer) => {
                let attached = matches!(answer, Ok(StorageAnswer::Attached { .. }));
                if attached {
                    self.first = None;
                }
                self.refused = self.first.is_some();
                self.line.answer(id, answer);
            }
        }
    }

    /// Looks at queues that are opened.
    pub fn look_at_openings(&mut self) {
        for (id, opening) in std::mem::take(&mut self.openings) {
            let attaching = self.attached.look_at(opening);
            self.goes_on(id, attaching);
        }
    }

    /// So much is kept.
    pub fn set_kept(&mut self, kept: usize) -> std::result::Result<(), Ends> {
        if self.kept == 0 || kept < self.kept {
            self.kept_since = Instant::now();
        }
        self.kept = kept;
        if kept <= MOST_KEPT && (kept == 0 || self.kept_since.elapsed() < TERM) {
            return Ok(());
        }
        let peer = &self.end.peer;
        Err(Ends::Broke(Error::Link(format!("{peer} takes no answers, {kept} bytes wait"))))
    }

    /// Sends on what is kept.
    pub fn push(&mut self) -> std::result::Result<(), Ends> {
        let kept = self.end.sender.push().map_err(Ends::Broke)?;
        self.set_kept(kept)
    }

    /// Done again and again: says that this side is there, and looks whether it is to end.
    pub fn tend(&mut self) -> std::result::Result<(), Ends> {
        self.end.receiver.tend();
        if self.first.is_some_and(|until| self.openings.is_empty() && Instant::now() >= until) {
            return Err(Ends::Closed);
        }
        match self.first.is_none() && self.attached.is_over() {
            true => Err(Ends::Closed),
            false => Ok(()),
        }
    }

    /// The connection has ended. What has not begun is not done.
    pub fn end(mut self, ends: &Ends) {
        self.attached.end();
        for (request, within) in self.slow.drain(..) {
            request.has_ended();
            drop(within);
        }
        self.ready.drain(..).for_each(Request::abandon);
        match ends {
            Ends::Closed if self.kept == 0 => self.end.sender.close(),
            _ => self.end.sender.cut(),
        }
    }
}

#[cfg(test)]
#[path = "member_tests.rs"]
mod tests;
