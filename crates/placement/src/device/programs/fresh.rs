//! The fresh blocks of a grant: which of them the program has written, and up to which byte of the
//! file (rule R30).
//!
//! Where in the file a block lies is what the host has said with the grant. The program is believed
//! nothing: what counts as written is what this process has written for it.

use crate::device::calls::lock;
use siftfs_base::{BLOCK_BYTES, Error, Result};
use siftfs_wire::{FileRun, GRANT_MAX_FRESH, GrantRun, SETTLED_MAX_RUNS};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a host is to be told of fresh blocks that were written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Blocks of the file, in order, [`SETTLED_MAX_RUNS`] runs at most.
    pub runs: Vec<FileRun>,
    /// The byte of the file behind the last one that was written; 0 if that was reported.
    pub end: u64,
    /// Others were written, too.
    pub more: bool,
}

impl Report {
    /// Is there nothing to be told?
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.end == 0
    }
}

/// A run of fresh blocks.
struct Run {
    /// In the area.
    blocks: Range<u64>,
    /// The first one's place in the file.
    first: u64,
    /// The first one's bit.
    bit: usize,
}

/// The fresh blocks of one grant. Most grants have none, and take no memory for that.
#[derive(Default)]
pub(crate) struct Fresh {
    /// How many there are: never fewer than the program may reach.
    blocks: AtomicU64,
    own: Mutex<Option<Box<Own>>>,
}

/// A block has one bit of each set; within a run the bits are in the order of the file.
#[derive(Default)]
struct Own {
    /// In the order of their blocks in the area.
    runs: Vec<Run>,
    /// First bit, place in the file and length of each run, in the order of the file.
    places: Vec<(usize, FileRun)>,
    done: Done,
}

#[derive(Default)]
struct Done {
    written: Bits,
    reported: Bits,
    /// Behind the last byte of the file that was written, and what of that was reported.
    end: u64,
    end_reported: u64,
}

#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    /// Has room for this many blocks.
    fn resize(&mut self, blocks: u64) {
        self.0.resize(usize::try_from(blocks.div_ceil(64)).unwrap_or(0), 0);
    }

    fn word(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    fn set(&mut self, bit: usize) {
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word |= 1 << (bit % 64);
        }
    }
}

impl Fresh {
    /// Of the runs of a grant, of which none meets another in the area.
    ///
    /// # Errors
    /// Refused: they are too many, they meet in the file, or they are no places of a file.
    pub fn of(runs: &[GrantRun]) -> Result<Self> {
        let fresh = Self::default();
        fresh.add(runs)?;
        Ok(fresh)
    }

    /// How many there are.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// Adds the fresh ones of these runs, of which none meets another in the area. That is to be
    /// done before the program may reach them. All are added, or none.
    ///
    /// # Errors
    /// Refused: with those that there are they are too many, or they meet in the file or in the
    /// area; or they are no places of a file.
    pub fn add(&self, runs: &[GrantRun]) -> Result<()> {
        let mut fresh: Vec<GrantRun> = runs.iter().filter(|run| run.fresh).copied().collect();
        if fresh.is_empty() {
            return Ok(());
        }
        fresh.sort_unstable_by_key(|run| run.first);
        let mut own = lock(&self.own);
        let blocks = match own.as_mut() {
            Some(own) => own.add(self.blocks(), &fresh)?,
            None => {
                let mut first = Box::<Own>::default();
                let blocks = first.add(0, &fresh)?;
                *own = Some(first);
                blocks
            }
        };
        self.blocks.store(blocks, Ordering::Release);
        Ok(())
    }

    /// Of what was added, all but the first `blocks` blocks are not there any more. The program
    /// never reached them.
    pub fn cut(&self, blocks: u64) {
        let mut own = lock(&self.own);
        if let Some(own) = own.as_mut().filter(|_| blocks < self.blocks()) {
            let added = usize::try_from(blocks).unwrap_or(usize::MAX);
            own.runs.retain(|run| run.bit < added);
            own.places.retain(|(bit, _)| *bit < added);
            self.blocks.store(blocks, Ordering::Release);
        }
    }

    /// Was a block of these bytes of the area granted as a fresh one? Whether the file has it
    /// durably since then is for the host to say, with its next grant.
    pub fn meets(&self, bytes: &Range<u64>) -> bool {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        lock(&self.own).as_ref().is_some_and(|own| own.meeting(&blocks).next().is_some())
    }

    /// These bytes of the area were written for the program, and the rest of the blocks that they
    /// lie in is the file's, too.
    pub fn note_written(&self, bytes: &Range<u64>) {
        if let Some(own) = lock(&self.own).as_mut() {
            own.note_written(bytes);
        }
    }

    /// What was written and is not reported, up to the bound of one report.
    pub fn unreported(&self) -> Report {
        lock(&self.own).as_ref().map_or_else(Report::default, |own| own.unreported())
    }

    /// A report has been made, and what it says is durable.
    pub fn reported(&self, report: &Report) {
        if let Some(own) = lock(&self.own).as_mut() {
            own.reported(report);
        }
    }
}

