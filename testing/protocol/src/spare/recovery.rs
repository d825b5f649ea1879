//! What a recovery would find, if the power failed now.

use super::state::{FIRST, Log, Logs, Lsn, SPARE};
use super::{Config, Mutation};

/// What a recovery brings back.
pub(crate) struct Found {
    /// What the block has afterwards.
    pub(crate) block: Lsn,
    /// Records were applied one behind the other, none left out.
    pub(crate) in_order: bool,
}

impl Log {
    /// The records from the tail on, up to the first place that has none.
    fn scan(&self, room: u8) -> Vec<Lsn> {
        let mut found = Vec::new();
        for place in self.tail..self.head.max(self.tail) {
            match self.ring[usize::from(place % room)] {
                Some(record) if record.place == place => found.push(record.lsn),
                _ => break,
            }
        }
        found
    }

    /// Does a record behind the end say that what is missing there was durable (rule R14)?
    fn has_rot(&self, room: u8) -> bool {
        let end = self.tail + u8::try_from(self.scan(room).len()).expect("few records");
        let mut behind = self.ring.iter().flatten().filter(|record| record.place >= end);
        behind.any(|record| record.sure > end)
    }
}

impl Logs {
    /// Would a reader take what was never durable for rot?
    pub(crate) fn looks_rotten(&self, config: &Config) -> bool {
        let alone = (0..2).find(|log| self.logs[*log].alone);
        let mut read = (0..2).filter(|log| alone.is_none_or(|alone| alone == *log));
        read.any(|log| self.logs[log].has_rot(config.room[log]))
    }

    /// With these logs. One that says that it is the only one is the only one.
    pub(crate) fn recover(&self, config: &Config, with: [bool; 2]) -> Found {
        let alone = (0..2).find(|log| self.logs[*log].alone && with[*log]);
        let alone = alone.filter(|_| !config.has(Mutation::FirstIsBelieved));
        let counts = |log: usize| with[log] && alone.is_none_or(|alone| alone == log);
        let base = self.logs[alone.unwrap_or(FIRST)].base;
        let mut order = [FIRST, SPARE];
        if config.has(Mutation::SpareThenFirst) {
            order.reverse();
        }
        let all = order.into_iter().filter(|log| counts(*log));
        let mut found: Vec<Lsn> =
            all.flat_map(|log| self.logs[log].scan(config.room[log])).collect();
        found.retain(|lsn| *lsn > base);
        let by_log = [Mutation::SpareThenFirst, Mutation::FirstThenSpare];
        if by_log.iter().any(|fault| config.has(*fault)) {
            let block = found.last().copied().unwrap_or(self.area);
            return Found { block, in_order: true };
        }
        // The one order of all is that of the numbers. A copy is the same record.
        found.sort_unstable();
        found.dedup();
        let follows = |at: usize, lsn: Lsn| usize::from(lsn) == usize::from(base) + 1 + at;
        let whole = found.iter().enumerate().take_while(|(at, lsn)| follows(*at, **lsn)).count();
        let in_order = !config.has(Mutation::ApplyOverAGap) || whole == found.len();
        found.truncate(if config.has(Mutation::ApplyOverAGap) { found.len() } else { whole });
        Found { block: found.last().copied().unwrap_or(self.area), in_order }
    }
}
