//! File data in messages: bytes, or whole blocks that both sides share and neither changes.

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, SharedBlock};

/// From this many bytes on, data that is read travels as blocks: what is copied once goes by
/// reference from there on, and no buffer of this size has to be made for it.
const MANY: usize = 64 << 10;

/// What a `Write` brings.
#[derive(Clone, PartialEq, Eq)]
pub enum WriteData {
    /// Any bytes.
    Bytes(Vec<u8>),
    /// Whole blocks, for an offset on a block's begin.
    Blocks(Vec<SharedBlock>),
}

impl WriteData {
    /// A copy of `data`, to be written at `offset`: whole blocks as such, which become pages of the
    /// cache without another copy.
    pub fn copy_of(offset: u64, data: &[u8]) -> Self {
        let (blocks, rest) = data.as_chunks::<BLOCK_SIZE>();
        if data.is_empty() || !offset.is_multiple_of(BLOCK_BYTES) || !rest.is_empty() {
            return Self::Bytes(data.to_vec());
        }
        Self::Blocks(blocks.iter().map(|b| SharedBlock::from(*b)).collect())
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Blocks(blocks) => blocks.len() * BLOCK_SIZE,
        }
    }

    /// No bytes at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the first `len` bytes, in whole blocks if it is blocks.
    pub fn truncate(&mut self, len: u64) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        match self {
            Self::Bytes(bytes) => bytes.truncate(len),
            Self::Blocks(blocks) => blocks.truncate(len / BLOCK_SIZE),
        }
    }

    /// They are to be written at `offset`, wherever they were meant for: whole blocks become bytes
    /// if no block begins there.
    pub fn move_to(&mut self, offset: u64) {
        if matches!(self, Self::Blocks(_)) && !offset.is_multiple_of(BLOCK_BYTES) {
            *self = Self::Bytes(std::mem::replace(self, Self::Bytes(Vec::new())).into_bytes());
        }
    }

    /// The bytes as one piece.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Blocks(blocks) => blocks.iter().flat_map(|b| b.iter().copied()).collect(),
        }
    }
}

impl From<Vec<u8>> for WriteData {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl std::fmt::Debug for WriteData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteData({} bytes)", self.len())
    }
}

/// What was read: some bytes of whole blocks that follow each other.
#[derive(Clone, PartialEq, Eq)]
pub struct Blocks {
    blocks: Vec<SharedBlock>,
    skip: usize,
    len: usize,
}

impl Blocks {
    /// `len` bytes from byte `skip` of the first block on.
    ///
    /// # Panics
    /// If the blocks do not hold them, or the first or last one holds none of them.
    pub fn new(blocks: Vec<SharedBlock>, skip: usize, len: usize) -> Self {
        let needed = (skip + len).div_ceil(BLOCK_SIZE);
        assert!(skip < BLOCK_SIZE && len > 0 && blocks.len() == needed, "blocks fit their bytes");
        Self { blocks, skip, len }
    }

    /// The blocks, and the byte of the first one with which the bytes begin.
    pub fn whole(&self) -> (&[SharedBlock], usize) {
        (&self.blocks, self.skip)
    }

    /// Is a read of this many bytes answered by blocks?
    pub fn serves(len: usize) -> bool {
        len >= MANY
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is there no byte? Never: [`Blocks::new`] takes at least one.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, piece by piece.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let end = self.skip + self.len;
        self.blocks.iter().enumerate().map(move |(i, block)| {
            let from = if i == 0 { self.skip } else { 0 };
            let to = (end - i * BLOCK_SIZE).min(BLOCK_SIZE);
            block.get(from..to).unwrap_or_default()
        })
    }

    /// The bytes as one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len);
        self.parts().for_each(|part| out.extend_from_slice(part));
        out
    }
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blocks({} bytes)", self.len)
    }
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
