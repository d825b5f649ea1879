//! How much memory a compound takes at most, from what its steps say: results, what steps compute
//! from, and what is written before it is applied.

use crate::operations::compound::compute::{MOST_WORK, WINDOW};
use crate::state::costs;
use siftfs_base::BLOCK_SIZE;
use siftfs_proto::compound::{BytesArg, Codec, Compound, MOST_RESULTS, Step};

/// What a page of a shadow costs, about.
const PAGE: u64 = (BLOCK_SIZE + costs::PAGE) as u64;
/// What a compressed result may have more than its input, beside a part of that.
const FRAME: u64 = 1 << 10;
/// A number's bytes.
const NUMBER: u64 = 8;

#[derive(Default)]
struct Need {
    /// The most that each step's result has.
    results: Vec<u64>,
    /// What steps compute from is kept beside their results.
    inputs: u64,
    written: u64,
    window: u64,
}

/// In bytes.
pub fn of(compound: &Compound) -> u64 {
    let mut need = Need::default();
    for step in &compound.steps {
        let result = need.step(step);
        need.results.push(result);
    }
    let results = need.results.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let (results, inputs) = (results.min(MOST_RESULTS as u64), need.inputs.min(MOST_WORK as u64));
    results.saturating_add(inputs).saturating_add(need.written).saturating_add(need.window)
}

impl Need {
    fn bytes(&self, data: &BytesArg) -> u64 {
        match data {
            BytesArg::Given(bytes) => bytes.len() as u64,
            BytesArg::Step(step) => self.results.get(step.0 as usize).copied().unwrap_or(0),
            BytesArg::Part { len, .. } => (*len).into(),
        }
    }

    fn step(&mut self, step: &Step) -> u64 {
        match step {
            Step::Read { len, .. } => (*len).into(),
            Step::Checksum { data, .. } => {
                self.computes(data);
                NUMBER
            }
            Step::Compress { data, .. } => {
                let input = self.computes(data);
                input.saturating_add(input / 64).saturating_add(FRAME)
            }
            Step::Decompress { codec, data, most } => {
                self.computes(data);
                if *codec == Codec::Zstd {
                    self.window = WINDOW;
                }
                (*most).into()
            }
            Step::Join { first, second } => self.bytes(first).saturating_add(self.bytes(second)),
            Step::Write { data, .. } | Step::Append { data, .. } => {
                self.writes(data);
                NUMBER
            }
            Step::Patch { data, .. } => self.writes(data),
            Step::CompareAndSet { new, .. } => self.writes(new),
            Step::Add { .. } => {
                self.written = self.written.saturating_add(2 * PAGE);
                2 * NUMBER
            }
            _ => NUMBER,
        }
    }

    fn computes(&mut self, data: &BytesArg) -> u64 {
        let input = self.bytes(data);
        self.inputs = self.inputs.saturating_add(input);
        input
    }

    /// Whole pages are kept, two of which may be written in part. No more than a result has is
    /// written from it.
    fn writes(&mut self, data: &BytesArg) -> u64 {
        let len = self.bytes(data);
        let most =
            if matches!(data, BytesArg::Given(_)) { len } else { len.min(MOST_RESULTS as u64) };
        let pages = most / BLOCK_SIZE as u64 + 2;
        self.written = self.written.saturating_add(pages * PAGE);
        len
    }
}

#[cfg(test)]
#[path = "need_tests.rs"]
mod tests;
