//! A row's two slots, written by turns.

use crate::row::{LogEntry, Place, Row, what};
use crate::{SLOT, Slot};
use siftfs_base::{Error, Result, corrupt};
use std::io;

/// Where the slots of all rows lie.
pub(crate) trait Slots {
    /// The block with this number.
    fn read(&self, block: u64) -> io::Result<Slot>;
    /// Writes it, durable on return. After an error each of its sectors may hold either.
    fn write(&self, block: u64, slot: &Slot) -> io::Result<()>;
}

/// A row of the registry, and the one writer of it.
pub(crate) struct Turns {
    place: Place,
    newest: Row,
    /// A write failed: either row may be found.
    failed: bool,
}

/// The block that a row with this sequence number lies in, behind the registry's head.
fn block(place: Place, seq: u64) -> u64 {
    1 + 2 * u64::from(place.row) + seq % 2
}

impl Turns {
    /// A row that was never written.
    pub fn unused(place: Place) -> Self {
        Self { place, newest: Row { seq: 0, entry: None }, failed: false }
    }

    /// The log that the row durably has.
    pub fn entry(&self) -> Option<&LogEntry> {
        self.newest.entry.as_ref()
    }

    /// # Errors
    /// `Latched` once a write has failed.
    pub fn check(&self) -> Result<()> {
        match self.failed {
            false => Ok(()),
            true => {
                let what = what(self.place);
                Err(Error::Latched(format!("{what}: an earlier write of it failed")))
            }
        }
    }

    /// Makes this the row's log, durable on return.
    ///
    /// # Errors
    /// The storage's; from then on always `Latched`.
    pub fn write(&mut self, slots: &impl Slots, entry: Option<LogEntry>) -> Result<()> {
        self.check()?;
        let row = Row { seq: self.newest.seq + 1, entry };
        let at = block(self.place, row.seq);
        slots.write(at, &row.encode(self.place)).map_err(|error| {
            self.failed = true;
            self::io_error("write", at, &error)
        })?;
        self.newest = row;
        Ok(())
    }

    /// The log that the row has, as it lies there.
    ///
    /// # Errors
    /// The storage's; incompatible if it is of a newer version; corrupt if both slots are damaged.
    pub fn read(slots: &impl Slots, place: Place) -> Result<Option<LogEntry>> {
        let mut newest: Option<Row> = None;
        let mut damaged = 0;
        for turn in 0..2 {
            let at = block(place, turn);
            let slot = slots.read(at).map_err(|error| self::io_error("read", at, &error))?;
            match Row::decode(&slot, place)? {
                Some(row) if newest.as_ref().is_none_or(|other| row.seq > other.seq) => {
                    newest = Some(row);
                }
                Some(_) => {}
                None => damaged += u32::from(slot.iter().any(|byte| *byte != 0)),
            }
        }
        // A row's first write promised nothing, and each later one left the slot before it alone.
        if damaged == 2 {
            return Err(corrupt(what(place), "both of its slots are damaged"));
        }
        Ok(newest.and_then(|row| row.entry))
    }
}

/// An error of the registry's file.
fn io_error(op: &'static str, block: u64, error: &io::Error) -> Error {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    Error::Io { op, offset: block * SLOT as u64, len: SLOT as u64, errno }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
