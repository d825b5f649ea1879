//! Frames over a stream: a socket, unix or TCP, or TLS over one. Blocks travel inline; they are
//! sent from where they lie and received into where they stay.

use crate::Awaited;
use crate::channel::Channel;
use crate::link::{Cut, RecvPipe, SendPipe};
use siftfs_base::{Error, Result, SharedBlock};
use siftfs_codec::frame::{Source, Took};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

/// Small frames are read through a buffer of this many bytes, several in one call.
const BUFFER: usize = 64 << 10;

fn failed(peer: &str, e: &io::Error) -> Error {
    Error::Link(match e.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => format!("{peer} has ended"),
        _ => format!("{peer}: {e}"),
    })
}

pub(crate) struct StreamSender<C> {
    channel: Arc<C>,
    peer: String,
}

pub(crate) struct StreamReceiver<C> {
    channel: Arc<C>,
    peer: String,
    buffer: Box<[u8]>,
    /// The part of `buffer` that was not taken yet.
    start: usize,
    end: usize,
}

pub(crate) struct StreamCut<C>(Arc<C>);

/// The two pipes of a channel and what ends them.
pub(crate) fn pipes<C: Channel>(
    channel: &Arc<C>,
    peer: &str,
) -> ((StreamSender<C>, StreamReceiver<C>), Box<dyn Cut>) {
    let receiver = StreamReceiver {
        channel: channel.clone(),
        peer: peer.into(),
        buffer: vec![0; BUFFER].into(),
        start: 0,
        end: 0,
    };
    let sender = StreamSender { channel: channel.clone(), peer: peer.into() };
    ((sender, receiver), Box::new(StreamCut(channel.clone())))
}

impl<C: Channel> Cut for StreamCut<C> {
    fn cut(&self) {
        self.0.cut();
    }
    fn end(&self) {
        self.0.end(Duration::ZERO);
    }
}

impl<C: Channel> SendPipe for StreamSender<C> {
    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize> {
        self.channel.write(from).map_err(|e| failed(&self.peer, &e))
    }
    fn flush(&mut self) -> Result<bool> {
        self.channel.flush().map_err(|e| failed(&self.peer, &e))
    }
    fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.channel.wait_writable(timeout).map_err(|e| failed(&self.peer, &e))
    }
    fn has_room(&self, _: usize) -> bool {
        self.channel.has_room()
    }
    fn lend(&mut self, _: &[SharedBlock]) -> Result<Vec<u32>> {
        Ok(Vec::new())
    }
}

impl<C: Channel> StreamReceiver<C> {
    /// Copies from the buffer.
    fn copy_out(&mut self, into: &mut [IoSliceMut<'_>]) -> Took {
        let mut taken = 0;
        for slice in into {
            let held = self.buffer.get(self.start..self.end).expect("the window is inside");
            let n = slice.len().min(held.len());
            slice.split_at_mut(n).0.copy_from_slice(held.split_at(n).0);
            self.start += n;
            taken += n;
        }
        Took::Bytes(taken)
    }
}

impl<C: Channel> Source for StreamReceiver<C> {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Took> {
        if self.start < self.end {
            return Ok(self.copy_out(into));
        }
        let wanted: usize = into.iter().map(|s| s.len()).sum();
        if wanted >= BUFFER / 4 {
            return self.channel.read(into).map_err(|e| failed(&self.peer, &e));
        }
        let space = &mut [IoSliceMut::new(&mut self.buffer)];
        let took = self.channel.read(space).map_err(|e| failed(&self.peer, &e))?;
        let Took::Bytes(n) = took else { return Ok(took) };
        (self.start, self.end) = (0, n);
        Ok(self.copy_out(into))
    }
}

impl<C: Channel> RecvPipe for StreamReceiver<C> {
    fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.channel.wait_readable(timeout).map_err(|e| failed(&self.peer, &e))
    }
    fn awaited(&self) -> Result<Awaited> {
        self.channel.awaited().map_err(|e| failed(&self.peer, &e))
    }
    fn arm(&mut self) -> Result<bool> {
        if self.start != self.end {
            return Ok(false);
        }
        self.channel.arm().map_err(|e| failed(&self.peer, &e))
    }
    fn woken(&mut self) -> Result<()> {
        self.channel.woken().map_err(|e| failed(&self.peer, &e))
    }
    fn borrow(&mut self, slots: &[u32]) -> Result<Vec<SharedBlock>> {
        assert!(slots.is_empty(), "a stream has no slots, and frames were checked for it");
        Ok(Vec::new())
    }
}
