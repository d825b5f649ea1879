//! Transactions that are not committed: in memory alone.

use siftfs_base::{Error, Result};
use std::collections::HashMap;

/// Most of one owner at once.
const MOST_RUNNING: usize = 8;
/// Most bytes of all of one owner's.
const MOST_BYTES: usize = 16 << 20;
/// Most bytes of all owners'.
const MOST_OF_ALL: usize = 256 << 20;
/// What a range takes besides its bytes.
const RUN: usize = 64;

/// What one transaction writes.
#[derive(Default)]
pub(super) struct Writes {
    /// First byte in the area, and length; the bytes follow each other in `data`.
    pub runs: Vec<(u64, usize)>,
    pub data: Vec<u8>,
}

impl Writes {
    fn memory(&self) -> usize {
        self.data.len() + self.runs.len() * RUN
    }

    fn push(&mut self, offset: u64, bytes: &[u8]) {
        match self.runs.last_mut() {
            Some((start, len)) if *start + *len as u64 == offset => *len += bytes.len(),
            _ => self.runs.push((offset, bytes.len())),
        }
        self.data.extend_from_slice(bytes);
    }
}

/// All that run, by owner and by the number that the owner has given them.
#[derive(Default)]
pub(super) struct Running {
    of: HashMap<u64, HashMap<u64, Writes>>,
    memory: usize,
}

impl Running {
    /// Adds to a transaction, which begins with that if it was not there.
    ///
    /// # Errors
    /// `EFBIG`: it would be larger than `most` bytes, or than one owner's may be. `EAGAIN`: there
    /// are too many, or too many bytes. Nothing has changed.
    pub fn append(
        &mut self,
        (owner, id): (u64, u64),
        (offset, bytes): (u64, &[u8]),
        most: usize,
    ) -> Result<()> {
        let own = self.of.get(&owner);
        let writes = own.and_then(|own| own.get(&id));
        let (before, data) = writes.map_or((0, 0), |w| (w.memory(), w.data.len()));
        let more = bytes.len() + RUN;
        if data + bytes.len() > most || before + more > MOST_BYTES {
            return Err(Error::Posix(libc::EFBIG));
        }
        let (count, all) =
            own.map_or((0, 0), |own| (own.len(), own.values().map(Writes::memory).sum()));
        let one_more = writes.is_none() && count >= MOST_RUNNING;
        if one_more || all + more > MOST_BYTES || self.memory + more > MOST_OF_ALL {
            return Err(Error::Posix(libc::EAGAIN));
        }
        let writes = self.of.entry(owner).or_default().entry(id).or_default();
        writes.push(offset, bytes);
        self.memory += writes.memory() - before;
        Ok(())
    }

    /// This many bytes more are to come to a transaction that is there: they get their memory, if
    /// it may have them.
    pub fn expect(&mut self, (owner, id): (u64, u64), bytes: usize, most: usize) {
        let writes = self.of.get_mut(&owner).and_then(|own| own.get_mut(&id));
        if let Some(writes) = writes.filter(|w| w.data.len().saturating_add(bytes) <= most) {
            writes.data.reserve(bytes);
        }
    }

    /// Takes a transaction out; `None` if nothing was written in it.
    pub fn take(&mut self, owner: u64, id: u64) -> Option<Writes> {
        let own = self.of.get_mut(&owner)?;
        let writes = own.remove(&id)?;
        if own.is_empty() {
            self.of.remove(&owner);
        }
        self.memory -= writes.memory();
        Some(writes)
    }

    /// Drops all of an owner's.
    pub fn drop_all(&mut self, owner: u64) {
        let own = self.of.remove(&owner).unwrap_or_default();
        self.memory -= own.values().map(Writes::memory).sum::<usize>();
    }
}

#[cfg(test)]
#[path = "running_tests.rs"]
mod tests;
