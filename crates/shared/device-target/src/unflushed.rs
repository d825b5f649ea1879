//! What was written and is not known to be durable: it is written again where the target that took
//! it has died (`docs/design/target.md`, "A lost target").
//!
//! Writes are kept from before they are sent, so that none is missed, in their order. A flush lets
//! those go that had been answered before it began. A durable write goes when it is answered,
//! unless it covers bytes of an older one that is kept: written again, that would come over it.

use siftfs_base::SharedBlock;

/// A write as it goes over the connection.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The bytes, and zeros up to a whole block.
    pub blocks: Vec<SharedBlock>,
}

impl Written {
    fn overlaps(&self, other: &Self) -> bool {
        let end = |of: &Self| of.offset + u64::from(of.len);
        self.offset < end(other) && other.offset < end(self)
    }
}

struct Entry {
    number: u64,
    /// Its place in a queue's order.
    request: Option<u64>,
    /// Its answer came.
    answered: bool,
    written: Written,
}

/// The writes of one device.
#[derive(Default)]
pub(crate) struct Unflushed {
    next: u64,
    bytes: u64,
    entries: Vec<Entry>,
}

impl Unflushed {
    /// Keeps a write that is about to be sent, and names it.
    pub fn keep(&mut self, written: Written) -> u64 {
        self.keep_request(written, None)
    }

    /// As [`Unflushed::keep`], of a request that has a place in its queue.
    pub fn keep_request(&mut self, written: Written, request: Option<u64>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += u64::from(written.len);
        self.entries.push(Entry { number, request, answered: false, written });
        number
    }

    /// A write that is kept gets its place in the queue.
    pub fn place(&mut self, number: u64, request: Option<u64>) {
        if let Ok(at) = self.entries.binary_search_by_key(&number, |entry| entry.number)
            && let Some(entry) = self.entries.get_mut(at)
        {
            entry.request = request;
        }
    }

    /// The writes that were not answered, in order: their names, and their places.
    pub fn unanswered(&self) -> Vec<(u64, Option<u64>, Written)> {
        let open = self.entries.iter().filter(|entry| !entry.answered);
        open.map(|entry| (entry.number, entry.request, entry.written.clone())).collect()
    }

    /// What was answered is durable; the rest is kept.
    pub fn drop_answered(&mut self) {
        let covered = self.covered(0);
        self.flushed(&covered);
    }

    /// A write was carried out.
    pub fn answered(&mut self, number: u64, durable: bool) {
        let Ok(at) = self.entries.binary_search_by_key(&number, |entry| entry.number) else {
            return;
        };
        let (older, rest) = self.entries.split_at_mut(at);
        let Some(entry) = rest.first_mut() else { return };
        entry.answered = true;
        if durable && !older.iter().any(|older| older.written.overlaps(&entry.written)) {
            self.remove(at);
        }
    }

    /// A write was refused: its caller knows, and it is not tried again.
    pub fn refused(&mut self, number: u64) {
        if let Ok(at) = self.entries.binary_search_by_key(&number, |entry| entry.number) {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let entry = self.entries.remove(at);
        self.bytes -= u64::from(entry.written.len);
    }

    /// What a flush that begins now covers, where all requests below this place have ended.
    pub fn covered(&self, ended_below: u64) -> Vec<u64> {
        let ended = |e: &Entry| e.answered || e.request.is_some_and(|at| at < ended_below);
        self.entries.iter().filter(|e| ended(e)).map(|e| e.number).collect()
    }

    /// A flush has made these durable, which are in order.
    pub fn flushed(&mut self, covered: &[u64]) {
        self.entries.retain(|entry| covered.binary_search(&entry.number).is_err());
        self.bytes = self.entries.iter().map(|entry| u64::from(entry.written.len)).sum();
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All that is kept, in order.
    pub fn all(&self) -> Vec<Written> {
        self.entries.iter().map(|entry| entry.written.clone()).collect()
    }
}

#[cfg(test)]
#[path = "unflushed_tests.rs"]
mod tests;
