//! What both sides tell each other before the first message: their roles, what they speak and what
//! they can take. Then each says whether it agrees, and if not, why.
//!
//! The form of these two structures is fixed for all versions of the protocol; later ones may
//! give a meaning to further feature bits.

use crate::TransportOptions;
use crate::channel::Channel;
use crate::channel::socket::Socket;
use siftfs_base::{BLOCK_BYTES, Error, Result};
use siftfs_codec::frame::Took;
use siftfs_codec::{Party, Protocol, cut_at};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"SiftLink";
/// Longest reason of a refusal in bytes.
const MAX_REASON: usize = 512;
/// How often a wait checks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);
/// Feature: blocks and rings in shared memory.
const SHARED_MEMORY: u64 = 1;
/// Feature: frames over RDMA.
const RDMA: u64 = 2;
/// No arena is larger, in bytes: slots have 32-bit numbers, and no use needs this much.
const MAX_ARENA: u64 = 1 << 36;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct Hello {
    pub magic: [u8; 8],
    pub oldest: U32,
    pub newest: U32,
    pub role: U32,
    pub heartbeat_ms: U32,
    pub features: U64,
    pub max_message: U64,
    pub arena: U64,
    pub reserved: U32,
    pub crc: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Verdict {
    magic: [u8; 8],
    /// 1: agreed; 2: refused, a reason follows.
    answer: U32,
    reason_len: U32,
    crc: U32,
}

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It connects.
    Caller,
    /// It listens.
    Server,
}

impl End {
    /// What this side is called in the protocol, and its peer.
    pub fn parties<P: Protocol>(self) -> (Party, Party) {
        match self {
            End::Caller => (P::CALLER, P::SERVER),
            End::Server => (P::SERVER, P::CALLER),
        }
    }
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub version: u32,
    pub max_message: u64,
    /// Slots of a shared arena; 0 without shared memory.
    pub slots: u32,
    /// Frames go over RDMA.
    pub rdma: bool,
}

/// What carries a connection's frames, if both sides want the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Memory that both processes share, or the socket between them.
    Local,
    /// The connection over which they meet.
    Stream,
    /// A queue pair of RDMA. A caller insists on it; a server that offers it serves callers over
    /// the stream, too.
    Rdma,
}

/// A handshake under way: the channel, the peer's name, and until when.
pub(crate) struct Greeting<'a, C = Socket> {
    pub channel: &'a C,
    pub peer: &'a str,
    pub deadline: Instant,
    pub patience: Duration,
    /// The connection is not wanted any more.
    pub stop: &'a AtomicBool,
}

impl Hello {
    /// What this side says.
    pub fn new<P: Protocol>(end: End, options: &TransportOptions, carrier: Carrier) -> Self {
        let arena = match carrier {
            Carrier::Local => options.shared_memory.min(MAX_ARENA),
            Carrier::Stream | Carrier::Rdma => 0,
        };
        let features = match carrier {
            Carrier::Local if arena >= BLOCK_BYTES => SHARED_MEMORY,
            Carrier::Local | Carrier::Stream => 0,
            Carrier::Rdma => RDMA,
        };
        let heartbeat = options.heartbeat.as_millis().clamp(1, u128::from(u32::MAX));
        let mut hello = Self {
            magic: MAGIC,
            oldest: P::OLDEST.into(),
            newest: P::VERSION.into(),
            role: end.parties::<P>().0.number.into(),
            heartbeat_ms: (heartbeat as u32).into(),
            features: features.into(),
            max_message: options.max_message.into(),
            arena: arena.into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        hello.crc = hello.computed_crc().into();
        hello
    }

    pub fn computed_crc(&self) -> u32 {
        let (fields, _) = self.as_bytes().split_at(size_of::<Self>() - size_of::<U32>());
        siftfs_base::crc32c(fields)
    }

    /// What follows from the two, or why the peer is refused.
    fn judge<P: Protocol>(
        &self,
        theirs: &Hello,
        end: End,
        options: &TransportOptions,
        peer: &str,
    ) -> Result<Agreement> {
        if theirs.magic != MAGIC {
            return Err(Error::Refused(format!("{peer} does not speak SiftFS's {}", P::NAME)));
        }
        if theirs.crc.get() != theirs.computed_crc() {
            return Err(siftfs_base::corrupt(
                format!("greeting from {peer}"),
                "its checksum does not hold",
            ));
        }
        let (ours, wanted) = end.parties::<P>();
        if theirs.role.get() != wanted.number {
            return Err(Error::Refused(format!(
                "{peer} is not a {}: {} was connected to {}",
                wanted.name,
                if theirs.role.get() == ours.number { ours.name } else { "something unknown" },
                ours.name,
            )));
        }
        let (oldest, newest) = (theirs.oldest.get(), theirs.newest.get());
        let version = newest.min(self.newest.get());
        if oldest > newest || version < oldest.max(self.oldest.get()) {
            return Err(Error::Refused(format!(
                "{peer} speaks versions {oldest} to {newest} of the {}, this program {} to {}; use \
                 the same release on both sides",
                P::NAME,
                self.oldest,
                self.newest
            )));
        }
        let heartbeat = Duration::from_millis(theirs.heartbeat_ms.get().max(1).into());
        if heartbeat.saturating_mul(3) > options.stall {
            return Err(Error::Refused(format!(
                "{peer} gives a sign of life every {heartbeat:?}, and this side gives up a peer \
                 that is silent for {:?}; it takes at least three times as long",
                options.stall
            )));
        }
        let both = self.features.get() & theirs.features.get();
        if end == End::Caller && self.features.get() & RDMA != 0 && both & RDMA == 0 {
            return Err(Error::Refused(format!(
                "{peer} does not carry frames over RDMA: it has to listen at rdma:HOST:PORT"
            )));
        }
        let shared = both & SHARED_MEMORY != 0;
        let arena = self.arena.get().min(theirs.arena.get());
        Ok(Agreement {
            version,
            max_message: self.max_message.get().min(theirs.max_message.get()),
            slots: if shared { (arena / BLOCK_BYTES).min(u64::from(u32::MAX)) as u32 } else { 0 },
            rdma: both & RDMA != 0,
        })
    }
}

impl<C: Channel> Greeting<'_, C> {
    /// Exchanges greetings and verdicts.
    ///
    /// # Errors
    /// The peer is refused, or refuses, or says nothing in time: one message each.
    pub fn agree<P: Protocol>(
        &self,
        end: End,
        options: &TransportOptions,
        carrier: Carrier,
    ) -> Result<Agreement> {
        let ours = Hello::new::<P>(end, options, carrier);
        self.write(ours.as_bytes())?;
        let mut bytes = [0; size_of::<Hello>()];
        // A peer that speaks something else may say less than a greeting: the magic tells.
        let (magic, rest) = bytes.split_at_mut(MAGIC.len());
        self.read(magic)?;
        if *magic == MAGIC {
            self.read(rest)?;
        }
        let theirs = Hello::read_from_bytes(&bytes).expect("its own length");
        let agreement = ours.judge::<P>(&theirs, end, options, self.peer);
        self.conclude(agreement)
    }

