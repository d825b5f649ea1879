//! The in-process transport: two bounded queues. Messages are moved, nothing is encoded.

use crate::{Connection, DeviceEnd, HostEnd, Received, Receiver, Sender, TransportOptions};
use siftfs_base::{Error, Result};
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
pub fn in_process(options: TransportOptions) -> (HostEnd, DeviceEnd) {
    assert!(options.queue > 0, "a queue holds at least one message");
    let (to_service, at_service) = direction("the Service in this process", options.queue);
    let (from_service, at_runtime) = direction("the Runtime in this process", options.queue);
    let host = Connection {
        sender: Arc::new(to_service),
        receiver: Box::new(at_runtime),
        peer: "the Service in this process".into(),
    };
    let device = Connection {
        sender: Arc::new(from_service),
        receiver: Box::new(at_service),
        peer: "the Runtime in this process".into(),
    };
    (host, device)
}

fn direction<M>(to: &'static str, queue: usize) -> (QueueSender<M>, QueueReceiver<M>) {
    let (sender, receiver) = sync_channel(queue);
    let closed = Arc::new(AtomicBool::new(false));
    let sender = QueueSender { queue: Mutex::new(Some(sender)), closed: closed.clone(), to };
    (sender, QueueReceiver { queue: receiver, closed, to })
}

struct QueueSender<M> {
    queue: Mutex<Option<SyncSender<M>>>,
    /// Set before the queue is given up in order.
    closed: Arc<AtomicBool>,
    to: &'static str,
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
    to: &'static str,
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
