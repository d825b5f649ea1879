//! The last step: what was copied becomes the files', and the ring has room again.

use crate::Files;
use crate::copy::{Carried, Copied, Copier, Filled};
use crate::counters::{Counters, Step};
use siftfs_base::Error;
use siftfs_lease::{Held, Own, Taken, Words};

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
        for Filled { held, time, pieces } in copied.files {
            pieces.into_iter().for_each(|piece| self.patch((held, time), piece));
        }
        // Not before: there is space set aside for what the ring holds, and no more.
        self.taken.release(copied.until);
    }

    fn patch(&self, (held, time): (Held, i64), piece: Carried) {
        let Carried { offset, data, parts } = piece;
        self.counters.patched(data.len() as u64);
        let Err(error) = self.files.write(held, offset, data, time) else { return };
        if parts.len() < 2 || is_over(&error) {
            return self.files.lose(held, &error);
        }
        // No record is lost by its neighbour's error. Nobody has seen what was copied before.
        let mut at = offset;
        for part in parts {
            let data = self.engine.copy(at, part.len.into(), &[part]);
            if let Err(error) = self.files.write(held, at, data, time) {
                self.files.lose(held, &error);
            }
            at += u64::from(part.len);
        }
    }
}

/// Is the lease over?
fn is_over(error: &Error) -> bool {
    error.errno() == libc::ESTALE
}
