//! Blocks in memory.

use crate::BLOCK_SIZE;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

type Bytes = [u8; BLOCK_SIZE];

/// One block's bytes, shared until a holder changes them: a snapshot takes a reference, and the
/// next writer makes a copy of its own (copy on write).
///
/// The bytes are this process's own, or *lent*: they lie in memory that another process can write.
/// Of those no reference is ever given out. The first read of a lent block takes a private copy,
/// once, and every read and every later [`SharedBlock::copy_to`] sees that one copy, so that
/// nothing can change between a check and a use (rule R19). A caller that wants the bytes somewhere
/// else anyway saves that copy by `copy_to`, and checks what arrived there.
#[derive(Clone)]
pub struct SharedBlock(Repr);

#[derive(Clone)]
enum Repr {
    Own(Arc<Bytes>),
    Lent(Arc<Loan>),
}

/// A block in memory that another process can write. Dropping it gives the memory back.
pub trait LentBlock: Send + Sync {
    /// Copies the bytes as they are now, each read once.
    fn read(&self, into: &mut [u8; BLOCK_SIZE]);
}

struct Loan {
    lent: Box<dyn LentBlock>,
    /// The private copy that the first read took.
    seen: OnceLock<Box<Bytes>>,
}

impl Loan {
    fn bytes(&self) -> &Bytes {
        self.seen.get_or_init(|| {
            let mut bytes = Box::new([0; BLOCK_SIZE]);
            self.lent.read(&mut bytes);
            bytes
        })
    }
}

impl SharedBlock {
    /// A block of zeros.
    pub fn zeroed() -> Self {
        [0; BLOCK_SIZE].into()
    }

    /// A block that is lent. It is given back when the last reference to it is dropped.
    pub fn lent(lent: impl LentBlock + 'static) -> Self {
        Self(Repr::Lent(Arc::new(Loan { lent: Box::new(lent), seen: OnceLock::new() })))
    }

    /// Copies the bytes, of a lent block without another copy in between.
    pub fn copy_to(&self, into: &mut [u8; BLOCK_SIZE]) {
        match &self.0 {
            Repr::Lent(loan) if loan.seen.get().is_none() => loan.lent.read(into),
            _ => into.copy_from_slice(&self[..]),
        }
    }

    /// Are both the same memory? As long as both live, their bytes are the same then, even if a
    /// third reference is changed: that one becomes a copy of its own.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Repr::Own(a), Repr::Own(b)) => Arc::ptr_eq(a, b),
            (Repr::Lent(a), Repr::Lent(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The bytes, to be changed; a copy of its own is made first if there is another reference to
    /// them.
    pub fn make_mut(&mut self) -> &mut [u8; BLOCK_SIZE] {
        if let Repr::Lent(loan) = &self.0 {
            self.0 = Repr::Own(Arc::new(*loan.bytes()));
        }
        match &mut self.0 {
            Repr::Own(bytes) => Arc::make_mut(bytes),
            Repr::Lent(_) => unreachable!("it was made our own just now"),
        }
    }
}

impl Deref for SharedBlock {
    type Target = [u8; BLOCK_SIZE];
    fn deref(&self) -> &[u8; BLOCK_SIZE] {
        match &self.0 {
            Repr::Own(bytes) => bytes,
            Repr::Lent(loan) => loan.bytes(),
        }
    }
}

impl From<Bytes> for SharedBlock {
    fn from(bytes: Bytes) -> Self {
        Arc::new(bytes).into()
    }
}

impl From<Arc<Bytes>> for SharedBlock {
    fn from(bytes: Arc<Bytes>) -> Self {
        Self(Repr::Own(bytes))
    }
}

impl PartialEq for SharedBlock {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBlock {}

impl fmt::Debug for SharedBlock {
    /// Shows the checksum only: 4096 numbers do not help, and may be a user's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBlock({:08x})", crate::crc32c(&self[..]))
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
