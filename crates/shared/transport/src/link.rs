//! A connection between processes: frames over a pair of pipes, the same for every transport.
//!
//! The thread that calls `recv` reads from the pipe, and the thread that calls `send` writes: no
//! message changes threads on its way. The connection's watch (`watch.rs`) sends heartbeats, and
//! reads while no thread receives, so that a peer's silence is noticed by a side that only sends.

use crate::attend::Kept;
use crate::crossed::{Counters, Crossed};
use crate::handshake::{Agreement, End};
use crate::processors;
use crate::watch::Watch;
use crate::{Awaited, Connection, Peer, Received, Receiver, Sender, TransportOptions};
use siftfs_base::{Error, Result, SharedBlock};
use siftfs_codec::frame::{
    self, Frame, FrameReader, HEADER_LEN, Kind, Limits, Sealer, Source, Step, weight,
};
use siftfs_codec::{Encoded, Message, Protocol};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Bytes of messages that wait for a receiver at most, unless a single one has more.
const PENDING_BYTES: u64 = 16 << 20;
/// The longest frame that is sent only if it needs no waiting. A socket that can be written at all
/// takes as much.
const AT_ONCE: usize = 1 << 10;
/// The spin time is never adapted below this part of what was asked for.
const LEAST_SPIN: u32 = 16;

/// Where bytes go. Used by one thread at a time.
pub(crate) trait SendPipe: Send + 'static {
    /// Takes what fits now of `from`, front to back; 0 if nothing does.
    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize>;
    /// Sends of what was taken as much as fits now, and says whether that was all.
    fn flush(&mut self) -> Result<bool>;
    /// Sleeps until more may fit, at most `timeout`.
    fn wait(&mut self, timeout: Duration) -> Result<()>;
    /// Whether a frame of this many bytes, [`AT_ONCE`] at most, fits now.
    fn has_room(&self, bytes: usize) -> bool;
    /// Copies the first of `blocks` to where the peer finds them, and names their slots.
    fn lend(&mut self, blocks: &[SharedBlock]) -> Result<Vec<u32>>;
}

/// Where bytes come from. Used by one thread at a time.
pub(crate) trait RecvPipe: Source + Send + 'static {
    /// Sleeps until there may be more, at most `timeout`.
    fn wait(&mut self, timeout: Duration) -> Result<()>;
    /// What can be read when there may be more.
    fn awaited(&self) -> Result<Awaited>;
    /// As [`Receiver::arm`].
    fn arm(&mut self) -> Result<bool>;
    /// As [`Receiver::woken`].
    fn woken(&mut self) -> Result<()>;
    /// The blocks in these slots; a slot is given back when its block is dropped.
    fn borrow(&mut self, slots: &[u32]) -> Result<Vec<SharedBlock>>;
}

/// Ends both pipes.
pub(crate) trait Cut: Send + Sync + 'static {
    /// Ends both at once, and wakes the threads that wait on them.
    fn cut(&self);
    /// Ends both; whatever was sent still arrives.
    fn end(&self);
}

/// What both halves and the watch share.
pub(crate) struct Link<In, S, R> {
    pub peer: String,
    /// Longest wait between two checks of the connection.
    pub tick: Duration,
    pub options: TransportOptions,
    limits: Limits,
    pub broken: OnceLock<Error>,
    cut: Box<dyn Cut>,
    pub crossed: Counters,
    /// Nobody may wait to send: the thread that does has others to attend.
    attended: AtomicBool,
    pub send: Mutex<SendState<S>>,
    recv: Mutex<RecvState<In, R>>,
}

pub(crate) struct SendState<S> {
    pub pipe: S,
    pub sealer: Sealer,
    pub closed: bool,
    /// Why nothing can be sent any more. What the peer sent before it went can still be received.
    pub failed: Option<Error>,
    pub last: Instant,
    /// What has to be sent before anything else.
    pub kept: Kept,
}

pub(crate) struct RecvState<In, R> {
    pipe: R,
    reader: FrameReader,
    pending: VecDeque<(In, u64)>,
    pending_bytes: u64,
    ended: bool,
    silence: Silence,
    spin: Duration,
}

/// How long a peer was silent while a thread of this side listened.
struct Silence {
    looked: Instant,
    silent: Duration,
}

impl Silence {
    /// Adds the time since the last call, at most `most` of it: a program that did not run itself
    /// does not blame its peer. Anything heard ends the silence.
    fn look(&mut self, heard: bool, most: Duration) -> Duration {
        let now = Instant::now();
        let step = now.duration_since(self.looked).min(most);
        self.looked = now;
        self.silent = if heard { Duration::ZERO } else { self.silent + step };
        self.silent
    }
}

