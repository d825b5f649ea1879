//! Bytes in order over the messages of a queue pair, with credits.
//!
//! A side takes a credit for each message with bytes that it sends; it has [`BUFFERS`] at first.
//! The receiver returns one for each message whose bytes were taken, in the number that a message
//! carries: one with bytes that goes back anyway, or one without as soon as half of all are owed.
//! A message without bytes takes no credit; the receiver has [`CONTROLS`] more buffers than it
//! gives credits for. There are never more of those under way: each returns half of the credits,
//! and all credits together, those of the sender, of messages under way and of messages without
//! bytes, are [`BUFFERS`].

use crate::{BUFFERS, CONTROLS, Done, Queue};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

/// Credits that are owed at most before a message returns them.
const MOST_OWED: u32 = BUFFERS / 2;

/// What has become possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// There may be more to read.
    pub bytes: bool,
    /// There may be more room.
    pub room: bool,
}

/// A message that came, and how much of it was read.
struct Held {
    buffer: u32,
    len: usize,
    read: usize,
}

/// See the module. Both directions of one queue pair.
pub struct Flow<Q> {
    queue: Q,
    /// Outgoing buffers that are not under way.
    free: Vec<u32>,
    /// Messages without bytes that may be sent.
    controls: u32,
    credits: u32,
    owed: u32,
    held: VecDeque<Held>,
    /// Why nothing is sent any more, or received beyond what has come.
    failed: Option<(ErrorKind, String)>,
    /// What the queue pair still does is not looked at.
    over: bool,
}

impl<Q: Queue> Flow<Q> {
    /// Over a queue pair that is connected, with all incoming buffers posted.
    pub fn new(queue: Q) -> Self {
        Self {
            queue,
            free: (0..BUFFERS).rev().collect(),
            controls: CONTROLS,
            credits: BUFFERS,
            owed: 0,
            held: VecDeque::new(),
            failed: None,
            over: false,
        }
    }

    /// The queue pair.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Takes what was done. A failure is kept for [`Flow::read`] and [`Flow::write`]; what came
    /// before it is taken.
    pub fn pump(&mut self) -> Changed {
        let mut changed = Changed::default();
        while !self.over {
            match self.queue.poll().and_then(|done| done.map(|done| self.take(done)).transpose()) {
                Ok(None) => break,
                Ok(Some(now)) => {
                    changed.bytes |= now.bytes;
                    changed.room |= now.room;
                }
                Err(e) => {
                    self.fails(&e);
                    self.over = true;
                }
            }
        }
        match self.failed {
            Some(_) => Changed { bytes: true, room: true },
            None => changed,
        }
    }

    /// Takes the queue pair's events, and then what was done.
    pub fn wake(&mut self) -> Changed {
        if let Err(e) = self.queue.take_events() {
            self.fails(&e);
        }
        self.pump()
    }

    fn fails(&mut self, e: &io::Error) {
        self.failed.get_or_insert_with(|| (e.kind(), e.to_string()));
    }

    fn take(&mut self, done: Done) -> io::Result<Changed> {
        let mut changed = Changed::default();
        match done {
            Done::Sent(buffer) => {
                assert!(!self.free.contains(&buffer), "a buffer is sent once");
                self.free.push(buffer);
                changed.room = self.credits > 0;
            }
            Done::SentControl => {
                self.controls += 1;
                assert!(self.controls <= CONTROLS, "no more is done than was sent");
                self.repay();
            }
            Done::Received { buffer, len, carried } => {
                if carried > BUFFERS - self.credits {
                    let have = self.credits;
                    return Err(lies(format!("it returns {carried} credits, and {have} are here")));
                }
                if len == 0 && carried == 0 {
                    return Err(lies("a message says nothing".into()));
                }
                self.credits += carried;
                changed = Changed { bytes: len > 0, room: carried > 0 };
                match len {
                    0 => self.post(buffer),
                    _ => self.held.push_back(Held { buffer, len: len as usize, read: 0 }),
                }
            }
        }
        Ok(changed)
    }

