//! Messages to a client from threads that may not wait for it: those that flush for others, and
//! those that make changes it is told of.

use super::tenure::Tenure;
use siftfs_calls::FromServer;
use siftfs_transport::Sender;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What waits for a connection. Answers are bounded by the session's slots, notices by their term.
///
/// Where another process may have taken the volume over, nothing is sent before this one is known
/// to have it still; if it has not, the connection ends without it.
pub(super) struct Outbox {
    sender: Arc<dyn Sender<FromServer>>,
    tenure: Option<Arc<dyn Tenure>>,
    /// The connection was cut: nobody hears anything any more.
    was_cut: AtomicBool,
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<FromServer>,
    /// The newest question whose answer waits. An answer to it counts for all before.
    question: Option<u64>,
    /// One of them is on its way.
    sending: bool,
    over: bool,
}

impl Outbox {
    pub fn new(sender: Arc<dyn Sender<FromServer>>) -> Self {
        Self::under(sender, None)
    }

    /// As [`Outbox::new`], of a server that has its volume for a term at a time.
    pub fn under(sender: Arc<dyn Sender<FromServer>>, tenure: Option<Arc<dyn Tenure>>) -> Self {
        let (was_cut, waiting, more) = Default::default();
        Self { sender, tenure, was_cut, waiting, more }
    }

    /// Would a message that is sent now be held back?
    fn is_held(&self) -> bool {
        self.tenure.as_ref().is_some_and(|tenure| !tenure.counts_now())
    }

    /// Waits until this process is known to have its volume; false if it has not.
    fn may_send(&self) -> bool {
        let over = || self.was_cut.load(Ordering::Acquire);
        self.tenure.as_ref().is_none_or(|tenure| tenure.wait(&over))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends from a thread that may wait for the client. One that is gone gets nothing, which its
    /// receiver says. Nothing overtakes what waits: a client that was told that it is not alone any
    /// more has been told so before it gets an answer that was made after that.
    pub fn send(&self, message: FromServer) {
        if let Some(message) = self.line_up(message) {
            self.transmit(message);
        }
    }

    /// Sends a small message at once, or has it sent.
    pub fn post(&self, message: FromServer) {
        if let Some(message) = self.line_up(message)
            && !self.sender.try_send(message.clone())
        {
            self.queue(message);
        }
    }

    /// Answers a question of the client at once, or before what waits.
    pub fn answer(&self, number: u64) {
        let waits = {
            let waiting = self.lock();
            waiting.sending || !waiting.messages.is_empty() || self.is_held()
        };
        if waits || !self.sender.try_send(FromServer::Pong { number }) {
            self.lock().question = Some(number);
            self.more.notify_one();
        }
    }

    /// Has a message sent behind others that wait, or once it may be; else gives it back.
    fn line_up(&self, message: FromServer) -> Option<FromServer> {
        let mut waiting = self.lock();
        if !waiting.sending && waiting.messages.is_empty() && !self.is_held() {
            return Some(message);
        }
        // What sends these comes back for it, also when the session is over.
        waiting.messages.push_back(message);
        self.more.notify_one();
        None
    }

    /// Sends a connection's first message, also before what waits already. Nothing else is sent
    /// meanwhile.
    pub fn begin(&self, message: FromServer) {
        self.transmit(message);
    }

    fn transmit(&self, message: FromServer) {
        if !self.may_send() {
            return self.cut();
        }
        if let Err(error) = self.sender.send(message) {
            tracing::debug!(%error, "a client gets no answer");
        }
    }

    /// Has all been sent that waited?
    pub fn is_done(&self) -> bool {
        let waiting = self.lock();
        waiting.over && !waiting.sending && waiting.messages.is_empty()
    }

    /// Has it sent.
    pub fn queue(&self, message: FromServer) {
        let mut waiting = self.lock();
        if !waiting.over {
            waiting.messages.push_back(message);
            self.more.notify_one();
        }
    }

    /// Sends what waits until the session is over, and what waits then.
    pub fn run(&self) {
        let mut waiting = self.lock();
        loop {
            let question = waiting.question.take().map(|number| FromServer::Pong { number });
            let Some(message) = question.or_else(|| waiting.messages.pop_front()) else {
                if waiting.over {
                    return;
                }
                waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            waiting.sending = true;
            drop(waiting);
            self.transmit(message);
            waiting = self.lock();
            waiting.sending = false;
        }
    }

    /// Ends the connection, without waiting for the client.
    pub fn cut(&self) {
        self.was_cut.store(true, Ordering::Release);
        self.sender.cut();
    }

    /// The session is over: nothing more is taken.
    pub fn end(&self) {
        let mut waiting = self.lock();
        waiting.over = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
