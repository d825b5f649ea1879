//! Frames over shared memory: a ring of words in each direction, and an arena of slots in which
//! the caller lends blocks to the server, and one the other way round where the protocol's server
//! lends, too. The unix socket stays open and is silent: the end of
//! the peer's process is the end of the socket.
//!
//! A block is copied once, into its slot, and read from there where it is needed. A block for which
//! no slot is free goes through the ring instead, so no thread ever waits for slots.

use crate::Awaited;
use crate::channel::Channel;
use crate::channel::socket::Socket;
use crate::handshake::End;
use crate::link::{Cut, RecvPipe, SendPipe};
use crate::mapping::{Arena, Mapping};
use crate::ring::{Consumer, Producer};
use crate::share::{Bell, Bells, Shared, failed};
use rustix::fd::BorrowedFd;
use siftfs_base::{BLOCK_SIZE, Error, LentBlock, Result, SharedBlock, corrupt};
use siftfs_codec::frame::{Source, Took};
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A side's part of what both pipes need.
struct Common {
    socket: Arc<Socket>,
    peer: String,
}

impl Common {
    /// Whether the peer has ended.
    ///
    /// # Errors
    /// It sent something beside the rings.
    fn has_ended(&self) -> Result<bool> {
        let space = &mut [0; 8];
        match self.socket.read(&mut [IoSliceMut::new(space)]).map_err(|e| failed(&self.peer, &e))? {
            Took::Nothing => Ok(false),
            Took::End => Ok(true),
            Took::Bytes(_) => {
                Err(corrupt(format!("message from {}", self.peer), "it came beside the ring"))
            }
        }
    }
}

pub(crate) struct ShmSender {
    common: Common,
    ring: Producer<Mapping>,
    /// Rung for the peer when words are there; rings for us when there is room.
    words: Bell,
    room: Bell,
    lender: Option<Lender>,
}

pub(crate) struct ShmReceiver {
    common: Common,
    ring: Consumer<Mapping>,
    words: Bell,
    room: Bell,
    /// The peer had ended when that was last checked.
    ended: bool,
    borrower: Option<Borrower>,
}

struct ShmCut(Arc<Socket>);

/// The two pipes of one side, and what ends them.
pub(crate) fn pipes(
    end: End,
    shared: Shared,
    socket: Socket,
    peer: &str,
) -> ((ShmSender, ShmReceiver), Box<dyn Cut>) {
    let Shared { memory, bells } = shared;
    let Bells { to_server_words, to_server_room, from_server_words, from_server_room } = bells;
    let layout = memory.layout;
    let (out, back) = match end {
        End::Caller => (
            (layout.to_server, to_server_words, to_server_room),
            (layout.from_server, from_server_words, from_server_room),
        ),
        End::Server => (
            (layout.from_server, from_server_words, from_server_room),
            (layout.to_server, to_server_words, to_server_room),
        ),
    };
    let (lent, borrowed) = match end {
        End::Caller => (Some(layout.callers), layout.servers),
        End::Server => (layout.servers, Some(layout.callers)),
    };
    let socket = Arc::new(socket);
    let common = || Common { socket: socket.clone(), peer: peer.into() };
    let sender = ShmSender {
        common: common(),
        ring: Producer::new(memory.clone(), out.0),
        words: out.1,
        room: out.2,
        lender: lent.map(|arena| Lender::new(&memory, arena)),
    };
    let receiver = ShmReceiver {
        common: common(),
        ring: Consumer::new(memory.clone(), back.0),
        words: back.1,
        room: back.2,
        ended: false,
        borrower: borrowed.map(|arena| Borrower::new(&memory, arena)),
    };
    ((sender, receiver), Box::new(ShmCut(socket)))
}

impl Cut for ShmCut {
    fn cut(&self) {
        self.0.cut();
    }
    fn end(&self) {
        // The rings' memory stays with the peer until it has read them.
        self.0.cut();
    }
}

impl SendPipe for ShmSender {
    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize> {
        let mut room = self.ring.room()?;
        let mut put = 0;
        for slice in from {
            // Frames are made of whole words, each part of them as well.
            let (words, rest) = slice.as_chunks::<8>();
            assert!(rest.is_empty(), "a frame's parts are multiples of 8 bytes");
            let n = words.len().min(room as usize);
            words.iter().take(n).for_each(|w| self.ring.put(u64::from_le_bytes(*w)));
            room -= n as u64;
            put += n;
        }
        if put > 0 && self.ring.publish() {
            self.words.ring();
        }
        Ok(put * 8)
    }

    fn flush(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        if self.ring.may_sleep()? {
            let slept = self.room.sleep(&self.common.socket, timeout);
            self.ring.awake();
            let alive = self.room.quiet();
            slept.map_err(|e| failed(&self.common.peer, &e))?;
            if self.common.has_ended()? || !alive {
                return Err(Error::Link(format!("{} has ended", self.common.peer)));
            }
        }
        Ok(())
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.ring.room().is_ok_and(|room| room >= bytes.div_ceil(8) as u64)
    }

    fn lend(&mut self, blocks: &[SharedBlock]) -> Result<Vec<u32>> {
        self.lender.as_mut().map_or(Ok(Vec::new()), |lender| lender.lend(blocks))
    }
}

impl Source for ShmReceiver {
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<Took> {
        let mut there = self.ring.available()?;
        let mut taken = 0;
        for slice in into {
            let (words, rest) = slice.as_chunks_mut::<8>();
            assert!(rest.is_empty(), "a frame's parts are multiples of 8 bytes");
            let n = words.len().min(there as usize);
            words.iter_mut().take(n).for_each(|w| *w = self.ring.take().to_le_bytes());
            there -= n as u64;
            taken += n;
        }
        if taken > 0 {
            if self.ring.publish() {
                self.room.ring();
            }
            return Ok(Took::Bytes(taken * 8));
        }
        // Words that were published before the end were there to be seen just now.
        Ok(if self.ended { Took::End } else { Took::Nothing })
    }
}

