//! What the table says of one block.

use std::num::NonZeroU32;

/// The written bit of an entry; the rest is the owner's id.
const WRITTEN: u32 = 1 << 31;

/// A file that has something granted. Its id is drawn again only after 2^31 others, and never
/// while an entry of the table has it: so one that was kept beyond its end owns nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(NonZeroU32);

impl Owner {
    /// The owner of this id, which is below 2^31 and not 0.
    pub(super) fn of(id: u32) -> Option<Self> {
        NonZeroU32::new(id).filter(|id| id.get() < WRITTEN).map(Self)
    }

    /// The number that stands for it.
    pub(super) fn id(self) -> u32 {
        self.0.get()
    }
}

/// Who has a block, and whether it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    /// Nobody has the block.
    pub const FREE: Self = Self(0);

    pub fn new(owner: Owner, written: bool) -> Self {
        Self(owner.id() | if written { WRITTEN } else { 0 })
    }

    pub fn is_of(self, owner: Owner) -> bool {
        self.0 & !WRITTEN == owner.id()
    }

    pub fn is_written(self) -> bool {
        self.0 & WRITTEN != 0
    }

    /// As the scratch file has it.
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    /// Of the scratch file. Whether these are the bytes that were written there is not known here.
    pub fn from_bytes(bytes: [u8; 4]) -> Self {
        Self(u32::from_le_bytes(bytes))
    }
}