/// Who is at the other end.
pub(crate) struct Met {
    /// In words, for messages.
    pub peer: String,
    /// Whose process it is, where the kernel says so.
    pub process: Option<Peer>,
    /// Whose key it has, where keys are asked for.
    pub key: Option<siftfs_keys::Peer>,
}

/// A connection over two pipes, and its watch's thread.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn open<P: Protocol, Out: Message, In: Message>(
    end: End,
    agreement: &Agreement,
    options: &TransportOptions,
    Met { peer, process, key }: Met,
    (sender, receiver): (impl SendPipe, impl RecvPipe),
    cut: Box<dyn Cut>,
) -> Result<Connection<Out, In>> {
    let Agreement { version, max_message, slots, .. } = *agreement;
    let limits = Limits { version, max_message, slots };
    let (ours, theirs) = end.parties::<P>();
    let now = Instant::now();
    let spins = !processors::are_one(process);
    let link = Arc::new(Link {
        tick: options.heartbeat.min(options.stall / 4).max(Duration::from_millis(1)),
        options: options.clone(),
        limits,
        broken: OnceLock::new(),
        cut,
        crossed: Counters::default(),
        attended: AtomicBool::new(false),
        send: Mutex::new(SendState {
            pipe: sender,
            sealer: Sealer::new(ours, &limits),
            closed: false,
            failed: None,
            last: now,
            kept: Kept::default(),
        }),
        recv: Mutex::new(RecvState {
            pipe: receiver,
            reader: FrameReader::new(theirs, limits, &peer),
            pending: VecDeque::new(),
            pending_bytes: 0,
            ended: false,
            silence: Silence { looked: now, silent: Duration::ZERO },
            // Spinning keeps the peer from running where both have one processor.
            spin: if spins { options.spin } else { Duration::ZERO },
        }),
        peer: peer.clone(),
    });
    let watch = Arc::new(Watch::start(link.clone())?);
    let sender = Arc::new(LinkSender { link: link.clone(), _watch: watch.clone() });
    let receiver = Box::new(LinkReceiver { link, watch });
    Ok(Connection { sender, receiver, peer, process, shares_memory: slots > 0, key })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl<In: Message, S: SendPipe, R: RecvPipe> Link<In, S, R> {
    /// Latches the first cause, which is the answer to everything from now on.
    fn broke(&self, cause: Error) -> Error {
        let first = self.broken.get_or_init(|| cause).clone();
        self.cut.cut();
        first
    }

    fn lost(&self, why: impl std::fmt::Display) -> Error {
        Error::Link(format!("{} {why}", self.peer))
    }

    fn check(&self) -> Result<()> {
        self.broken.get().map_or(Ok(()), |e| Err(e.clone()))
    }

    fn transmit(&self, out: &mut SendState<S>, kind: Kind, encoded: Encoded) -> Result<()> {
        let sent = self.write_frame(out, kind, encoded);
        let sent = sent.map_err(|e| self.broken.get().cloned().unwrap_or(e));
        // Part of a frame may have left.
        out.failed = sent.clone().err();
        sent
    }

    fn write_frame(&self, out: &mut SendState<S>, kind: Kind, encoded: Encoded) -> Result<()> {
        let Encoded { head: mut section, blocks } = encoded;
        let lent = out.pipe.lend(&blocks)?;
        let (_, inline) = blocks.split_at(lent.len());
        let header = out.sealer.seal(kind, &mut section, &lent, inline);
        self.crossed.sends(header.len() + section.len(), inline.len(), lent.len());
        let kept = mem::take(&mut out.kept);
        let mut slices = Vec::with_capacity(3 + inline.len());
        slices.extend(kept.slice());
        slices.push(IoSlice::new(&header));
        if !section.is_empty() {
            slices.push(IoSlice::new(&section));
        }
        slices.extend(inline.iter().map(|b| IoSlice::new(&b[..])));
        let mut rest = &mut slices[..];
        let mut silence = Silence { looked: Instant::now(), silent: Duration::ZERO };
        loop {
            self.check()?;
            let n = if rest.is_empty() { 0 } else { out.pipe.write(rest)? };
            IoSlice::advance_slices(&mut rest, n);
            if rest.is_empty() && out.pipe.flush()? {
                break;
            }
            if n == 0 {
                out.pipe.wait(self.tick)?;
            }
            if silence.look(n > 0, self.tick * 2) > self.options.stall {
                self.unheard()?;
            }
        }
        out.last = Instant::now();
        Ok(())
    }

    /// Judges a send that stands still. While a thread reads, the peer's heartbeats decide. If none
    /// does because this side is full, the heartbeats are not heard: both sides wait for each
    /// other.
    fn unheard(&self) -> Result<()> {
        let full = try_lock(&self.recv).is_some_and(|back| self.is_full(&back));
        if full {
            let why = "takes no messages, and those that it sent are not taken";
            return Err(self.broke(self.lost(why)));
        }
        Ok(())
    }

    fn is_full(&self, back: &RecvState<In, R>) -> bool {
        back.pending.len() >= self.options.queue.max(1) || back.pending_bytes >= PENDING_BYTES
    }

    /// Reads until a message is pending or nothing more is there; whether anything was heard.
    fn pump(&self, back: &mut RecvState<In, R>) -> Result<bool> {
        let mut heard = false;
        let before = back.pending.len();
        while !back.ended && back.pending.len() == before {
            match back.reader.advance(&mut back.pipe)? {
                Step::Frame(frame) => {
                    heard = true;
                    self.take(back, frame)?;
                }
                Step::Nothing { read } => return Ok(heard || read > 0),
                Step::End { within: true } => {
                    return Err(self.lost("ended in the middle of a message"));
                }
                Step::End { within: false } => {
                    return Err(self.lost("ended without closing the connection"));
                }
            }
        }
        Ok(heard)
    }

    fn take(&self, back: &mut RecvState<In, R>, frame: Frame) -> Result<()> {
        let Frame { kind, head, lent, inline } = frame;
        self.crossed.received(frame::len(head.len(), lent.len(), inline.len()));
        match kind {
            Kind::Heartbeat => {}
            Kind::End => back.ended = true,
            Kind::Message => {
                let weight = weight(head.len(), lent.len() + inline.len());
                let mut blocks = back.pipe.borrow(&lent)?;
                blocks.extend(inline);
                back.pending.push_back((In::decode(&head, blocks)?, weight));
                back.pending_bytes += weight;
            }
        }
        Ok(())
    }

    /// Reads what is there, and gives the peer up if it has been silent for too long.
    fn listen(&self, back: &mut RecvState<In, R>) -> Result<()> {
        let heard = self.pump(back)?;
        let silent = back.silence.look(heard, self.tick * 2);
        if silent > self.options.stall && !back.ended {
            return Err(self.lost(format_args!("was silent for {:?}", self.options.stall)));
        }
        Ok(())
    }

    /// The watch's part: a heartbeat if nothing was sent for a while; reading if no receiver does.
    pub fn tend(&self) {
        if self.broken.get().is_some() {
            return;
        }
        self.say_something();
        if let Some(mut back) = try_lock(&self.recv) {
            while !back.ended && !self.is_full(&back) {
                let before = back.pending.len();
                if let Err(e) = self.listen(&mut back) {
                    self.broke(e);
                    return;
                }
                if back.pending.len() == before {
                    break;
                }
            }
        }
    }

    /// Sends a heartbeat, if nothing was sent for a while. No heartbeat is sent behind messages
    /// that did not fit and are kept: the peer hears of this side by those.
    pub fn say_something(&self) {
        let Some(mut out) = try_lock(&self.send) else { return };
        // Half the interval: the next check is a tick away.
        let able = !out.closed && out.failed.is_none() && out.kept.is_empty();
        let due = able && out.last.elapsed() >= self.options.heartbeat / 2;
        if due && out.pipe.has_room(HEADER_LEN) {
            // The next sender learns of a failure, and the receiver finds out by itself.
            let _ = self.transmit(&mut out, Kind::Heartbeat, Encoded::default());
        }
    }

    /// The connection is not used any more.
    pub fn finish(&self) {
        if self.broken.get().is_none() {
            self.cut.end();
        }
    }
}

impl<In: Message, S: SendPipe, R: RecvPipe> Link<In, S, R> {
    /// A message as it crosses.
    ///
    /// # Errors
    /// Refused: it is longer than both sides agreed on.
    fn encoded<Out: Message>(&self, message: &Out) -> Result<Encoded> {
        let encoded = message.encode()?;
        let (len, limit) =
            (weight(encoded.head.len(), encoded.blocks.len()), self.limits.max_message);
        if len > limit {
            return Err(Error::Refused(format!(
                "a message of {len} bytes to {}: both sides agreed on at most {limit}",
                self.peer
            )));
        }
        Ok(encoded)
    }

    fn may_send(&self, out: &SendState<S>) -> Result<()> {
        self.check()?;
        if let Some(e) = &out.failed {
            return Err(e.clone());
        }
        if out.closed {
            return Err(Error::Link(format!("to {}: this side has closed", self.peer)));
        }
        Ok(())
    }
}

struct LinkSender<In, S, R> {
    link: Arc<Link<In, S, R>>,
    _watch: Arc<Watch>,
}

impl<Out: Message, In: Message, S: SendPipe, R: RecvPipe> Sender<Out> for LinkSender<In, S, R> {
    fn send(&self, message: Out) -> Result<()> {
        let link = &*self.link;
        let encoded = link.encoded(&message)?;
        let mut out = lock(&link.send);
        link.may_send(&out)?;
        link.transmit(&mut out, Kind::Message, encoded)
    }

    fn post(&self, message: Out) -> Result<usize> {
        let link = &*self.link;
        let encoded = link.encoded(&message)?;
        let mut out = lock(&link.send);
        link.may_send(&out)?;
        link.offer(&mut out, Kind::Message, encoded)
    }

    fn push(&self) -> Result<usize> {
        let link = &*self.link;
        let mut out = lock(&link.send);
        link.may_send(&out)?;
        link.send_kept(&mut out)
    }

    fn try_send(&self, message: Out) -> bool {
        let link = &*self.link;
        let Ok(encoded) = message.encode() else { return false };
        let frame = HEADER_LEN + encoded.head.len().next_multiple_of(8);
        if frame > AT_ONCE || !encoded.blocks.is_empty() {
            return false;
        }
        let Some(mut out) = try_lock(&link.send) else { return false };
        let able = link.may_send(&out).is_ok() && out.kept.is_empty();
        able && out.pipe.has_room(frame) && link.transmit(&mut out, Kind::Message, encoded).is_ok()
    }

    fn close(&self) {
        let link = &*self.link;
        let mut out = lock(&link.send);
        let able = link.broken.get().is_none() && out.failed.is_none();
        if mem::replace(&mut out.closed, true) || !able {
            return;
        }
        // A peer that is gone does not need to know; the receiver says why it went.
        if link.attended.load(Ordering::Acquire) {
            let _ = link.offer(&mut out, Kind::End, Encoded::default());
        } else {
            let _ = link.transmit(&mut out, Kind::End, Encoded::default());
        }
    }

    fn cut(&self) {
        // One that is broken already has its first cause.
        let _ = self.link.broke(self.link.lost("was cut off by this side"));
    }

    fn crossed(&self) -> Crossed {
        self.link.crossed.so_far()
    }
}

struct LinkReceiver<In, S, R> {
    link: Arc<Link<In, S, R>>,
    watch: Arc<Watch>,
}

impl<In: Message, S: SendPipe, R: RecvPipe> Receiver<In> for LinkReceiver<In, S, R> {
    fn recv(&mut self, timeout: Option<Duration>) -> Result<Received<In>> {
        let link = &*self.link;
        // A time too long to be added is no limit.
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut back = lock(&link.recv);
        loop {
            if let Some((message, weight)) = back.pending.pop_front() {
                back.pending_bytes -= weight;
                return Ok(Received::Message(message));
            }
            if back.ended {
                return Ok(Received::Closed);
            }
            link.check()?;
            link.listen(&mut back).map_err(|e| link.broke(e))?;
            if !back.pending.is_empty() || back.ended {
                continue;
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Received::Timeout);
            }
            let most = left.unwrap_or(link.tick).min(link.tick);
            link.wait(&mut back, most).map_err(|e| link.broke(e))?;
        }
    }

    fn attend(&mut self) -> Result<Option<Awaited>> {
        let awaited = lock(&self.link.recv).pipe.awaited()?;
        self.watch.relieve();
        self.link.attended.store(true, Ordering::Release);
        Ok(Some(awaited))
    }

    fn arm(&mut self) -> Result<bool> {
        let link = &*self.link;
        let mut back = lock(&link.recv);
        let idle = back.pending.is_empty() && !back.ended && link.broken.get().is_none();
        if idle { back.pipe.arm().map_err(|e| link.broke(e)) } else { Ok(false) }
    }

    fn woken(&mut self) -> Result<()> {
        let link = &*self.link;
        lock(&link.recv).pipe.woken().map_err(|e| link.broke(e))
    }

    fn tend(&mut self) {
        self.link.say_something();
    }
}

impl<In: Message, S: SendPipe, R: RecvPipe> Link<In, S, R> {
    /// Spins, then sleeps, until something is there or `most` has passed.
    fn wait(&self, back: &mut RecvState<In, R>, most: Duration) -> Result<()> {
        let (spin, start) = (back.spin.min(most), Instant::now());
        if spin.is_zero() {
            return back.pipe.wait(most);
        }
        while start.elapsed() < spin {
            if self.pump(back)? || back.ended {
                back.silence.look(true, self.tick);
                back.spin = adapted(back.spin, self.options.spin, Duration::ZERO);
                return Ok(());
            }
            std::hint::spin_loop();
        }
        back.pipe.wait(most)?;
        back.spin = adapted(back.spin, self.options.spin, start.elapsed());
        Ok(())
    }
}

/// How long to spin after a wait of this length: longer if spinning for as long as it may be done
/// would have seen its end, also if it was given up before.
fn adapted(spin: Duration, most: Duration, waited: Duration) -> Duration {
    match waited < most {
        true => (spin * 2).min(most),
        false => (spin / 2).max(most / LEAST_SPIN),
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
