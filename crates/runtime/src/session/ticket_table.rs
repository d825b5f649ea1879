//! The tickets of one session: which position in the order of records each stands for.
//!
//! What is durable needs no entry: a ticket that its session drew, and that has none, is durable.
//! So a ticket may be asked for as often as its caller likes, and what a program leaves behind that
//! was killed costs nothing once the storage has taken it.

use crate::locks::relock;
use siftfs_base::{Lsn, Result, errno};
use siftfs_proto::Ticket;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// Tickets of one session that are not durable, at most, whatever its limits say.
const MOST: usize = 65_536;

/// Everything up to here is durable from the start.
pub const DURABLE: Lsn = Lsn(0);

/// The tickets of one session. Its lock is taken alone, and nothing is done under it.
pub struct Tickets {
    numbers: Mutex<Numbers>,
}

/// The `n`th ticket has the number `base + n`.
struct Numbers {
    /// Drawn at random, so that another session's numbers, and those of this one's predecessor in
    /// an earlier mount, are not taken for its own.
    base: u64,
    /// Tickets that are not durable, at most.
    most: usize,
    drawn: u64,
    /// Tickets that are being drawn.
    coming: usize,
    /// Those that were not durable when that was last looked at, in order: which it is, and its
    /// position.
    open: VecDeque<(u64, Lsn)>,
}

impl Numbers {
    /// Begins to draw a ticket.
    ///
    /// # Errors
    /// `EAGAIN` if too many are not `durable`.
    fn begin(&mut self, durable: Lsn) -> Result<()> {
        while self.open.front().is_some_and(|(_, lsn)| *lsn <= durable) {
            self.open.pop_front();
        }
        if self.open.len() + self.coming >= self.most {
            self.open.retain(|(_, lsn)| *lsn > durable);
        }
        if self.open.len() + self.coming >= self.most {
            return Err(errno(libc::EAGAIN));
        }
        self.coming += 1;
        Ok(())
    }

    /// Draws a ticket for `lsn`.
    fn draw(&mut self, lsn: Lsn) -> Ticket {
        self.drawn += 1;
        if lsn > DURABLE {
            self.open.push_back((self.drawn, lsn));
        }
        Ticket(self.base.wrapping_add(self.drawn))
    }

    /// The position of one of its tickets.
    fn position(&self, ticket: Ticket) -> Option<Lsn> {
        let which = ticket.0.wrapping_sub(self.base);
        if which == 0 || which > self.drawn {
            return None;
        }
        let open = self.open.binary_search_by_key(&which, |(which, _)| *which);
        Some(open.map_or(DURABLE, |at| self.open[at].1))
    }
}

impl Tickets {
    /// No ticket yet, with numbers from `base` on, and `most` at a time that are not durable.
    pub fn new(base: u64, most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(MOST).min(MOST);
        let numbers = Numbers { base, most, drawn: 0, coming: 0, open: VecDeque::new() };
        Self { numbers: Mutex::new(numbers) }
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        relock(self.numbers.lock())
    }

    /// Draws a ticket for the position that `stage` answers with. Everything up to `durable` is
    /// durable. Also returns whether half of what a session may have open is open.
    ///
    /// # Errors
    /// `EAGAIN` if too many of the session's tickets are not durable: `stage` has not been called
    /// then. Those of `stage`.
    pub fn draw(
        &self,
        durable: Lsn,
        stage: impl FnOnce() -> Result<Lsn>,
    ) -> Result<(Ticket, bool)> {
        self.lock().begin(durable)?;
        let staged = stage();
        let mut numbers = self.lock();
        numbers.coming -= 1;
        let ticket = numbers.draw(staged?);
        Ok((ticket, numbers.open.len() >= numbers.most / 2))
    }

    /// The position of a ticket, [`DURABLE`] for one that is durable.
    ///
    /// # Errors
    /// `EINVAL`: the session has not drawn it (rule R31).
    pub fn position(&self, ticket: Ticket) -> Result<Lsn> {
        self.lock().position(ticket).ok_or_else(|| errno(libc::EINVAL))
    }

    /// How many tickets are not durable, if everything up to `durable` is.
    pub fn open(&self, durable: Lsn) -> usize {
        self.lock().open.iter().filter(|(_, lsn)| *lsn > durable).count()
    }
}

#[cfg(test)]
#[path = "ticket_table_tests.rs"]
mod tests;
