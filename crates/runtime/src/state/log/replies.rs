//! Whose calls made the name operations that their clients may not know to be carried out (rule
//! R53).
//!
//! A client of another machine gives a slot its next call when it has the answer of the one before.
//! So each slot has at most one call that would be carried out twice if the server died with its
//! answer. What is noted here of it becomes durable together with the operation: in the record
//! that carries it, and at a cut in a record directly behind it.

use crate::state::log::Log;
use crate::state::log::lane::Place;
use crate::state::step::{Need, Step, Stop};
use siftfs_base::{BLOCK_BYTES, InodeNr, Lsn, Result, errno};
use siftfs_log::{Item, NameOp, REPLIES_PER_RECORD, RecordLayout, ReplyItem, replies_len};
use siftfs_proto::{NO_SLOT, ORIGIN_CLIENTS, ORIGIN_SLOTS, Origin};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The lane that has the record of a cut: the first one on block storage.
pub const LANE: usize = 0;

/// A record of replies takes at most this share of its lane, and keeps twice its length free.
const SHARE: u64 = 32;

/// A client's slot.
type Slot = (u64, u32);

/// The newest change of names of each slot.
#[derive(Default)]
pub struct Replies {
    noted: BTreeMap<Slot, ReplyItem>,
    /// The slots whose newest operation this is.
    by_lsn: BTreeMap<Lsn, Slot>,
    /// How many slots of each client are noted.
    clients: BTreeMap<u64, usize>,
    /// The call that is being carried out under the state lock.
    current: Option<Arc<Origin>>,
    /// A record of replies is behind the newest cut.
    staged: bool,
    /// Changes so far of calls that have an origin.
    changes: u64,
    /// Nothing more is noted: the volume is being closed.
    closed: bool,
}

impl Replies {
    /// A call begins to change something, under the hold of the state lock that ends with
    /// [`Replies::leave`]. What was noted of its slot's earlier call is forgotten: the client has
    /// that answer.
    fn enter(&mut self, origin: &Arc<Origin>) {
        let slot = (origin.client, origin.slot);
        if self.noted.get(&slot).is_some_and(|noted| noted.number != origin.number) {
            self.forget(slot);
        }
        self.current = Some(origin.clone());
    }

    /// The call lets go of the lock.
    pub fn leave(&mut self) {
        self.current = None;
    }

    /// A call has changed something: its place in the order of all such changes.
    pub fn changed(&mut self, origin: &Origin) {
        self.changes += 1;
        origin.ordered(self.changes);
    }

    /// Inode number and generation that the call's creation must have.
    pub fn again(&self) -> Option<(InodeNr, u32)> {
        self.current.as_ref()?.again
    }

    /// The call under way has made a name operation.
    pub fn made(&mut self, op: &NameOp) {
        let Some(origin) = &self.current else { return };
        origin.made(op.lsn);
        let (client, slot, number) = (origin.client, origin.slot, origin.number);
        let ino = super::names::inodes(op)[0];
        let mut item = ReplyItem { client, slot, number, lsn: op.lsn, ino };
        match self.noted.get(&(client, slot)) {
            // An operation before this one, of the same call.
            Some(noted) => {
                item.ino = noted.ino;
                self.by_lsn.remove(&noted.lsn);
            }
            None => *self.clients.entry(client).or_default() += 1,
        }
        self.by_lsn.insert(op.lsn, (client, slot));
        self.noted.insert((client, slot), item);
    }

    /// As long as what a record has to say of the call under way, if that has an origin.
    pub fn coming(&self) -> Option<Item> {
        let (number, lsn) = (0, Lsn(1));
        let reply = |_: &Arc<Origin>| ReplyItem { client: 1, slot: 0, number, lsn, ino: 1 };
        self.current.as_ref().map(reply).map(Item::Reply)
    }

    /// What a record of this name operation has to say of its call.
    pub fn of(&self, lsn: Lsn) -> Option<Item> {
        let slot = self.by_lsn.get(&lsn)?;
        self.noted.get(slot).copied().map(Item::Reply)
    }

    /// A client is gone for good.
    fn forget_client(&mut self, client: u64) {
        let slots = self.noted.range((client, 0)..=(client, u32::MAX));
        let slots: Vec<Slot> = slots.map(|(slot, _)| *slot).collect();
        slots.into_iter().for_each(|slot| self.forget(slot));
    }

