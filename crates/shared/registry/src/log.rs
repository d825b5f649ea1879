//! A program's log while the volume is mounted.

use crate::directory::Shared;
use crate::folder::{about, log_name};
use crate::place::Proved;
use crate::row::{LogEntry, MOST_LEASES, RegisteredLease, is_position};
use crate::turns::Turns;
use siftfs_base::{Error, Result, corrupt};
use siftfs_lease::{LOG_BYTES, LogMedium, LogShape};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of one write of a new log.
const PIECE: usize = 1 << 20;

/// A log and its row. To drop it leaves both as they are, for recovery or [`Directory::remove`].
///
/// [`Directory::remove`]: crate::Directory::remove
pub struct LogRow {
    shared: Arc<Shared>,
    row: Turns,
    file: File,
    promise: String,
}

/// A log's file as its program gets it, and what was proved of it.
pub(crate) struct LogFile {
    pub file: File,
    pub proved: Proved,
}

impl LogRow {
    pub(crate) fn new(shared: Arc<Shared>, row: Turns, log: LogFile) -> Self {
        Self { shared, row, file: log.file, promise: log.proved.promise }
    }

    fn entry(&self) -> &LogEntry {
        self.row.entry().expect("a log has its row")
    }

    /// The log's file and nothing else, opened to be read and written, past the system's cache if
    /// it is not mapped: the program's.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// What its program has to know of it.
    pub fn shape(&self) -> LogShape {
        let LogEntry { len, key, medium, .. } = *self.entry();
        LogShape { len, key, medium }
    }

    /// How a batch of it becomes durable, and whether that outlives a power cut, for people.
    pub fn promise(&self) -> &str {
        &self.promise
    }

    /// Its number, which no other log of the registry ever has.
    pub fn number(&self) -> u64 {
        self.entry().number
    }

    /// From now on the lease's records count, durably. False if [`MOST_LEASES`] leases are there
    /// already. A lease that is there is not written again.
    ///
    /// # Errors
    /// The storage's; then every later call fails.
    pub fn register(&mut self, lease: RegisteredLease) -> Result<bool> {
        let entry = self.entry();
        if let Some(there) = entry.leases.iter().find(|there| there.number == lease.number) {
            assert_eq!(*there, lease, "a lease's number stands for one lease");
            return self.change(|_| false).map(|()| true);
        }
        if entry.leases.len() >= MOST_LEASES {
            return Ok(false);
        }
        if entry.leases.is_empty() && !self.shared.counting.begin() {
            return Err(Error::Latched("the volume is being closed".into()));
        }
        // After a failure the row may have the lease: it counts on.
        self.change(|entry| {
            entry.leases.push(lease);
            true
        })?;
        Ok(true)
    }

    /// The records of the leases with these numbers do not count any more, durably. Nothing is
    /// written if none of them is there.
    ///
    /// # Errors
    /// The storage's; then every later call fails.
    pub fn end(&mut self, numbers: &[u64]) -> Result<()> {
        let counted = !self.entry().leases.is_empty();
        self.change(|entry| {
            let before = entry.leases.len();
            entry.leases.retain(|lease| !numbers.contains(&lease.number));
            entry.leases.len() != before
        })?;
        if counted && self.entry().leases.is_empty() {
            self.shared.counting.end();
        }
        Ok(())
    }

    /// Batches before this position do not count any more, durably. Nothing is written if it is the
    /// begin already. A position is what a program says.
    ///
    /// # Errors
    /// Corrupt if no batch can end there, or it is before the present begin: nothing has changed.
    /// The storage's; then every later call fails.
    pub fn begin(&mut self, position: u64) -> Result<()> {
        let LogEntry { begin, medium, .. } = *self.entry();
        if position < begin || !is_position(position, medium) {
            return Err(corrupt("file log", format!("what it has cannot end at {position}")));
        }
        self.change(|entry| std::mem::replace(&mut entry.begin, position) != position)
    }

    /// No batch is left of the log, durably, whatever its row says. Its program may be about to
    /// write one, and nobody waits for it: so the log becomes another file. Where none can be made,
    /// it is emptied in its place.
    ///
    /// # Errors
    /// The storage's.
    pub fn empty(&self) -> Result<()> {
        let (folder, uuid) = (&self.shared.folder, self.shared.name.uuid());
        let name = log_name(uuid, self.number());
        let replaced = folder.replace(&name, &log_name(uuid, format!("{}-new", self.number())));
        replaced.or_else(|error| {
            tracing::warn!(%error, "a log that is given up stays the file that its program has");
            let path = folder.path().join(&name);
            match self.shape().medium {
                LogMedium::File => {
                    let emptied = self.file.set_len(0).and_then(|()| self.file.sync_all());
                    emptied.map_err(|error| about(&path, "empty", &error))
                }
                // A program's mapping would not survive another length.
                LogMedium::Byte | LogMedium::Volatile => fill(&self.file, &path),
            }
        })
    }

    /// The log goes: its row first, durably, and then the file.
    ///
    /// # Errors
    /// The storage's, of the row; then the log stays, for recovery or the end of the registry.
    pub fn remove(mut self) -> Result<()> {
        let name = log_name(self.shared.name.uuid(), self.number());
        let counted = !self.entry().leases.is_empty();
        self.row.write(&self.shared.file, None)?;
        if counted {
            self.shared.counting.end();
        }
        if let Err(error) = self.shared.folder.unlink(&name) {
            tracing::warn!(%error, "a log that is not needed any more is left");
        }
        self.shared.give_back(self.row);
        Ok(())
    }

    /// Writes the row if `change` says that it is another.
    fn change(&mut self, change: impl FnOnce(&mut LogEntry) -> bool) -> Result<()> {
        self.row.check()?;
        let mut entry = self.entry().clone();
        match change(&mut entry) {
            true => self.row.write(&self.shared.file, Some(entry)),
            false => Ok(()),
        }
    }
}

/// Writes a new log with zeroes, durably: what overwrites them needs nothing but its own bytes.
pub(crate) fn fill(file: &File, path: &Path) -> Result<()> {
    let zeroes = vec![0; PIECE];
    let pieces = (0..LOG_BYTES).step_by(PIECE);
    let written = { pieces }.try_for_each(|at| file.write_all_at(&zeroes, at));
    let synced = written.and_then(|()| file.sync_all());
    synced.map_err(|error| about(path, "write", &error))?;
    // The program writes past the cache: it need not keep them.
    let advice = rustix::fs::Advice::DontNeed;
    let _ = rustix::fs::fadvise(file, 0, None, advice);
    Ok(())
}