    /// Tells the peer what came of a step, and learns what it thinks of it. Our own error comes
    /// before the peer's.
    pub fn conclude<T>(&self, outcome: Result<T>) -> Result<T> {
        let sent = self.write(&verdict(outcome.as_ref().err()));
        if outcome.is_err() {
            self.channel.end(LOOK);
            return outcome;
        }
        // A peer that has refused is gone, perhaps before it took our verdict; its own counts.
        let theirs = self.verdict();
        sent.and(theirs).and(outcome)
    }

    fn verdict(&self) -> Result<()> {
        let mut bytes = [0; size_of::<Verdict>()];
        self.read(&mut bytes)?;
        let raw = Verdict::read_from_bytes(&bytes).expect("its own length");
        let damaged = || {
            let what = format!("greeting from {}", self.peer);
            siftfs_base::corrupt(what, "its verdict is damaged")
        };
        let len = raw.reason_len.get() as usize;
        if raw.magic != MAGIC || len > MAX_REASON {
            return Err(damaged());
        }
        let mut reason = vec![0; len];
        self.read(&mut reason)?;
        if raw.crc.get() != verdict_crc(&raw, &reason) {
            return Err(damaged());
        }
        match raw.answer.get() {
            1 => Ok(()),
            2 => Err(Error::Refused(format!(
                "{} refused the connection: {}",
                self.peer,
                printable(&reason)
            ))),
            _ => Err(damaged()),
        }
    }

    /// Sends all of `bytes`.
    pub fn write(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.channel.write(&[IoSlice::new(bytes)]).map_err(|e| self.failed(&e))? {
                0 => self.pause(|left| self.channel.wait_writable(left))?,
                n => bytes = bytes.get(n..).expect("no more is sent than there is"),
            }
        }
        while !self.channel.flush().map_err(|e| self.failed(&e))? {
            self.pause(|left| self.channel.wait_writable(left))?;
        }
        Ok(())
    }

    /// Reads all of `into`.
    pub fn read(&self, mut into: &mut [u8]) -> Result<()> {
        while !into.is_empty() {
            let space = &mut [IoSliceMut::new(into)];
            match self.channel.read(space).map_err(|e| self.failed(&e))? {
                Took::Bytes(n) => {
                    into.split_off_mut(..n).expect("no more is read than there is room for");
                }
                Took::Nothing => self.pause(|left| self.channel.wait_readable(left))?,
                Took::End => return Err(self.ended()),
            }
        }
        Ok(())
    }

    /// Waits for the peer, within the time that it has.
    pub fn pause(&self, wait: impl Fn(Duration) -> io::Result<()>) -> Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Link(format!("{}: not listening any more", self.peer)));
        }
        if left.is_zero() {
            return Err(Error::Link(format!(
                "{} did not finish its greeting within {:?}",
                self.peer, self.patience
            )));
        }
        wait(left.min(LOOK)).map_err(|e| self.failed(&e))
    }

    pub fn ended(&self) -> Error {
        Error::Link(format!("{} ended during the greeting", self.peer))
    }

    pub fn failed(&self, e: &io::Error) -> Error {
        Error::Link(format!("{}: {e}", self.peer))
    }
}

fn verdict(refusal: Option<&Error>) -> Vec<u8> {
    let reason = refusal.map(ToString::to_string).unwrap_or_default();
    let (reason, _) = reason.as_bytes().split_at(cut_at(&reason, MAX_REASON));
    let answer: u32 = if refusal.is_some() { 2 } else { 1 };
    let mut raw = Verdict {
        magic: MAGIC,
        answer: answer.into(),
        reason_len: (reason.len() as u32).into(),
        crc: 0.into(),
    };
    raw.crc = verdict_crc(&raw, reason).into();
    [raw.as_bytes(), reason].concat()
}

/// Over everything but the checksum itself.
fn verdict_crc(raw: &Verdict, reason: &[u8]) -> u32 {
    let (fields, _) = raw.as_bytes().split_at(size_of::<Verdict>() - size_of::<U32>());
    siftfs_base::crc32c_append(siftfs_base::crc32c(fields), reason)
}

/// A peer's text, fit for a terminal and a log.
fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