impl Own {
    /// Adds these runs, in the order of the file, to the `blocks` that there are. How many they are
    /// then.
    fn add(&mut self, blocks: u64, fresh: &[GrantRun]) -> Result<u64> {
        let (mut places, mut runs, mut bits) = (Vec::new(), Vec::new(), blocks);
        let mut free_from = 0;
        for GrantRun { block, len, first, .. } in fresh.iter().copied() {
            let end = first.checked_add(len).filter(|end| *end <= u64::MAX / BLOCK_BYTES);
            let all = bits.saturating_add(len);
            let area = block..block.saturating_add(len);
            match end {
                Some(end)
                    if first >= free_from
                        && all <= GRANT_MAX_FRESH
                        && !self.has(first..end)
                        && self.meeting(&area).next().is_none() =>
                {
                    free_from = end;
                }
                _ => return Err(refused(len, first)),
            }
            let bit = usize::try_from(bits).map_err(|_| refused(len, first))?;
            places.push((bit, FileRun { first, len }));
            runs.push(Run { blocks: area, first, bit });
            bits = all;
        }
        self.places.extend(places);
        self.places.sort_unstable_by_key(|(_, run)| run.first);
        self.runs.extend(runs);
        self.runs.sort_unstable_by_key(|run| run.blocks.start);
        self.done.written.resize(bits);
        self.done.reported.resize(bits);
        Ok(bits)
    }

    /// Is one of these blocks of the file among those that there are?
    fn has(&self, blocks: Range<u64>) -> bool {
        let from = self.places.partition_point(|(_, run)| run.first + run.len <= blocks.start);
        self.places.get(from).is_some_and(|(_, run)| run.first < blocks.end)
    }

    fn meeting(&self, blocks: &Range<u64>) -> impl Iterator<Item = &Run> {
        meeting(&self.runs, blocks)
    }

    fn note_written(&mut self, bytes: &Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let Self { runs, done, .. } = self;
        for run in meeting(runs, &blocks) {
            let last = run.blocks.end.min(blocks.end);
            for block in run.blocks.start.max(blocks.start)..last {
                done.written.set(run.bit_of(block));
            }
            let upto = bytes.end.min(last * BLOCK_BYTES) - run.blocks.start * BLOCK_BYTES;
            done.end = done.end.max(run.first * BLOCK_BYTES + upto);
        }
    }

    fn unreported(&self) -> Report {
        let done = &self.done;
        let end = if done.end > done.end_reported { done.end } else { 0 };
        let (runs, more) = done.unreported(&self.places);
        Report { runs, end, more }
    }

    fn reported(&mut self, report: &Report) {
        let done = &mut self.done;
        for FileRun { first, len } in &report.runs {
            for place in *first..first.saturating_add(*len) {
                let at = self.places.partition_point(|(_, run)| run.first <= place);
                let run = at.checked_sub(1).and_then(|at| self.places.get(at));
                if let Some((bit, run)) = run {
                    done.reported.set(bit + usize::try_from(place - run.first).unwrap_or(0));
                }
            }
        }
        done.end_reported = done.end_reported.max(report.end);
    }
}

/// The runs that meet these blocks of the area.
fn meeting<'a>(runs: &'a [Run], blocks: &Range<u64>) -> impl Iterator<Item = &'a Run> + use<'a> {
    let from = runs.partition_point(|run| run.blocks.end <= blocks.start);
    let end = blocks.end;
    runs.iter().skip(from).take_while(move |run| run.blocks.start < end)
}

impl Run {
    /// The bit of a block of the area that is the run's.
    fn bit_of(&self, block: u64) -> usize {
        self.bit + usize::try_from(block - self.blocks.start).unwrap_or(0)
    }
}

impl Done {
    fn unreported(&self, places: &[(usize, FileRun)]) -> (Vec<FileRun>, bool) {
        let mut found: Vec<FileRun> = Vec::new();
        for (bit, FileRun { first, len }) in places {
            let (mut at, end) = (*bit, bit + usize::try_from(*len).unwrap_or(0));
            while at < end {
                let open = (self.written.word(at / 64) & !self.reported.word(at / 64)) >> (at % 64);
                if open == 0 {
                    at = (at / 64 + 1) * 64;
                    continue;
                }
                at += open.trailing_zeros() as usize;
                if at >= end {
                    break;
                }
                let place = first + (at - bit) as u64;
                let full = found.len() >= SETTLED_MAX_RUNS;
                match found.last_mut() {
                    Some(last) if last.first + last.len == place => last.len += 1,
                    _ if full => return (found, true),
                    _ => found.push(FileRun { first: place, len: 1 }),
                }
                at += 1;
            }
        }
        (found, false)
    }
}

fn refused(len: u64, first: u64) -> Error {
    Error::Refused(format!("a grant of {len} fresh blocks from {first} on of a file"))
}

#[cfg(test)]
#[path = "fresh_tests.rs"]
mod tests;
