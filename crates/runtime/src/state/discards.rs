//! Freed blocks whose space goes back to the storage: from their transaction's reclamation to the
//! end of their discard they stay in quarantine (rule R5, `docs/design/discard.md`).

use crate::state::log::ledger::refused;
use siftfs_base::{BLOCK_BYTES, BlockRun, Blocks, RangeSet, Result};
use siftfs_status::{Discard, Trimmed};
use siftfs_wire::DISCARD_MAX_RUNS;
use std::collections::BTreeMap;

/// Ranges of blocks that wait at most, so that a fragmented volume does not fill the memory with
/// them. What comes beyond is free at once, and its space stays until a trim.
const MOST_WAITING: usize = 65_536;
/// Blocks that one request names at most: so much is in quarantine for a request's time (256 MiB).
pub const MOST_BLOCKS: u64 = 65_536;
/// Blocks that a freed range has at least, or its space is left to a trim: a call for each takes
/// longer than what it gives back is worth (`docs/design/discard.md`, "What it costs").
const LEAST_BLOCKS: u64 = 8;
/// After a caller has run out of space nothing is held back for so long, in nanoseconds.
const SHORT_NS: u64 = 1_000_000_000;

/// What the storage can do, and what is wanted of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardConfig {
    /// Bytes that the storage gives back at least; 0: it cannot, or its space is reserved.
    pub unit: u64,
    /// Freed blocks are given back by themselves.
    pub online: bool,
}

/// What is being discarded for whom.
struct Flight {
    runs: Vec<BlockRun>,
    /// A trim waits for it.
    trim: bool,
}

/// What a request's end means.
#[derive(Default)]
pub struct Ended {
    /// Out of quarantine now.
    pub free: Vec<BlockRun>,
    /// The storage cannot give space back: said once.
    pub refused: bool,
}

/// Freed ranges that wait for their discard, and those whose discard the Service was asked for.
#[derive(Default)]
pub struct Discards {
    config: DiscardConfig,
    /// Reclaimed and in quarantine: nothing is asked for yet.
    waiting: RangeSet<Blocks>,
    flights: BTreeMap<u64, Flight>,
    /// What came of trims' requests, until the trims have seen it.
    trimmed: BTreeMap<u64, Trimmed>,
    /// Number of the last request.
    last: u64,
    /// A caller ran out of space then.
    short: Option<u64>,
    counts: Discard,
}

impl Discards {
    /// With what the storage can do.
    pub fn new(config: DiscardConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Blocks that the storage gives back at least; `None` where it cannot.
    pub fn unit(&self) -> Option<u64> {
        (self.config.unit > 0).then(|| (self.config.unit / BLOCK_BYTES).max(1))
    }

    /// Freed blocks are given back by themselves from now on, or not.
    pub fn set_online(&mut self, online: bool) {
        self.config.online = online;
    }

    /// The transaction that freed the run is reclaimed. False if the run's quarantine ends now.
    pub fn take(&mut self, run: BlockRun) -> bool {
        if !self.config.online || self.unit().is_none() {
            return false;
        }
        if self.short.is_some() || self.waiting.ranges() >= MOST_WAITING {
            self.counts.passed_over_blocks += run.len;
            return false;
        }
        self.waiting.insert(run.start, run.end());
        true
    }

    /// Is something to be asked for now? One request of these is open at a time.
    pub fn is_due(&self) -> bool {
        !self.waiting.is_empty() && !self.flights.values().any(|f| !f.trim)
    }

    /// Nothing waits, and nothing is asked for.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.flights.is_empty()
    }

    /// Is this request, or an older one, not answered?
    pub fn is_open(&self, upto: u64) -> bool {
        self.flights.range(..=upto).next().is_some()
    }

