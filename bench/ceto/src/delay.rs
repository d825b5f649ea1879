//! A network that is not there: every message takes a settable time each way. It is injected where
//! a server of the bench receives. So both ways of a call are waited for before the call is taken,
//! and none behind its answer: a caller sees the same time, and no worker of the server waits.

use crate::wait::Waiting;
use siftfs_base::{Error, Result};
use siftfs_transport::{Awaited, Connection, Received, Receiver};
use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

/// Receives messages when they are due. While one is waited for, others that come get their times.
struct Late<M> {
    inner: Box<dyn Receiver<M>>,
    delay: Duration,
    /// What has come, with when it is due.
    came: VecDeque<(Instant, M)>,
    /// Nothing comes any more: it was closed, or this has happened.
    over: Option<Option<Error>>,
}

/// The same connection, of which every message takes this long each way.
pub fn delayed<Out, In: Send + 'static>(
    end: Connection<Out, In>,
    each_way: Duration,
) -> Connection<Out, In> {
    if each_way.is_zero() {
        return end;
    }
    let Connection { sender, receiver: inner, peer, process, shares_memory, key } = end;
    let late = Late { inner, delay: 2 * each_way, came: VecDeque::new(), over: None };
    Connection { sender, receiver: Box::new(late), peer, process, shares_memory, key }
}

impl<M> Late<M> {
    /// Takes what comes within this time. False: nothing did.
    fn take(&mut self, timeout: Option<Duration>) -> bool {
        if self.over.is_some() {
            return false;
        }
        match self.inner.recv(timeout) {
            Ok(Received::Message(message)) => {
                self.came.push_back((Instant::now() + self.delay, message));
            }
            Ok(Received::Timeout) => return false,
            Ok(Received::Closed) => self.over = Some(None),
            Err(error) => self.over = Some(Some(error)),
        }
        true
    }

    /// Waits for what has come first. False: the time is up before.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        let _waiting = Waiting::begin();
        while let Some((due, _)) = self.came.front() {
            let now = Instant::now();
            if *due <= now {
                return true;
            }
            if until.is_some_and(|until| until <= now) {
                return false;
            }
            if !self.take(Some(Duration::ZERO)) {
                thread::yield_now();
            }
        }
        false
    }
}

impl<M: Send> Receiver<M> for Late<M> {
    fn recv(&mut self, timeout: Option<Duration>) -> Result<Received<M>> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        // One who does not wait asks again and again: what has come gets its time now.
        while timeout == Some(Duration::ZERO) && self.take(timeout) {}
        while self.came.is_empty() {
            match &self.over {
                Some(None) => return Ok(Received::Closed),
                Some(Some(error)) => return Err(error.clone()),
                None => {}
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !self.take(left) {
                return Ok(Received::Timeout);
            }
        }
        let due = self.wait(until).then(|| self.came.pop_front()).flatten();
        Ok(due.map_or(Received::Timeout, |(_, message)| Received::Message(message)))
    }

    fn attend(&mut self) -> Result<Option<Awaited>> {
        self.inner.attend()
    }

    /// What has come is asked for until it is due.
    fn arm(&mut self) -> Result<bool> {
        if self.came.is_empty() && self.over.is_none() { self.inner.arm() } else { Ok(false) }
    }

    fn woken(&mut self) -> Result<()> {
        self.inner.woken()
    }

    fn tend(&mut self) {
        self.inner.tend();
    }
}

#[cfg(test)]
#[path = "delay_tests.rs"]
mod tests;
