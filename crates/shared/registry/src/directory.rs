//! The registry of a mounted volume.

use crate::MOST_LOGS;
use crate::counting::Counting;
use crate::folder::{Folder, RegistryFile, log_name};
use crate::head::Head;
use crate::log::{LogFile, LogRow, fill};
use crate::place::{LogsPlace, Proved};
use crate::process::Process;
use crate::row::{LogEntry, Place};
use crate::turns::Turns;
use rustix::fs::OFlags;
use siftfs_base::{Error, Result, errno};
use siftfs_lease::{LOG_BYTES, LogMedium};
use siftfs_log::RegistryName;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A registry and its logs. Clones are the same registry.
#[derive(Clone)]
pub struct Directory {
    shared: Arc<Shared>,
}

/// What all logs of a registry share.
pub(crate) struct Shared {
    pub folder: Folder,
    pub file: RegistryFile,
    pub name: RegistryName,
    pub counting: Counting,
    volatile: bool,
    rows: Mutex<Rows>,
}

/// Which rows no log has.
struct Rows {
    /// Rows that logs had.
    free: Vec<Turns>,
    /// Rows from this one on were never used.
    unused: u32,
    /// The newest log's number.
    drawn: u64,
}

impl Directory {
    /// Makes a new registry in a directory, durably, for the volume with this UUID. The directory
    /// is made if it is missing. What other registries have left there is no concern of it.
    ///
    /// # Errors
    /// `Refused` if the directory cannot serve: others may write to it, it lies in memory and was
    /// not named volatile, its path is too long, or the system refuses.
    pub fn create(place: impl Into<LogsPlace>, volume: [u8; 16]) -> Result<Self> {
        let LogsPlace { dir, volatile } = place.into();
        let folder = Folder::make(&dir, volatile)?;
        let registry = random::<16>()?;
        let name = RegistryName::new(registry, folder.path())?;
        let file = RegistryFile::create(&folder, &registry, &Head { registry, volume }.encode())
            .inspect_err(|_| folder.sweep(&registry))?;
        let rows = Mutex::new(Rows { free: Vec::new(), unused: 0, drawn: 0 });
        let counting = Counting::default();
        Ok(Self { shared: Arc::new(Shared { folder, file, name, counting, volatile, rows }) })
    }

    /// What the volume's host record has to name before a log is handed over.
    pub fn name(&self) -> &RegistryName {
        &self.shared.name
    }

    /// Was this the place that was named?
    pub fn is_at(&self, place: &LogsPlace) -> bool {
        let dir = place.dir.canonicalize();
        place.volatile == self.shared.volatile && dir.is_ok_and(|dir| dir == self.name().dir())
    }

    /// Makes a log for a process, written once with zeroes. It and its row are durable on return.
    /// What it lies in is proved (rule R43): persistent memory, if its file is that and was not
    /// named volatile.
    ///
    /// # Errors
    /// `EAGAIN` if there are [`MOST_LOGS`]; `ESRCH` if there is no such process; `Refused` if the
    /// system refuses; the storage's.
    pub fn new_log(&self, process: u32) -> Result<LogRow> {
        let process = Process::of(process)?;
        let [a, b, c, d, e, f, g, h] = random::<8>()?;
        let key = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let (mut row, number) = self.shared.draw()?;
        let made = self.shared.make(number);
        let log = match made {
            Ok(log) => log,
            Err(error) => {
                self.shared.give_back(row);
                return Err(error);
            }
        };
        let (begin, leases) = (0, Vec::new());
        let medium = log.proved.medium;
        let entry = LogEntry { number, key, len: LOG_BYTES, medium, begin, process, leases };
        // After a failure the row may have the log all the same: neither is used again.
        row.write(&self.shared.file, Some(entry))?;
        Ok(LogRow::new(self.shared.clone(), row, log))
    }

    /// Does no log count at present? One may again at any moment, unless no leases are granted.
    pub fn is_idle(&self) -> bool {
        self.shared.counting.is_idle()
    }

    /// From now on no log counts that does not yet. False: some do, and what their programs have
    /// acknowledged may be in the logs alone.
    pub fn seal(&self) -> bool {
        self.shared.counting.seal()
    }

    /// Removes the registry and its logs, once no host record names it.
    pub fn remove(&self) {
        self.shared.folder.sweep(self.shared.name.uuid());
    }
}

impl Shared {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn draw(&self) -> Result<(Turns, u64)> {
        let mut rows = self.rows();
        let row = match rows.free.pop() {
            Some(row) => row,
            None if rows.unused == MOST_LOGS => return Err(errno(libc::EAGAIN)),
            None => {
                let place = Place { registry: *self.name.uuid(), row: rows.unused };
                rows.unused += 1;
                Turns::unused(place)
            }
        };
        rows.drawn += 1;
        Ok((row, rows.drawn))
    }

    /// A row that has no log.
    pub fn give_back(&self, row: Turns) {
        self.rows().free.push(row);
    }

    /// The file of a new log, durable with its name; opened past the system's cache, if it is to
    /// be written and not mapped.
    fn make(&self, number: u64) -> Result<LogFile> {
        let name = log_name(self.name.uuid(), number);
        let made = self.folder.create(&name)?;
        let opened = || {
            fill(&made, &self.folder.path().join(&name))?;
            self.folder.sync()?;
            let proved = Proved::of(&made, self.volatile)?;
            let past = match proved.medium {
                LogMedium::File => OFlags::DIRECT,
                LogMedium::Byte | LogMedium::Volatile => OFlags::empty(),
            };
            let file = self.folder.file(&name, OFlags::RDWR | past)?;
            Ok(LogFile { file, proved })
        };
        opened().inspect_err(|_| drop(self.folder.unlink(&name)))
    }
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| Error::Refused(format!("no random numbers: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
