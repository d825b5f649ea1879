//! Frames over a stream socket, unix or TCP. Blocks travel inline; they are sent from where they
//! lie and received into where they stay.

use crate::link::{Cut, RecvPipe, SendPipe};
use crate::socket::Socket;
use siftfs_base::{Error, Result, SharedBlock};
use siftfs_codec::frame::{Source, Took};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

/// Small frames are read through a buffer of this many bytes, several in one call.
const BUFFER: usize = 64 << 10;

fn failed(peer: &str, e: rustix::io::Errno) -> Error {
    Error::Link(match e {
        rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => format!("{peer} has ended"),
        other => format!("{peer}: {}", std::io::Error::from(other)),
    })
}

pub(crate) struct StreamSender {
    socket: Arc<Socket>,
    peer: String,
}

pub(crate) struct StreamReceiver {
    socket: Arc<Socket>,
    peer: String,
    buffer: Box<[u8]>,
    /// The part of `buffer` that was not taken yet.
    start: usize,
    end: usize,
}

pub(crate) struct StreamCut(Arc<Socket>);

/// The two pipes of a connected socket and what ends them.
pub(crate) fn pipes(
    socket: &Arc<Socket>,
    peer: &str,
) -> ((StreamSender, StreamReceiver), Box<dyn Cut>) {
    let receiver = StreamReceiver {
        socket: socket.clone(),
        peer: peer.into(),
        buffer: vec![0; BUFFER].into(),
        start: 0,
        end: 0,
    };
    let sender = StreamSender { socket: socket.clone(), peer: peer.into() };
    ((sender, receiver), Box::new(StreamCut(socket.clone())))
}

impl Cut for StreamCut {
    fn cut(&self) {
        self.0.cut();
    }
    fn end(&self) {
        self.0.end(Duration::ZERO);
    }
}

impl SendPipe for StreamSender {
    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize> {
        self.socket.write(from).map_err(|e| failed(&self.peer, e))
    }
    fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.socket.wait_writable(timeout).map_err(|e| failed(&self.peer, e))
    }
    fn has_room(&self, _: usize) -> bool {
        self.socket.has_room()
    }
    fn lend(&mut self, _: &[SharedBlock]) -> Result<Vec<u32>> {
        Ok(Vec::new())
    }
}

impl StreamReceiver {
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

impl Source for StreamReceiver {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Took> {
        if self.start < self.end {
            return Ok(self.copy_out(into));
        }
        let wanted: usize = into.iter().map(|s| s.len()).sum();
        if wanted >= BUFFER / 4 {
            return self.socket.read(into).map_err(|e| failed(&self.peer, e));
        }
        let space = &mut [IoSliceMut::new(&mut self.buffer)];
        let took = self.socket.read(space).map_err(|e| failed(&self.peer, e))?;
        let Took::Bytes(n) = took else { return Ok(took) };
        (self.start, self.end) = (0, n);
        Ok(self.copy_out(into))
    }
}

impl RecvPipe for StreamReceiver {
    fn wait(&mut self, timeout: Duration) -> Result<()> {
        self.socket.wait_readable(timeout).map_err(|e| failed(&self.peer, e))
    }
    fn borrow(&mut self, slots: &[u32]) -> Result<Vec<SharedBlock>> {
        assert!(slots.is_empty(), "a stream has no slots, and frames were checked for it");
        Ok(Vec::new())
    }
}