    /// Returns the credits that are owed, once they are worth a message of their own.
    fn repay(&mut self) {
        if self.owed < MOST_OWED || self.controls == 0 || self.failed.is_some() {
            return;
        }
        match self.queue.send_control(self.owed) {
            Ok(()) => (self.controls, self.owed) = (self.controls - 1, 0),
            Err(e) => self.fails(&e),
        }
    }

    fn post(&mut self, buffer: u32) {
        if let Err(e) = self.queue.post(buffer) {
            self.fails(&e);
        }
    }

    fn alive(&self) -> io::Result<()> {
        self.failed.as_ref().map_or(Ok(()), |(kind, why)| Err(io::Error::new(*kind, why.clone())))
    }

    /// Whether a message could be sent now.
    pub fn has_room(&self) -> bool {
        self.failed.is_none() && self.credits > 0 && !self.free.is_empty()
    }

    /// Whether bytes are here.
    pub fn has_bytes(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether the connection is broken.
    pub fn is_broken(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether all that was written is with the peer, or never will be.
    pub fn is_through(&self) -> bool {
        self.failed.is_some() || self.free.len() == BUFFERS as usize
    }

    /// Sends what fits now of `from`, front to back, and says how many bytes that was.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.alive()?;
        let (mut sent, all) = (0, from.iter().map(|slice| slice.len()).sum::<usize>());
        let mut rest = from.iter().map(|slice| &**slice);
        let mut slice: &[u8] = &[];
        while sent < all && self.credits > 0 {
            let Some(buffer) = self.free.pop() else { break };
            let space = self.queue.outgoing(buffer);
            let len = fill(space, &mut slice, &mut rest);
            let result = self.queue.send(buffer, len as u32, self.owed);
            if let Err(e) = result {
                self.fails(&e);
                return Err(e);
            }
            self.owed = 0;
            self.credits -= 1;
            sent += len;
        }
        Ok(sent)
    }

    /// Reads what is here now, front to back, and says how many bytes that was.
    ///
    /// # Errors
    /// The connection is broken; bytes that came before are read first.
    pub fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for slice in into {
            let mut space = &mut slice[..];
            while !space.is_empty() && !self.held.is_empty() {
                let n = self.copy_out(space);
                space.split_off_mut(..n).expect("no more is copied than there is room for");
                taken += n;
            }
        }
        match taken {
            0 => self.alive().map(|()| 0),
            n => Ok(n),
        }
    }

    /// Copies from the first message that is held, which is posted again when all of it was read.
    fn copy_out(&mut self, space: &mut [u8]) -> usize {
        let Some(first) = self.held.front_mut() else { return 0 };
        let held = self.queue.incoming(first.buffer);
        let there =
            held.get(first.read..first.len).expect("a message is not longer than its buffer");
        let n = there.len().min(space.len());
        space.split_at_mut(n).0.copy_from_slice(there.split_at(n).0);
        first.read += n;
        if first.read == first.len {
            let buffer = first.buffer;
            self.held.pop_front();
            self.owed += 1;
            self.post(buffer);
            self.repay();
        }
        n
    }

    /// Breaks the connection.
    pub fn stop(&mut self) {
        self.fails(&ErrorKind::ConnectionAborted.into());
        self.queue.stop();
    }
}

/// Fills `space` from `slice` and those that follow it; how many bytes that was.
fn fill<'a>(
    space: &mut [u8],
    slice: &mut &'a [u8],
    rest: &mut impl Iterator<Item = &'a [u8]>,
) -> usize {
    let (mut space, mut filled) = (space, 0);
    while !space.is_empty() {
        if slice.is_empty() {
            let Some(next) = rest.next() else { break };
            *slice = next;
            continue;
        }
        let n = slice.len().min(space.len());
        let (now, later) = slice.split_at(n);
        space.split_off_mut(..n).expect("no longer than it").copy_from_slice(now);
        *slice = later;
        filled += n;
    }
    filled
}

fn lies(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
