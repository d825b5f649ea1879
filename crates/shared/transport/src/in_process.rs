//! The in-process transport: two bounded queues. Messages are moved, nothing is encoded.

use crate::{CallerEnd, Connection, Received, Receiver, Sender, ServerEnd, TransportOptions};
use siftfs_base::{Error, Result};
use siftfs_codec::{Party, Protocol};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A connected pair within this process.
///
/// An end that is dropped without [`Sender::close`] counts as one that died: the other's
/// receiver answers an error, not [`Received::Closed`].
///
/// # Panics
/// If `options.queue` is 0.
pub fn in_process<P: Protocol>(options: TransportOptions) -> (CallerEnd<P>, ServerEnd<P>) {
    assert!(options.queue > 0, "a queue holds at least one message");
    let (to_server, at_server) = direction(P::SERVER, options.queue);
    let (from_server, at_caller) = direction(P::CALLER, options.queue);
    let caller = Connection {
        sender: Arc::new(to_server),
        receiver: Box::new(at_caller),
        peer: name(P::SERVER),
        process: None,
        shares_memory: false,
        key: None,
    };
    let server = Connection {
        sender: Arc::new(from_server),
        receiver: Box::new(at_server),
        peer: name(P::CALLER),
        process: None,
        shares_memory: false,
        key: None,
    };
    (caller, server)
}

fn name(party: Party) -> String {
    format!("the {} in this process", party.name)
}

fn direction<M>(to: Party, queue: usize) -> (QueueSender<M>, QueueReceiver<M>) {
    let (sender, receiver) = sync_channel(queue);
    let (closed, to) = (Arc::new(AtomicBool::new(false)), name(to));
    let sender =
        QueueSender { queue: Mutex::new(Some(sender)), closed: closed.clone(), to: to.clone() };
    (sender, QueueReceiver { queue: receiver, closed, to })
}

struct QueueSender<M> {
    queue: Mutex<Option<SyncSender<M>>>,
    /// Set before the queue is given up in order.
    closed: Arc<AtomicBool>,
    to: String,
}

impl<M: Send> Sender<M> for QueueSender<M> {
    fn send(&self, message: M) -> Result<()> {
        // Not sent under the lock: a full queue blocks.
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let queue = queue.ok_or_else(|| Error::Link("this side has closed".into()))?;
        queue.send(message).map_err(|_| Error::Link(format!("{} has stopped", self.to)))
    }

    fn try_send(&self, message: M) -> bool {
        let queue = self.queue.try_lock().ok().and_then(|queue| queue.clone());
        queue.is_some_and(|queue| queue.try_send(message).is_ok())
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

struct QueueReceiver<M> {
    queue: mpsc::Receiver<M>,
    closed: Arc<AtomicBool>,
    /// Whose receiver this is; the peer is the other one.
    to: String,
}

impl<M: Send> Receiver<M> for QueueReceiver<M> {
    fn recv(&mut self, timeout: Option<Duration>) -> Result<Received<M>> {
        let found = match timeout {
            Some(timeout) => self.queue.recv_timeout(timeout),
            None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match found {
            Ok(message) => Ok(Received::Message(message)),
            Err(RecvTimeoutError::Timeout) => Ok(Received::Timeout),
            // The queue is given up after the flag is set, so this order sees it.
            Err(RecvTimeoutError::Disconnected) if self.closed.load(Ordering::Acquire) => {
                Ok(Received::Closed)
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::Link(format!("the peer of {} ended without closing", self.to)))
            }
        }
    }
}

#[cfg(test)]
#[path = "in_process_tests.rs"]
mod tests;
