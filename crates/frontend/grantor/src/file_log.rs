//! A session's file log, as the daemon has it: which leases' records count, and what of it is
//! forgotten (`docs/design/private-logs.md`, "The file log").

use crate::{LogFile, RegisteredLease};
use siftfs_base::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Beyond all positions of a log.
const MOST_END: u64 = 1 << 62;

pub(crate) struct FileLog {
    file: Box<dyn LogFile>,
    /// What is forgotten of it.
    begin: u64,
    told: Arc<LogTold>,
}

/// What a log lies in, and what that promises.
pub(crate) struct LogTold {
    medium: &'static str,
    promise: String,
    /// The registry could not be written: the log is of no use any more.
    failed: AtomicBool,
}

impl LogTold {
    /// Its medium's name, and its promise for people; nothing, if it is of no use any more.
    pub fn describe(&self) -> Option<(&'static str, String)> {
        (!self.failed()).then(|| (self.medium, self.promise.clone()))
    }

    fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

impl FileLog {
    pub fn new(file: Box<dyn LogFile>) -> Self {
        let (_, shape) = file.passed();
        let (medium, promise) = (shape.medium.name(), file.promise().to_owned());
        let told = Arc::new(LogTold { medium, promise, failed: AtomicBool::new(false) });
        Self { file, begin: 0, told }
    }

    /// The log's file.
    pub fn file(&self) -> &dyn LogFile {
        &*self.file
    }

    /// What it lies in, for threads that do not have the log.
    pub fn told(&self) -> Arc<LogTold> {
        self.told.clone()
    }

    /// Can the newest batch end here? None ends before what is forgotten, or where a registry has
    /// no number for it.
    pub fn is_end(&self, end: u64) -> bool {
        let (_, shape) = self.file.passed();
        end.is_multiple_of(shape.unit()) && (self.begin..MOST_END).contains(&end)
    }

    /// From now on the lease's records count. False: the log has no room for it.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn register(&mut self, lease: RegisteredLease) -> Result<bool> {
        if self.told.failed() { Ok(false) } else { self.file.register(lease) }
    }

    /// The log is forgotten up to `end`.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn forget(&mut self, end: u64) -> Result<()> {
        if end > self.begin && !self.told.failed() {
            self.file.forget(end)?;
        }
        self.begin = end;
        Ok(())
    }

    /// Records of these leases do not count any more.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn end(&mut self, numbers: &[u64]) -> Result<()> {
        if self.told.failed() { Ok(()) } else { self.file.end(numbers) }
    }

    /// The registry cannot be written: the log has nothing any more.
    ///
    /// # Errors
    /// Its file cannot be changed, either.
    pub fn give_up(&mut self) -> Result<()> {
        self.told.failed.store(true, Ordering::Relaxed);
        self.file.empty()
    }

    /// The log goes, with its row of the registry. All of its leases have ended.
    ///
    /// # Errors
    /// The registry cannot be written.
    pub fn remove(self) -> Result<()> {
        self.file.remove()
    }
}
