//! File logs as the volume's registry has them.

use crate::{LogFile, LogShape, RegisteredLease};
use siftfs_base::Result;
use siftfs_registry::LogRow;
use std::os::fd::BorrowedFd;

impl LogFile for LogRow {
    fn passed(&self) -> (BorrowedFd<'_>, LogShape) {
        (self.descriptor(), LogShape { len: self.len(), key: self.key() })
    }

    fn register(&mut self, lease: RegisteredLease) -> Result<bool> {
        Self::register(self, lease)
    }

    fn end(&mut self, numbers: &[u64]) -> Result<()> {
        Self::end(self, numbers)
    }

    fn forget(&mut self, end: u64) -> Result<()> {
        self.begin(end)
    }

    fn empty(&self) -> Result<()> {
        Self::empty(self)
    }

    fn remove(self: Box<Self>) -> Result<()> {
        Self::remove(*self)
    }
}
