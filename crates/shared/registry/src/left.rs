//! What a daemon that died has left, for recovery.

use crate::MOST_LOGS;
use crate::folder::{Folder, RegistryFile, log_name};
use crate::head::Head;
use crate::place::check_left;
use crate::row::{LogEntry, Place, RegisteredLease};
use crate::turns::Turns;
use siftfs_base::{Error, Result, corrupt};
use siftfs_lease::LogShape;
use siftfs_log::{RegistryName, show_uuid};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What an administrator can do where the registry is lost.
const GIVE_UP: &str = "bring the directory back as it was; if it is lost, siftfs recover --discard-log \
                       gives up what programs made durable in logs there";

/// A registry that a host record names, and the logs of its rows.
pub struct Left {
    folder: Folder,
    logs: Vec<LeftLog>,
    uuid: [u8; 16],
}

/// A log with a row.
pub struct LeftLog {
    entry: LogEntry,
}

/// The file of a log, to be read.
pub struct LeftFile(File);

impl Left {
    /// Opens the registry of this name, which is that of the volume with this UUID, and reads all
    /// of its rows.
    ///
    /// # Errors
    /// `Refused` if it is missing or another one (rule R16), corrupt if a row is damaged,
    /// incompatible if it is of another version, the storage's.
    pub fn open(name: &RegistryName, volume: [u8; 16]) -> Result<Self> {
        let (uuid, dir) = (*name.uuid(), name.dir().display());
        let missing = |error: Error| match error {
            Error::Refused(why) => Error::Refused(format!(
                "the registry {} of private logs in {dir} is missing or does not serve ({why}): {GIVE_UP}",
                show_uuid(&uuid)
            )),
            other => other,
        };
        let folder = Folder::open(name.dir()).map_err(missing)?;
        let (file, head) = RegistryFile::open(&folder, &uuid).map_err(missing)?;
        Head { registry: uuid, volume }.check(&head).map_err(missing)?;
        let mut logs = Vec::new();
        for row in 0..MOST_LOGS {
            let entry = Turns::read(&file, Place { registry: uuid, row }).map_err(damaged)?;
            logs.extend(entry.map(|entry| LeftLog { entry }));
        }
        Ok(Self { folder, logs, uuid })
    }

    /// The logs, in the order of their rows.
    pub fn logs(&self) -> &[LeftLog] {
        &self.logs
    }

    /// Opens the file of a log.
    ///
    /// # Errors
    /// `Refused` if it is missing (rule R16): no program can remove it. Likewise if it lies in
    /// something else than its row says.
    pub fn file(&self, log: &LeftLog) -> Result<LeftFile> {
        let name = log_name(&self.uuid, log.number());
        let path = self.folder.path().join(&name);
        let file = self.folder.left(&name).and_then(|file| {
            check_left(&file, log.entry.medium, &path)?;
            Ok(file)
        });
        let file = file.map_err(|error| match error {
            Error::Refused(why) => Error::Refused(format!("{why}: {GIVE_UP}")),
            other => other,
        });
        file.map(LeftFile)
    }

    /// May a program still run that acknowledges by one of the logs?
    pub fn may_be_written(&self) -> bool {
        self.logs.iter().any(|log| log.counts() && log.entry.process.may_run())
    }

    /// Removes the registry and its logs, once no host record names it.
    pub fn remove(self) {
        self.folder.sweep(&self.uuid);
    }

    /// Removes those of this name, if they are there: they were given up.
    pub fn give_up(name: &RegistryName) {
        match Folder::open(name.dir()) {
            Ok(folder) => folder.sweep(name.uuid()),
            Err(error) => tracing::warn!(%error, "private logs that were given up are left"),
        }
    }
}

fn damaged(error: Error) -> Error {
    match error {
        Error::Corrupt { what, detail } => corrupt(what, format!("{detail}: {GIVE_UP}")),
        other => other,
    }
}

impl LeftLog {
    /// Its number.
    pub fn number(&self) -> u64 {
        self.entry.number
    }

    /// How it is read; the file may have another length.
    pub fn shape(&self) -> LogShape {
        let LogEntry { len, key, medium, .. } = self.entry;
        LogShape { len, key, medium }
    }

    /// Position of the first batch that counts.
    pub fn begin(&self) -> u64 {
        self.entry.begin
    }

    /// The lease with this slot and number, if its records count.
    pub fn lease(&self, slot: u32, number: u64) -> Option<&RegisteredLease> {
        let mut leases = self.entry.leases.iter();
        leases.find(|lease| (lease.slot, lease.number) == (slot, number))
    }

    /// Is there a lease whose records count?
    pub fn counts(&self) -> bool {
        !self.entry.leases.is_empty()
    }
}

impl LeftFile {
    /// Reads bytes of the log at `at`. Where the file ends before, it is as if zeroes followed.
    ///
    /// # Errors
    /// The file's.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, at.saturating_add(done as u64)) {
                Ok(0) => {
                    rest.fill(0);
                    break;
                }
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
