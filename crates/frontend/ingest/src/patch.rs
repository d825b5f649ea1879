//! The last step: what was copied becomes the files', and the ring has room again.

use crate::Files;
use crate::copy::{Carried, Copied, Copier, Filled};
use crate::counters::{Counters, Step};
use crate::merge::{Part, Place};
use siftfs_base::Error;
use siftfs_intervals::Source;
use siftfs_lease::{Held, Own, Record, Taken, Words};

/// What the step works with.
pub(crate) struct Patcher<'a, G, H> {
    pub files: &'a dyn Files,
    pub engine: &'a Copier<'a, H>,
    pub taken: Taken<'a, G>,
    pub counters: &'a Counters,
}

impl<G: Own, H: Words> Patcher<'_, G, H> {
    pub fn step(&mut self, copied: Copied) {
        let _timed = self.counters.time(Step::Patch);
        for Filled { held, time, pieces, records } in copied.files {
            pieces.into_iter().for_each(|piece| self.patch((held, time), piece, &records));
        }
        // Not before: there is space set aside for what the ring holds, and no more.
        self.taken.release(copied.until);
    }

    fn patch(&self, (held, time): (Held, i64), piece: Carried, records: &[Record]) {
        let Carried { offset, data } = piece;
        let end = offset + data.len() as u64;
        self.counters.patched(data.len() as u64);
        let Err(error) = self.files.write(held, offset, data, time) else { return };
        if records.len() < 2 || is_over(&error) {
            return self.files.lose(held, &error);
        }
        // No record is lost by another one's error. Nobody has seen what was copied before.
        for record in records {
            let from = record.offset.max(offset);
            let until = (record.offset + u64::from(record.len)).min(end);
            if from < until {
                self.write_alone(record, from, until - from);
            }
        }
    }

    /// Writes bytes of one record, those that later records supersede among them.
    fn write_alone(&self, record: &Record, at: u64, len: u64) {
        let place = Place(record.data).skip(at - record.offset);
        let part = Part { place, len: u32::try_from(len).expect("it is a part of a record") };
        let data = self.engine.copy(at, len, &[part]);
        if let Err(error) = self.files.write(record.held, at, data, record.time) {
            self.files.lose(record.held, &error);
        }
    }
}

/// Is the lease over?
fn is_over(error: &Error) -> bool {
    error.errno() == libc::ESTALE
}
