//! Where everything lies in the two memories, in words of 8 bytes. Both sides know it by heart:
//! nothing in the memories says it, and the version stands for it.

/// Leases that a session may have, and may have had without giving their slots back.
pub const SLOTS: u32 = 1024;
/// Bytes that one record carries at most.
pub const MOST_BYTES: usize = 1 << 20;

/// Words of a record.
pub(crate) const RECORD_WORDS: usize = 8;
/// Words of a slot, in either memory: a cache line.
const SLOT_WORDS: usize = 8;

/// What the grantor's memory begins with.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"SiftLog1");
/// The layout of this file and the protocol of [`crate::Reader`] and [`crate::Writer`].
pub(crate) const LAYOUT_VERSION: u64 = 2;

/// Grantor's words.
pub(crate) const MAGIC_AT: usize = 0;
pub(crate) const VERSION_AT: usize = 1;
pub(crate) const EPOCH_AT: usize = 2;
pub(crate) const ALIVE_AT: usize = 8;
pub(crate) const TAIL_AT: usize = 16;
pub(crate) const UNTIL_AT: usize = 24;
pub(crate) const ORDER_AT: usize = 32;
pub(crate) const BEGIN_AT: usize = 40;
/// Holder's words.
pub(crate) const HEAD_AT: usize = 0;
pub(crate) const LOGGED_AT: usize = 8;

/// How much there is of everything. The product has [`FULL`]; a model checker has less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Words before the slots, in either memory.
    pub page: usize,
    /// Slots of leases.
    pub slots: usize,
    /// Records of the ring, a power of two.
    pub records: usize,
    /// Bytes of the ring of data, a power of two.
    pub data: usize,
}

/// The shape of every session.
pub const FULL: Shape = Shape { page: 512, slots: SLOTS as usize, records: 1024, data: 4 << 20 };

const _: () = {
    assert!(FULL.records.is_power_of_two() && FULL.data.is_power_of_two());
    assert!(FULL.page > BEGIN_AT && FULL.page.is_multiple_of(512));
    assert!(FULL.grantor_bytes() == (4 << 10) + (64 << 10));
    assert!(FULL.holder_bytes() == (4 << 10) + (64 << 10) + (64 << 10) + (4 << 20));
    assert!(FULL.record(0) == 512 + 8192 && FULL.data(0) == 512 + 8192 + 8192);
    assert!(FULL.word(1023) < FULL.grantor_words() && FULL.mtime(1023) < FULL.record(0));
    // What does not fit at the ring's end leaves less than its own length unused.
    assert!(2 * MOST_BYTES <= FULL.data);
};

impl Shape {
    /// Words of the grantor's memory.
    pub const fn grantor_words(&self) -> usize {
        self.page + self.slots * SLOT_WORDS
    }

    /// Bytes of it.
    pub const fn grantor_bytes(&self) -> usize {
        self.grantor_words() * 8
    }

    /// Words of the holder's memory.
    pub const fn holder_words(&self) -> usize {
        self.page + self.slots * SLOT_WORDS + self.records * RECORD_WORDS + self.data / 8
    }

    /// Bytes of it.
    pub const fn holder_bytes(&self) -> usize {
        self.holder_words() * 8
    }

    /// The lease word of a slot, in the grantor's memory.
    pub const fn word(&self, slot: u32) -> usize {
        self.page + slot as usize * SLOT_WORDS
    }

    /// Up to which record the slot's lease was taken in when it ended.
    pub(crate) const fn ingested(&self, slot: u32) -> usize {
        self.word(slot) + 1
    }

    /// The order up to which all is durable for the slot's file; 0 if the log is no way for it.
    pub(crate) const fn covered(&self, slot: u32) -> usize {
        self.word(slot) + 2
    }

    /// Whose size and time a slot of the holder's memory has.
    pub(crate) const fn number(&self, slot: u32) -> usize {
        self.page + slot as usize * SLOT_WORDS
    }

    /// The file's size, in bytes.
    pub(crate) const fn size(&self, slot: u32) -> usize {
        self.number(slot) + 1
    }

    /// The file's mtime, in nanoseconds since 1970, as an i64.
    pub(crate) const fn mtime(&self, slot: u32) -> usize {
        self.number(slot) + 2
    }

    /// The place of the record of this number.
    pub(crate) const fn record(&self, number: u64) -> usize {
        let index = number & (self.records as u64 - 1);
        self.page + self.slots * SLOT_WORDS + index as usize * RECORD_WORDS
    }

    /// The place of data at this position, a multiple of 8.
    pub(crate) const fn data(&self, position: u64) -> usize {
        let at = position & (self.data as u64 - 1);
        self.page + self.slots * SLOT_WORDS + self.records * RECORD_WORDS + at as usize / 8
    }

    /// Where `len` bytes begin that follow those that end at `position`: there, or at the ring's
    /// begin if they would not be in one piece. None, if the counter is at its end.
    pub(crate) fn begin(&self, position: u64, len: usize) -> Option<u64> {
        let ring = self.data as u64;
        match (position & (ring - 1)).checked_add(len as u64)? > ring {
            true => position.checked_next_multiple_of(ring),
            false => Some(position),
        }
    }

    /// Where what follows `len` bytes at `begin` may begin.
    pub(crate) fn behind(&self, begin: u64, len: usize) -> Option<u64> {
        begin.checked_add(len as u64)?.checked_next_multiple_of(8)
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
