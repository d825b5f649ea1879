//! What is sent without waiting: as much as fits, and the rest when there is room.

use crate::link::{Link, RecvPipe, SendPipe, SendState};
use siftfs_base::Result;
use siftfs_codec::frame::Kind;
use siftfs_codec::{Encoded, Message};
use std::io::IoSlice;
use std::time::Instant;

/// Bytes of whole frames, or the ends of them, that did not fit.
#[derive(Default)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    /// Those before have left.
    from: usize,
}

impl Kept {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.from
    }

    /// All of it, if there is something.
    pub fn slice(&self) -> Option<IoSlice<'_>> {
        self.bytes.get(self.from..).filter(|bytes| !bytes.is_empty()).map(IoSlice::new)
    }

    fn left(&mut self, bytes: usize) {
        self.from += bytes;
        assert!(self.from <= self.bytes.len(), "no more leaves than there is");
        if self.is_empty() {
            *self = Self::default();
        }
    }

    fn keep(&mut self, rest: &[IoSlice<'_>]) {
        self.bytes.drain(..self.from);
        self.from = 0;
        rest.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }
}

impl<In: Message, S: SendPipe, R: RecvPipe> Link<In, S, R> {
    /// Sends on what was kept, as much as fits; how many bytes are kept still, with those that the
    /// pipe has not let go.
    pub fn send_kept(&self, out: &mut SendState<S>) -> Result<usize> {
        let sent = write_kept(out);
        self.note(out, sent)
    }

    /// Sends a message, as much of it as fits, and keeps the rest; how many bytes are kept.
    pub fn offer(&self, out: &mut SendState<S>, kind: Kind, encoded: Encoded) -> Result<usize> {
        let offered = self.write_or_keep(out, kind, encoded);
        self.note(out, offered)
    }

    /// A failure stays: part of a frame may have left.
    fn note(&self, out: &mut SendState<S>, sent: Result<usize>) -> Result<usize> {
        let sent = sent.map_err(|e| self.broken.get().cloned().unwrap_or(e));
        out.failed = sent.as_ref().err().cloned();
        sent
    }

    fn write_or_keep(&self, out: &mut SendState<S>, kind: Kind, encoded: Encoded) -> Result<usize> {
        write_kept(out)?;
        let Encoded { head: mut section, blocks } = encoded;
        let lent = out.pipe.lend(&blocks)?;
        let (_, inline) = blocks.split_at(lent.len());
        let header = out.sealer.seal(kind, &mut section, &lent, inline);
        self.crossed.sends(header.len() + section.len(), inline.len(), lent.len());
        let mut slices = Vec::with_capacity(2 + inline.len());
        slices.push(IoSlice::new(&header));
        if !section.is_empty() {
            slices.push(IoSlice::new(&section));
        }
        slices.extend(inline.iter().map(|block| IoSlice::new(&block[..])));
        let mut rest = &mut slices[..];
        while out.kept.is_empty() && !rest.is_empty() {
            let n = out.pipe.write(rest)?;
            if n == 0 {
                break;
            }
            IoSlice::advance_slices(&mut rest, n);
        }
        out.last = Instant::now();
        out.kept.keep(rest);
        Ok(out.kept.len() + usize::from(!out.pipe.flush()?))
    }
}

fn write_kept<S: SendPipe>(out: &mut SendState<S>) -> Result<usize> {
    while let Some(kept) = out.kept.slice() {
        match out.pipe.write(&[kept])? {
            0 => break,
            n => {
                out.kept.left(n);
                out.last = Instant::now();
            }
        }
    }
    Ok(out.kept.len() + usize::from(!out.pipe.flush()?))
}