    /// Everything becomes final: no client is answered any more.
    fn forget_all(&mut self) {
        let Self { noted, by_lsn, clients, .. } = self;
        noted.clear();
        by_lsn.clear();
        clients.clear();
    }

    fn forget(&mut self, slot: Slot) {
        let Some(noted) = self.noted.remove(&slot) else { return };
        self.by_lsn.remove(&noted.lsn);
        if let Some(slots) = self.clients.get_mut(&slot.0) {
            *slots -= 1;
            if *slots == 0 {
                self.clients.remove(&slot.0);
            }
        }
    }

    /// What a record behind a cut says: everything that is noted.
    pub fn items(&self) -> Vec<Item> {
        self.noted.values().copied().map(Item::Reply).collect()
    }

    /// How many are noted.
    pub fn len(&self) -> usize {
        self.noted.len()
    }

    /// A cut was made: is a record of replies behind it?
    pub fn cut(&mut self, staged: bool) {
        self.staged = staged;
    }

    /// Does a record behind the newest cut say what nobody needs any more? A cut without one frees
    /// it.
    pub fn is_stale(&self) -> bool {
        self.staged && self.noted.is_empty()
    }

    /// How many slots are noted once the call's is?
    fn check(&self, origin: &Origin) -> Result<usize> {
        if self.closed {
            return Err(errno(libc::EROFS));
        }
        if origin.client == 0 || origin.slot >= ORIGIN_SLOTS {
            return Err(errno(libc::EINVAL));
        }
        let known = self.noted.contains_key(&(origin.client, origin.slot));
        let slots = self.noted.len() + usize::from(!known);
        let one_more = !self.clients.contains_key(&origin.client);
        if one_more && self.clients.len() >= ORIGIN_CLIENTS || slots > REPLIES_PER_RECORD {
            return Err(errno(libc::EAGAIN));
        }
        Ok(slots)
    }
}

impl Log {
    /// A call begins to change something, if it has an origin: there will be room for what the
    /// next cut says of it. [`Replies::leave`] ends that.
    ///
    /// # Errors
    /// `EROFS` if the volume is being closed, `EINVAL` for a call that cannot be, `EAGAIN` if there
    /// are too many clients or slots. Stops for room in the lane.
    pub fn enter_call(&mut self, origin: Option<&Arc<Origin>>) -> Step<()> {
        self.replies.leave();
        let Some(origin) = origin.filter(|origin| origin.slot != NO_SLOT) else { return Ok(()) };
        let slots = self.replies.check(origin)?;
        let (len, ring) = (replies_len(slots), self.staging.lanes()[LANE].len);
        if len > (ring / SHARE).max(BLOCK_BYTES) {
            return Err(errno(libc::EAGAIN).into());
        }
        if !self.staging.keep_room(LANE, 2 * len) {
            return Err(Stop::Needs(Need::Log));
        }
        self.replies.enter(origin);
        Ok(())
    }

    /// A client is gone for good: what is noted of its calls is forgotten.
    pub fn forget_client(&mut self, client: u64) {
        self.replies.forget_client(client);
        if self.replies.len() == 0 {
            self.staging.keep_no_room(LANE);
        }
    }

    /// No call with an origin changes anything any more. Is there a note that will be forgotten?
    pub fn end_calls(&mut self) -> bool {
        self.replies.closed = true;
        self.replies.len() > 0
    }

    /// Everything becomes final, and no client is answered any more.
    pub fn forget_clients(&mut self) {
        self.replies.forget_all();
        self.staging.keep_no_room(LANE);
    }

    /// Before a cut: there is room for what it has to say of calls.
    ///
    /// # Errors
    /// Stops for room in the lane.
    pub fn room_for_replies(&self) -> Step<()> {
        match self.replies.len() {
            0 => Ok(()),
            _ => self.place_of_replies(&self.layout_of_replies()).map(drop),
        }
    }

    /// Sizes of the record that says what is noted.
    pub fn layout_of_replies(&self) -> RecordLayout {
        RecordLayout::new(&self.replies.items(), 0).expect("bounded when each was noted")
    }

    /// Its place.
    ///
    /// # Errors
    /// Stops for room in the lane.
    pub fn place_of_replies(&self, layout: &RecordLayout) -> Step<Place> {
        let place = self.staging.lanes()[LANE].place_kept(u64::from(layout.len));
        place.ok_or(Stop::Needs(Need::Log))
    }
}

#[cfg(test)]
#[path = "replies_tests.rs"]
mod tests;
