//! What steps compute: checksums and compression. Always of bytes that nobody else can change (rule
//! R28), and the more work it is, the less it is done under the state lock.

use crate::operations::compound::plan::Data;
use siftfs_base::{Error, Result, crc32c, errno};
use siftfs_proto::compound::{Checksum, Codec, Width};
use std::io::Read;
use std::sync::Arc;

/// Input and output of a try that is worked on under the state lock: some tens of microseconds of
/// checksums, a millisecond of compression at most.
const LITTLE: usize = 16 << 10;
/// How often a step computes again because its input has changed.
const PATIENCE: u32 = 8;
/// Steps of a compound that compute. Each may make the plan start again.
const MOST_STEPS: u32 = 256;
/// Bytes that they work on.
pub const MOST_WORK: usize = 64 << 20;
/// Compression level of Zstandard: its usual one.
const LEVEL: i32 = 3;
/// What LevelDB adds to a checksum that it stores.
const MASK: u32 = 0xA282_EAD8;
/// Memory that a frame's decoder may want is 2 to the power of this: 16 MiB.
const WINDOW_LOG: u32 = 24;
/// The same in bytes.
pub const WINDOW: u64 = 1 << WINDOW_LOG;

/// What to compute.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// A checksum.
    Sum(Checksum),
    /// Compress.
    Compress(Codec),
    /// Decompress to at most this many bytes.
    Decompress(Codec, u32),
}

/// What it comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Computed {
    /// A checksum.
    Number(u64, Width),
    /// Bytes.
    Bytes(Arc<Vec<u8>>),
}

/// A step's task, and its input.
#[derive(Debug)]
pub struct Job {
    /// The step.
    pub step: usize,
    pub task: Task,
    pub input: Arc<Vec<u8>>,
}

/// Why there is no result.
#[derive(Debug)]
pub enum NotComputed {
    /// This must be done without the lock first.
    Job(Job),
    /// The step fails.
    Failed(Error),
}

impl From<Error> for NotComputed {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What was computed without the lock, by step.
#[derive(Default)]
pub struct Memo {
    known: std::collections::BTreeMap<usize, Known>,
}

struct Known {
    input: Arc<Vec<u8>>,
    output: Result<Computed>,
    times: u32,
}

/// What one try may still compute.
pub struct Budget {
    steps: u32,
    work: usize,
    under_lock: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { steps: MOST_STEPS, work: MOST_WORK, under_lock: LITTLE }
    }
}

impl Budget {
    /// Takes a step with so much input.
    fn take(&mut self, input: usize) -> Result<()> {
        let (Some(steps), Some(work)) = (self.steps.checked_sub(1), self.work.checked_sub(input))
        else {
            return Err(errno(libc::E2BIG));
        };
        (self.steps, self.work) = (steps, work);
        Ok(())
    }

    /// May a task with so much input be done under the lock?
    fn allows(&mut self, task: Task, input: usize) -> bool {
        let output = if let Task::Decompress(_, most) = task { most as usize } else { 0 };
        let left = self.under_lock.checked_sub(input.saturating_add(output));
        self.under_lock = left.unwrap_or(self.under_lock);
        left.is_some()
    }
}

impl Memo {
    /// The result of a step's task, or the job that must be done without the lock first. `E2BIG`
    /// for more than a compound computes, `EAGAIN` if others keep changing what it works on.
    pub fn compute(
        &self,
        budget: &mut Budget,
        step: usize,
        task: Task,
        input: Data<'_>,
    ) -> std::result::Result<Computed, NotComputed> {
        budget.take(input.len())?;
        match self.known.get(&step) {
            Some(known) if known.input[..] == *input => Ok(known.output.clone()?),
            _ if budget.allows(task, input.len()) => Ok(carry_out(task, &input)?),
            Some(known) if known.times >= PATIENCE => Err(errno(libc::EAGAIN).into()),
            _ => Err(NotComputed::Job(Job { step, task, input: input.shared() })),
        }
    }

    /// Does a job. The caller does not hold the state lock.
    pub fn carry_out(&mut self, job: Job) {
        let Job { step, task, input } = job;
        let output = carry_out(task, &input);
        let times = self.known.get(&step).map_or(0, |known| known.times) + 1;
        self.known.insert(step, Known { input, output, times });
    }
}

fn carry_out(task: Task, input: &[u8]) -> Result<Computed> {
    match task {
        Task::Sum(kind) => Ok(sum(kind, input)),
        Task::Compress(codec) => compress(codec, input).map(|out| Computed::Bytes(Arc::new(out))),
        Task::Decompress(codec, most) => {
            decompress(codec, input, most as usize).map(|out| Computed::Bytes(Arc::new(out)))
        }
    }
}

fn sum(kind: Checksum, data: &[u8]) -> Computed {
    let crc = || crc32c(data);
    match kind {
        Checksum::Crc32c => Computed::Number(crc().into(), Width::U32),
        Checksum::MaskedCrc32c => {
            let masked = crc().rotate_right(15).wrapping_add(MASK);
            Computed::Number(masked.into(), Width::U32)
        }
        Checksum::Xxh3 => Computed::Number(twox_hash::XxHash3_64::oneshot(data), Width::U64),
    }
}

fn compress(codec: Codec, data: &[u8]) -> Result<Vec<u8>> {
    let out = match codec {
        Codec::Lz4Frame => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            let written = std::io::Write::write_all(&mut encoder, data);
            written.ok().and_then(|()| encoder.finish().ok())
        }
        Codec::Zstd => zstd::bulk::compress(data, LEVEL).ok(),
    };
    // Memory is all that they need.
    out.ok_or_else(|| errno(libc::ENOMEM))
}

/// No more than `most` bytes are made, and one, whatever the frame says.
fn decompress(codec: Codec, frame: &[u8], most: usize) -> Result<Vec<u8>> {
    let broken = || errno(libc::EILSEQ);
    let mut out = Vec::new();
    let rest = match codec {
        Codec::Lz4Frame => {
            let input = Input { rest: frame, passed_end: false };
            let mut decoder = lz4_flex::frame::FrameDecoder::new(input);
            read_some(&mut decoder, most, &mut out)?;
            let Input { rest, passed_end } = decoder.into_inner();
            if passed_end {
                return Err(broken());
            }
            rest.len()
        }
        Codec::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(frame)
                .map_err(|_| broken())?
                .single_frame();
            decoder.window_log_max(WINDOW_LOG).map_err(|_| broken())?;
            read_some(&mut decoder, most, &mut out)?;
            decoder.finish().len()
        }
    };
    // Nothing is no frame, and what follows one is not data.
    if frame.is_empty() || rest > 0 { Err(broken()) } else { Ok(out) }
}

/// A frame that is being read. The decoder takes one whose end mark is missing for a whole one, but
/// asks for more than there is.
struct Input<'a> {
    rest: &'a [u8],
    passed_end: bool,
}

impl Read for Input<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.passed_end |= self.rest.is_empty() && !buf.is_empty();
        self.rest.read(buf)
    }
}

fn read_some(from: &mut impl Read, most: usize, out: &mut Vec<u8>) -> Result<()> {
    let limit = most as u64 + 1;
    from.take(limit).read_to_end(out).map_err(|_| errno(libc::EILSEQ))?;
    if out.len() > most { Err(errno(libc::EOVERFLOW)) } else { Ok(()) }
}

#[cfg(test)]
#[path = "compute_tests.rs"]
mod tests;
