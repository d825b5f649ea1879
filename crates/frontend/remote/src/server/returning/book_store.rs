//! Where a book of clients lies: in a file of this machine, or where another machine finds it, too.

use siftfs_base::{Error, Result};
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A place for the book of one volume. One process at a time writes there: the one that has the
/// volume.
pub trait BookStore: Debug + Send + Sync {
    /// The first `limit` bytes of what lies there; `None` if nothing does.
    ///
    /// # Errors
    /// It cannot be read. The message names the place, as those of all calls do.
    fn read(&self, limit: u64) -> Result<Option<Vec<u8>>>;
    /// Puts these bytes in the place of what lies there: durable, and as a whole, when it returns.
    ///
    /// # Errors
    /// It may lie there, or what was there before.
    fn replace(&self, bytes: &[u8]) -> Result<()>;
    /// Adds bytes at the end of what lies there: durable when it returns.
    ///
    /// # Errors
    /// A part of them may lie there; or nothing is there to be added to.
    fn append(&self, bytes: &[u8]) -> Result<()>;
    /// Takes away what lies there, if anything does.
    ///
    /// # Errors
    /// It may still lie there.
    fn remove(&self) -> Result<()>;
}

/// A file of this machine.
#[derive(Clone, Debug)]
pub struct BookFile(PathBuf);

impl BookFile {
    /// The file at this path. It, and the directories that it lies in, need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::Refused(format!("the book of clients {}: {error}", self.0.display()))
    }
}

impl BookStore for BookFile {
    fn read(&self, limit: u64) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let read = File::open(&self.0).and_then(|file| file.take(limit).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        written_anew(&self.0, bytes).map_err(|error| self.failed(&error))
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        let file = OpenOptions::new().append(true).open(&self.0);
        let added = file.and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_data()
        });
        added.map_err(|error| self.failed(&error))
    }

    fn remove(&self) -> Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.failed(&error)),
            _ => Ok(()),
        }
    }
}

/// A new file with these bytes at a path.
fn written_anew(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    // The volume has one server at a time, and so has this name.
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(dir)?.sync_all()
}