impl RecvPipe for ShmReceiver {
    fn awaited(&self) -> Result<Awaited> {
        let own =
            |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(|e| failed(&self.common.peer, &e));
        let descriptors =
            vec![own(self.words.descriptor())?, own(self.common.socket.descriptor())?];
        Ok(Awaited { descriptors, tells_room: false })
    }

    fn arm(&mut self) -> Result<bool> {
        if self.ended { Ok(false) } else { self.ring.may_sleep() }
    }

    fn woken(&mut self) -> Result<()> {
        self.ring.awake();
        let alive = self.words.quiet();
        self.ended = self.ended || self.common.has_ended()? || !alive;
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        if !self.ended && self.ring.may_sleep()? {
            let slept = self.words.sleep(&self.common.socket, timeout);
            self.ring.awake();
            let alive = self.words.quiet();
            slept.map_err(|e| failed(&self.common.peer, &e))?;
            self.ended = self.common.has_ended()? || !alive;
        }
        Ok(())
    }

    fn borrow(&mut self, slots: &[u32]) -> Result<Vec<SharedBlock>> {
        let Some(borrower) = &self.borrower else {
            return match slots {
                [] => Ok(Vec::new()),
                _ => Err(corrupt(
                    format!("message from {}", self.common.peer),
                    "this side lends no blocks",
                )),
            };
        };
        slots.iter().map(|slot| borrower.borrow(*slot, &self.common.peer)).collect()
    }
}

/// The side that lends.
struct Lender {
    memory: Arc<Mapping>,
    arena: Arena,
    freed: Consumer<Mapping>,
    free: Vec<u32>,
    lent: Vec<bool>,
}

impl Lender {
    fn new(memory: &Arc<Mapping>, arena: Arena) -> Self {
        let slots = memory.layout.slots();
        Self {
            memory: memory.clone(),
            arena,
            freed: Consumer::new(memory.clone(), arena.freed),
            free: (0..slots).rev().collect(),
            lent: vec![false; slots as usize],
        }
    }

    /// Takes back what the peer gave back.
    fn collect(&mut self) -> Result<()> {
        let n = self.freed.available()?;
        for _ in 0..n {
            let slot = self.freed.take();
            let known = usize::try_from(slot).ok().and_then(|slot| self.lent.get_mut(slot));
            match known {
                Some(lent) if *lent => *lent = false,
                _ => {
                    let detail = format!("slot {slot} came back and was not lent");
                    return Err(corrupt("arena in shared memory", detail));
                }
            }
            self.free.push(slot as u32);
        }
        if n > 0 {
            // The ring has room for every slot: its producer never sleeps.
            let _ = self.freed.publish();
        }
        Ok(())
    }

    fn lend(&mut self, blocks: &[SharedBlock]) -> Result<Vec<u32>> {
        if self.free.len() < blocks.len() {
            self.collect()?;
        }
        let n = blocks.len().min(self.free.len());
        let slots = self.free.split_off(self.free.len() - n);
        for (slot, block) in slots.iter().zip(blocks) {
            self.memory.write_slot(&self.arena, *slot, block);
            *self.lent.get_mut(*slot as usize).expect("slots are counted from 0") = true;
        }
        Ok(slots)
    }
}

/// The side that borrows.
struct Borrower {
    memory: Arc<Mapping>,
    arena: Arena,
    slots: Arc<Slots>,
}

/// Slots in use, and the ring by which they go back.
struct Slots {
    state: Mutex<(Vec<bool>, Producer<Mapping>)>,
}

impl Borrower {
    fn new(memory: &Arc<Mapping>, arena: Arena) -> Self {
        let used = vec![false; memory.layout.slots() as usize];
        let freed = Producer::new(memory.clone(), arena.freed);
        let slots = Arc::new(Slots { state: Mutex::new((used, freed)) });
        Self { memory: memory.clone(), arena, slots }
    }

    fn borrow(&self, slot: u32, peer: &str) -> Result<SharedBlock> {
        if !self.slots.take(slot) {
            let detail = format!("it lends slot {slot}, which it has lent before");
            return Err(corrupt(format!("message from {peer}"), detail));
        }
        let (memory, slots) = (self.memory.clone(), self.slots.clone());
        Ok(SharedBlock::lent(LentSlot { memory, arena: self.arena, slots, slot }))
    }
}

/// A slot that was lent to us, until it is dropped.
struct LentSlot {
    memory: Arc<Mapping>,
    arena: Arena,
    slots: Arc<Slots>,
    slot: u32,
}

impl LentBlock for LentSlot {
    fn read(&self, into: &mut [u8; BLOCK_SIZE]) {
        self.memory.read_slot(&self.arena, self.slot, into);
    }
}

impl Drop for LentSlot {
    fn drop(&mut self) {
        self.slots.give_back(self.slot);
    }
}

impl Slots {
    fn take(&self, slot: u32) -> bool {
        let (used, _) = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        used.get_mut(slot as usize).is_some_and(|used| !std::mem::replace(used, true))
    }

    fn give_back(&self, slot: u32) {
        let (used, freed) = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *used.get_mut(slot as usize).expect("only what was taken comes back") = false;
        // There is room for all slots; if the ring says otherwise, the peer broke it, and only the
        // peer misses the slot.
        if freed.room().is_ok_and(|room| room > 0) {
            freed.put(u64::from(slot));
            let _ = freed.publish();
        }
    }
}

#[cfg(test)]
#[path = "shm_tests.rs"]
mod tests;
