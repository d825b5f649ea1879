//! What a holder gets of its file's blocks, to read and write them at the target by itself
//! (`docs/design/target.md`, "Programs that are not changed"). It follows the header of its answer:
//! token, the target's name, runs.

use siftfs_base::{Result, corrupt};
use std::fmt;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

/// Most runs of one grant.
pub const MOST_RUNS: usize = 4096;
/// Most bytes of a target's name.
pub const MOST_NAME: usize = 512;
/// Bytes of the target's token.
const TOKEN: usize = 32;
/// Bytes of a run.
const RUN: usize = 24;
/// Most bytes of a grant.
pub const MOST_GRANTED: usize = TOKEN + MOST_NAME + MOST_RUNS * RUN;

/// Blocks of a leased file, and the way to them.
#[derive(Clone, PartialEq, Eq)]
pub struct Granted {
    /// What admits the holder's connection. A caller that knows it has the blocks.
    pub token: [u8; TOKEN],
    /// Where the target is, as the host names it.
    pub target: String,
    /// The file's blocks, in order.
    pub runs: Vec<GrantedRun>,
}

/// Blocks of a file that follow each other there and in the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedRun {
    /// The first one's place in the file, in blocks.
    pub first: u64,
    /// The first one's number in the area.
    pub block: u64,
    /// How many, fewer than 2^63.
    pub count: u64,
    /// None of them was ever written.
    pub fresh: bool,
}

/// The token is a secret.
impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs at {}", self.runs.len(), self.target)
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRun {
    first: U64,
    block: U64,
    /// The lowest bit says whether the run is fresh.
    count: U64,
}

const _: () = assert!(size_of::<RawRun>() == RUN);

fn wrong(detail: &str) -> siftfs_base::Error {
    corrupt("grant of blocks", detail)
}

impl Granted {
    /// Does it fit into one packet?
    pub fn fits(&self) -> bool {
        self.target.len() <= MOST_NAME && self.runs.len() <= MOST_RUNS
    }

    /// The bytes behind the header, which has the length of the name and the number of runs.
    ///
    /// # Panics
    /// If it does not fit.
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(self.fits(), "no more is granted at once");
        let mut bytes = self.token.to_vec();
        bytes.extend_from_slice(self.target.as_bytes());
        bytes.extend(encode_runs(&self.runs));
        bytes
    }

    /// Reads those bytes.
    ///
    /// # Errors
    /// Corrupt: there are more or fewer than the header says, or too many, or the name is no text.
    pub(crate) fn decode(bytes: &[u8], (name, runs): (u64, u64)) -> Result<Self> {
        if name > MOST_NAME as u64 || runs > MOST_RUNS as u64 {
            return Err(wrong("it is too long"));
        }
        let short = || wrong("it has another length than it says");
        let (token, rest) = bytes.split_first_chunk::<TOKEN>().ok_or_else(short)?;
        let (target, rest) = rest.split_at_checked(name as usize).ok_or_else(short)?;
        let target = std::str::from_utf8(target).map_err(|_| wrong("the target has no name"))?;
        Ok(Self { token: *token, target: target.into(), runs: runs_of(rest, runs)? })
    }
}

/// The bytes of runs.
///
/// # Panics
/// If there are more than one message has.
pub(crate) fn encode_runs(runs: &[GrantedRun]) -> Vec<u8> {
    assert!(runs.len() <= MOST_RUNS, "no more is granted at once");
    let raw = |run: &GrantedRun| -> [u8; RUN] {
        let count = run.count << 1 | u64::from(run.fresh);
        let (first, block) = (run.first.into(), run.block.into());
        transmute!(RawRun { first, block, count: count.into() })
    };
    runs.iter().flat_map(raw).collect()
}

/// Reads that number of runs.
///
/// # Errors
/// Corrupt: there are more or fewer bytes, or too many runs.
pub(crate) fn runs_of(bytes: &[u8], runs: u64) -> Result<Vec<GrantedRun>> {
    let (all, rest) = bytes.as_chunks::<RUN>();
    if all.len() as u64 != runs || runs > MOST_RUNS as u64 || !rest.is_empty() {
        return Err(wrong("it has another length than it says"));
    }
    let run = |raw: &[u8; RUN]| {
        let RawRun { first, block, count } = transmute!(*raw);
        let (count, fresh) = (count.get() >> 1, count.get() & 1 == 1);
        GrantedRun { first: first.get(), block: block.get(), count, fresh }
    };
    Ok(all.iter().map(run).collect())
}
