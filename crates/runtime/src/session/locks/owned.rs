//! What one owner has of one file: parts that have no byte in common.

use crate::state::tree::references::SessionId;
use siftfs_proto::{HeldLock, LockKind, LockRange};
use std::collections::BTreeMap;

/// Whose a lock is: a number means nothing in another session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct OwnerId {
    pub(crate) session: SessionId,
    pub(crate) number: u64,
}

/// A lock as it was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lock {
    pub(super) kind: LockKind,
    pub(super) pid: u32,
    /// It ends with this handle.
    pub(super) handle: u64,
}

/// A lock of some bytes, the first of which is its place in the map.
#[derive(Clone, Copy, Debug)]
struct Part {
    last: u64,
    lock: Lock,
}

/// The parts of one owner.
#[derive(Debug)]
pub(super) struct Owned {
    /// The user whom they are counted to.
    pub(super) user: u32,
    parts: BTreeMap<u64, Part>,
}

/// The handles of parts that are gone, and of parts that are there instead.
#[derive(Default, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) gone: Vec<u64>,
    pub(super) new: Vec<u64>,
}

fn range(first: u64, last: u64) -> LockRange {
    LockRange::new(first, last).expect("a part has a byte, and none beyond the last")
}

impl Owned {
    /// Nothing, of an owner who is this user.
    pub(super) fn of(user: u32) -> Self {
        Self { user, parts: BTreeMap::new() }
    }

    /// Parts.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The parts with a byte of `of`, in order.
    fn within(&self, of: LockRange) -> impl Iterator<Item = (u64, Part)> {
        let before = self.parts.range(..=of.first()).next_back();
        let from = before.filter(|(_, part)| part.last >= of.first()).map_or(of.first(), |b| *b.0);
        self.parts.range(from..=of.last()).map(|(first, part)| (*first, *part))
    }

    /// The first of the parts with a byte of `of` that keeps others from `kind`.
    pub(super) fn refuses(&self, of: LockRange, kind: LockKind) -> Option<HeldLock> {
        let (first, part) = self.within(of).find(|(_, part)| part.lock.kind.conflicts(kind))?;
        Some(self.around(first, part))
    }

    /// The handles of all parts with a byte of `of` that keep others from `kind`.
    pub(super) fn handles(&self, of: LockRange, kind: LockKind) -> impl Iterator<Item = u64> {
        let parts = self.within(of).filter(move |(_, part)| part.lock.kind.conflicts(kind));
        parts.map(|(_, part)| part.lock.handle)
    }

    /// A part, with those beside it that differ in their handle alone.
    fn around(&self, mut first: u64, part: Part) -> HeldLock {
        let (kind, mut last) = (part.lock.kind, part.last);
        while let Some((before, p)) = self.parts.range(..first).next_back()
            && p.lock.kind == kind
            && p.last + 1 == first
        {
            first = *before;
        }
        while let Some(p) = self.parts.get(&(last + 1)).filter(|p| p.lock.kind == kind) {
            last = p.last;
        }
        HeldLock { kind, range: range(first, last), pid: part.lock.pid }
    }

    /// Has the owner every byte of `of` as `kind`?
    pub(super) fn has_all(&self, of: LockRange, kind: LockKind) -> bool {
        let mut next = of.first();
        for (first, part) in self.within(of) {
            if first > next || part.lock.kind != kind {
                return false;
            }
            next = part.last + 1;
        }
        next > of.last()
    }

    /// How many parts more there may be after [`Owned::set`], at most.
    pub(super) fn grows(&self, of: LockRange, takes: bool) -> u64 {
        let cut = |(first, part): (u64, Part)| first < of.first() && part.last > of.last();
        u64::from(takes) + u64::from(self.within(of).next().is_some_and(cut))
    }

    /// From here on the owner has `lock` of these bytes, or nothing.
    pub(super) fn set(&mut self, of: LockRange, lock: Option<Lock>) -> Change {
        let mut change = Change::default();
        let over: Vec<(u64, Part)> = self.within(of).collect();
        for (first, part) in over {
            self.remove(first, &mut change);
            if first < of.first() {
                self.insert(range(first, of.first() - 1), part.lock, &mut change);
            }
            if part.last > of.last() {
                self.insert(range(of.last() + 1, part.last), part.lock, &mut change);
            }
        }
        if let Some(lock) = lock {
            self.insert(of, lock, &mut change);
        }
        change
    }

    /// Everything that was taken through `handle` is gone.
    pub(super) fn close(&mut self, handle: u64) -> Change {
        let mut change = Change::default();
        self.parts.retain(|_, part| {
            part.lock.handle != handle || {
                change.gone.push(handle);
                false
            }
        });
        change
    }

    fn remove(&mut self, first: u64, change: &mut Change) -> Part {
        let part = self.parts.remove(&first).expect("a part that was found");
        change.gone.push(part.lock.handle);
        part
    }

    /// Adds bytes that the owner has nothing of. Parts beside them that are alike become one with
    /// them.
    fn insert(&mut self, of: LockRange, lock: Lock, change: &mut Change) {
        let alike = |p: &Part| p.lock.kind == lock.kind && p.lock.handle == lock.handle;
        let (mut first, mut last) = (of.first(), of.last());
        let before = self.parts.range(..first).next_back();
        if let Some((begin, _)) = before.filter(|(_, p)| alike(p) && p.last + 1 == of.first()) {
            first = *begin;
            self.remove(first, change);
        }
        if self.parts.get(&(last + 1)).is_some_and(alike) {
            last = self.remove(last + 1, change).last;
        }
        self.parts.insert(first, Part { last, lock });
        change.new.push(lock.handle);
    }
}

#[cfg(test)]
#[path = "owned_tests.rs"]
pub(super) mod tests;
