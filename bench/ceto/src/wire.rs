//! Bytes that cross the connections of programs, counted by the size of each message as it is
//! encoded, with its blocks, whether these crossed or lay in shared memory.

use siftfs_base::{BLOCK_BYTES, Result};
use siftfs_codec::{Encoded, Message};
use siftfs_transport::{Awaited, Connection, Crossed, Received, Receiver, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of all messages that were counted in this process.
static CROSSED: AtomicU64 = AtomicU64::new(0);

/// Bytes that have crossed so far, both ways together.
pub fn crossed() -> u64 {
    CROSSED.load(Ordering::Relaxed)
}

/// Bytes of a message. One that cannot be encoded is not sent, and counts nothing.
fn size(message: &impl Message) -> u64 {
    let bytes =
        |Encoded { head, blocks }: Encoded| head.len() as u64 + blocks.len() as u64 * BLOCK_BYTES;
    message.encode().map_or(0, bytes)
}

fn count(message: &impl Message) {
    CROSSED.fetch_add(size(message), Ordering::Relaxed);
}

struct Sends<M>(Arc<dyn Sender<M>>);
struct Receives<M>(Box<dyn Receiver<M>>);

impl<M: Message> Sender<M> for Sends<M> {
    fn send(&self, message: M) -> Result<()> {
        count(&message);
        self.0.send(message)
    }
    fn try_send(&self, message: M) -> bool {
        let bytes = size(&message);
        let left = self.0.try_send(message);
        CROSSED.fetch_add(if left { bytes } else { 0 }, Ordering::Relaxed);
        left
    }
    fn post(&self, message: M) -> Result<usize> {
        count(&message);
        self.0.post(message)
    }
    fn push(&self) -> Result<usize> {
        self.0.push()
    }
    fn close(&self) {
        self.0.close();
    }
    fn cut(&self) {
        self.0.cut();
    }
    fn crossed(&self) -> Crossed {
        self.0.crossed()
    }
}

impl<M: Message> Receiver<M> for Receives<M> {
    fn recv(&mut self, timeout: Option<Duration>) -> Result<Received<M>> {
        let received = self.0.recv(timeout);
        if let Ok(Received::Message(message)) = &received {
            count(message);
        }
        received
    }
    fn attend(&mut self) -> Result<Option<Awaited>> {
        self.0.attend()
    }
    fn arm(&mut self) -> Result<bool> {
        self.0.arm()
    }
    fn woken(&mut self) -> Result<()> {
        self.0.woken()
    }
    fn tend(&mut self) {
        self.0.tend();
    }
}

/// The same connection, whose messages are counted both ways if `counts` says so. Counting encodes
/// each message once more, so it is nothing for a run that is timed.
pub fn counted<Out: Message, In: Message>(
    end: Connection<Out, In>,
    counts: bool,
) -> Connection<Out, In> {
    if !counts {
        return end;
    }
    let Connection { sender, receiver, peer, process, shares_memory, key } = end;
    let (sender, receiver) = (Arc::new(Sends(sender)), Box::new(Receives(receiver)));
    Connection { sender, receiver, peer, process, shares_memory, key }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
