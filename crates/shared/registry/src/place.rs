//! Where logs are to lie, and what a new one lies in.

use siftfs_base::{Error, Result};
use siftfs_device::{BytePromise, LogMemory};
use siftfs_lease::{LOG_BYTES, LogMedium};
use std::fs::File;
use std::path::{Path, PathBuf};

/// How a batch of a file log becomes durable.
const BY_WRITE: &str = "O_DIRECT, pwritev2 with RWF_DSYNC";

/// The directory of a registry and its logs, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogsPlace {
    /// The directory.
    pub dir: PathBuf,
    /// It promises nothing over a power cut, and may lie in memory.
    pub volatile: bool,
}

impl LogsPlace {
    /// A directory for logs that promise nothing over a power cut.
    pub fn volatile(dir: &Path) -> Self {
        Self { dir: dir.into(), volatile: true }
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for LogsPlace {
    /// A directory that keeps what is made durable there.
    fn from(dir: &P) -> Self {
        Self { dir: dir.as_ref().into(), volatile: false }
    }
}

/// What a log lies in, as it was proved when the log was made (rule R43).
pub(crate) struct Proved {
    pub medium: LogMedium,
    /// For people.
    pub promise: String,
}

impl Proved {
    /// Proves what a new log's file is, which its program gets later. Nothing of it stays mapped.
    ///
    /// # Errors
    /// `Refused` if a file that is named volatile cannot be mapped.
    pub fn of(file: &File, volatile: bool) -> Result<Self> {
        let mapped = |medium, promise: BytePromise| Self { medium, promise: promise.to_string() };
        let len = usize::try_from(LOG_BYTES).expect("a log fits any memory");
        if volatile {
            let log = LogMemory::volatile(file, len)?;
            return Ok(mapped(LogMedium::Volatile, log.promise()));
        }
        let by_write = Self { medium: LogMedium::File, promise: BY_WRITE.into() };
        if !LogMemory::is_persistent(file) {
            return Ok(by_write);
        }
        match LogMemory::persistent(file, len) {
            Ok(log) => Ok(mapped(LogMedium::Byte, log.promise())),
            Err(why) => {
                tracing::warn!(%why, "a log on a file system with DAX is written as a file");
                Ok(by_write)
            }
        }
    }
}

/// Is the file of a log that a dead daemon has left what its row says that it lies in (rule R16)?
///
/// # Errors
/// `Refused` if it is not: it is a copy.
pub(crate) fn check_left(file: &File, medium: LogMedium, path: &Path) -> Result<()> {
    let copied = |what: &str| {
        let path = path.display();
        Err(Error::Refused(format!("private logs: {path} was made {what}: it is a copy")))
    };
    match medium {
        LogMedium::Byte if !LogMemory::is_persistent(file) => {
            copied("in persistent memory, and its file system has no DAX")
        }
        LogMedium::File if crate::folder::is_in_memory(file)? => {
            copied("on a disk, and lies in memory")
        }
        LogMedium::File | LogMedium::Byte | LogMedium::Volatile => Ok(()),
    }
}
