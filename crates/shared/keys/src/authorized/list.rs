//! The `authorized` file: read whole or not at all, and again when it has changed.

use super::line::AuthorizedLine;
use crate::files::{self, Guard, Stamp};
use crate::public::PublicKey;
use siftfs_base::{Error, Result};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest file, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// Most keys.
const MOST_KEYS: usize = 4096;
/// Longest line, in bytes.
const MOST_LINE: usize = 8192;

/// The keys that a server admits.
#[derive(Debug, Default)]
pub struct Authorized {
    lines: HashMap<PublicKey, Arc<AuthorizedLine>>,
}

impl Authorized {
    /// Reads the file, which must belong to root or the caller, and be writable by its owner alone.
    ///
    /// # Errors
    /// A message that names the file, the line and what is wrong with it.
    pub fn load(path: &Path) -> Result<Self> {
        Ok(read(path)?.0)
    }

    /// The line of a key; `None`: the key is not admitted.
    pub fn lookup(&self, key: &PublicKey) -> Option<Arc<AuthorizedLine>> {
        self.lines.get(key).cloned()
    }

    /// Reads a file's text. `name` is the file's, for messages.
    fn parse(name: &Path, text: &str) -> Result<Self> {
        let mut lines: HashMap<PublicKey, (usize, Arc<AuthorizedLine>)> = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let refuse =
                |what| Error::Refused(format!("{}, line {number}: {what}", name.display()));
            if line.len() > MOST_LINE {
                return Err(refuse(format!("it has more than {MOST_LINE} bytes")));
            }
            let start = line.trim_start_matches([' ', '\t']);
            if start.is_empty() || start.starts_with('#') {
                continue;
            }
            if lines.len() == MOST_KEYS {
                return Err(refuse(format!("there are more than {MOST_KEYS} keys")));
            }
            let line: AuthorizedLine = line.parse().map_err(refuse)?;
            match lines.entry(line.key) {
                Entry::Vacant(place) => {
                    place.insert((number, Arc::new(line)));
                }
                Entry::Occupied(there) => {
                    let first = there.get().0;
                    return Err(refuse(format!("its key is that of line {first}, too")));
                }
            }
        }
        Ok(Self { lines: lines.into_iter().map(|(key, (_, line))| (key, line)).collect() })
    }
}

fn read(path: &Path) -> Result<(Authorized, Option<Stamp>)> {
    let file = files::read(path, Guard::Trusted, MOST_BYTES)?;
    Ok((Authorized::parse(path, &file.text)?, file.stamp))
}

/// The file of a server that is running. Each look at it sees what is in the file then.
#[derive(Debug)]
pub struct AuthorizedFile {
    path: PathBuf,
    /// What was read, if it can be told from what is in the file later.
    read: Mutex<Option<(Stamp, Arc<Authorized>)>>,
}

impl AuthorizedFile {
    /// The file at `path`, which is read at the first look.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), read: Mutex::new(None) }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The keys that the file admits now. Reads the file if it may have changed.
    ///
    /// # Errors
    /// As [`Authorized::load`]; what was read before does not count any more.
    pub fn current(&self) -> Result<Arc<Authorized>> {
        // What the lock guards is replaced as a whole, so that a panic leaves nothing half done.
        let mut read_before = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((stamp, authorized)) = read_before.as_ref()
            && Stamp::now(&self.path).as_ref() == Some(stamp)
        {
            return Ok(authorized.clone());
        }
        *read_before = None;
        let (authorized, stamp) = read(&self.path)?;
        let authorized = Arc::new(authorized);
        *read_before = stamp.map(|stamp| (stamp, authorized.clone()));
        Ok(authorized)
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
