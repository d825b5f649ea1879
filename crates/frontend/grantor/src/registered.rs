//! File logs as the volume's registry has them.

use crate::{LogFile, LogShape, RegisteredLease};
use rustix::fs::{fsync, ftruncate};
use siftfs_base::{Result, errno};
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
        let file = self.descriptor();
        let emptied = ftruncate(file, 0).and_then(|()| fsync(file));
        emptied.map_err(|e| errno(e.raw_os_error()))
    }

    fn remove(self: Box<Self>) -> Result<()> {
        Self::remove(*self)
    }
}
