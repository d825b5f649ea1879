//! Records that programs of all kinds append to one file.

use crate::appends::{check, record};
use crate::logs::program::{Logged, Sessions};
use siftfs_rig::place::{Failed, Result};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "records";

/// A program syncs under its lease after about every eighth record.
const SYNCED_EACH: u64 = 8;

/// Makes the file.
///
/// # Errors
/// It cannot be made.
pub fn prepare(dir: &Path) -> Result<()> {
    File::create_new(dir.join(NAME)).map(drop).map_err(|e| Failed(e.to_string()))
}

/// What one program appends.
pub struct Records {
    program: u64,
    number: u64,
    /// Of them, those that were written under a lease.
    leased: u64,
    failed: Option<io::Error>,
}

impl Records {
    /// Those of a program, none yet.
    #[must_use]
    pub fn new(program: u64) -> Self {
        Self { program, number: 0, leased: 0, failed: None }
    }

    /// Appends the next `count` ones at once, below `dir` if the file is to be opened `anew`, by a
    /// lease if the program has private logs and gets one.
    pub fn append(&mut self, dir: &Path, (anew, count): (bool, u64), sessions: Option<&Sessions>) {
        if self.failed.is_some() {
            return;
        }
        match self.try_append(dir, (anew, count), sessions) {
            Ok(()) => self.number += count,
            Err(e) => self.failed = Some(e),
        }
    }

    fn try_append(
        &mut self,
        dir: &Path,
        (anew, count): (bool, u64),
        sessions: Option<&Sessions>,
    ) -> io::Result<()> {
        let path = dir.join(NAME);
        let numbers = self.number..self.number + count;
        let bytes: Vec<u8> = numbers.flat_map(|number| record(self.program, number)).collect();
        let open = || {
            let mut options = File::options();
            options.append(true).read(anew).open(&path).map(Logged::new)
        };
        // While it is open, no other program gets the lease.
        let Some(sessions) = sessions else { return open()?.append(&bytes).map(drop) };
        let open = sessions.shared(anew, open)?;
        open.lease(sessions)?;
        let (leased, _) = open.append(&bytes)?;
        if !leased {
            sessions.close_shared();
            return Ok(());
        }
        // The first time has the file log made, whether or not the lease lasts.
        if self.leased == 0 || self.number.is_multiple_of(SYNCED_EACH) {
            open.sync(true)?;
        }
        self.leased += count;
        Ok(())
    }

    /// The program, how many it has appended, and how many of them under a lease.
    ///
    /// # Errors
    /// Why one could not be.
    pub fn end(self) -> std::result::Result<[u64; 3], String> {
        match self.failed {
            None => Ok([self.program, self.number, self.leased]),
            Some(e) => Err(format!("record {} of {}: {e}", self.number, self.program)),
        }
    }
}

/// All records of these programs are in the file, once and whole, wherever it is looked at; some
/// were written under leases. Returns how many there are, and how many of those.
///
/// # Errors
/// One is not there.
pub fn judge(dirs: &[PathBuf], programs: &[[u64; 3]]) -> Result<(u64, u64)> {
    let (mut wanted, mut by_lease) = (BTreeSet::new(), 0);
    for &[program, count, leased] in programs {
        by_lease += leased;
        wanted.extend((0..count).map(|number| record(program, number)));
    }
    for dir in dirs {
        let bytes = fs::read(dir.join(NAME)).map_err(|e| Failed(e.to_string()))?;
        check(&bytes, wanted.clone())?;
    }
    match by_lease {
        0 => Err(Failed("no record was written under a lease".into())),
        _ => Ok((wanted.len() as u64, by_lease)),
    }
}