    /// The number of the last request.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The next request: its number and runs, if there is one; and what is too little for one,
    /// whose quarantine ends now.
    pub fn next(&mut self) -> (Option<(u64, Vec<BlockRun>)>, Vec<BlockRun>) {
        let mut small = Vec::new();
        if !self.is_due() {
            return (None, small);
        }
        let unit = self.unit().unwrap_or(1);
        let (mut whole, mut asked, mut blocks) = (Vec::new(), Vec::new(), 0);
        for (start, end) in self.waiting.iter() {
            if asked.len() == DISCARD_MAX_RUNS
                || blocks == MOST_BLOCKS
                || small.len() == DISCARD_MAX_RUNS
            {
                break;
            }
            let run = BlockRun { start, len: (end - start).min(MOST_BLOCKS - blocks) };
            match inner(run, unit).filter(|inner| inner.len >= LEAST_BLOCKS) {
                Some(inner) => {
                    blocks += run.len;
                    asked.push(inner);
                    whole.push(run);
                }
                None => small.push(run),
            }
        }
        for run in whole.iter().chain(&small) {
            self.waiting.remove(run.start, run.end());
        }
        self.counts.passed_over_blocks += small.iter().map(|run| run.len).sum::<u64>();
        let request = (!asked.is_empty()).then(|| (self.depart(whole, false), asked));
        (request, small)
    }

    /// The number of a request for runs that are in quarantine until it is answered.
    pub fn depart(&mut self, runs: Vec<BlockRun>, trim: bool) -> u64 {
        self.last += 1;
        self.flights.insert(self.last, Flight { runs, trim });
        self.last
    }

    /// The request is answered.
    ///
    /// # Errors
    /// Refused if it is not open, or more is given back than was asked for.
    pub fn ended(&mut self, id: u64, blocks: u64, failed: u64, unsupported: bool) -> Result<Ended> {
        let most = self.flights.get(&id).map(|f| f.runs.iter().map(|run| run.len).sum::<u64>());
        if most.is_none_or(|most| blocks > most) {
            return Err(refused(format!("discard {id} was not asked for so, or not at all")));
        }
        let Flight { runs: mut free, trim } = self.flights.remove(&id).expect("just found");
        if trim {
            let bytes = blocks * BLOCK_BYTES;
            self.trimmed.insert(id, Trimmed { bytes, failed, incomplete: unsupported });
        }
        self.counts.requests += 1;
        self.counts.blocks += blocks;
        self.counts.failed += failed;
        let refused = unsupported && self.config.unit > 0;
        if unsupported {
            self.config.unit = 0;
            free.extend(self.give_up());
        }
        Ok(Ended { free, refused })
    }

    /// What came of a trim's request, once it is answered.
    pub fn take_trimmed(&mut self, id: u64) -> Option<Trimmed> {
        self.trimmed.remove(&id)
    }

    /// Nothing that waits is asked for any more: these runs' quarantine ends now.
    fn give_up(&mut self) -> Vec<BlockRun> {
        let runs: Vec<_> =
            self.waiting.iter().map(|(s, e)| BlockRun { start: s, len: e - s }).collect();
        self.waiting.clear();
        self.counts.passed_over_blocks += runs.iter().map(|run| run.len).sum::<u64>();
        runs
    }

    /// A caller runs out of space at this time: what waits is free now, and so is what is freed in
    /// the next second. Trims end.
    pub fn run_short(&mut self, now: u64) -> Vec<BlockRun> {
        self.short = Some(now);
        self.give_up()
    }

    /// Is a caller, or was one a moment ago, out of space?
    pub fn is_short(&self) -> bool {
        self.short.is_some()
    }

    /// Forgets a shortage that is over.
    pub fn forget_shortage(&mut self, now: u64) {
        self.short = self.short.filter(|then| now.saturating_sub(*then) < SHORT_NS);
    }

    /// For the status report.
    pub fn report(&self) -> Discard {
        let of = |f: &Flight| f.runs.iter().map(|run| run.len).sum::<u64>();
        Discard {
            online: self.config.online && self.config.unit > 0,
            unit_bytes: self.config.unit,
            waiting_blocks: self.waiting.total(),
            asked_blocks: self.flights.values().map(of).sum(),
            ..self.counts
        }
    }

    /// Ranges in memory.
    pub fn ranges(&self) -> usize {
        self.waiting.ranges() + self.flights.values().map(|f| f.runs.len()).sum::<usize>()
    }
}

/// The part of a run that consists of whole units; `None` if there is none.
pub fn inner(run: BlockRun, unit: u64) -> Option<BlockRun> {
    let (start, end) = (run.start.next_multiple_of(unit), run.end() / unit * unit);
    (start < end).then(|| BlockRun { start, len: end - start })
}

#[cfg(test)]
#[path = "discards_tests.rs"]
mod tests;
