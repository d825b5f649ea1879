//! How much is tried, and which single case.

use std::env;
use std::path::PathBuf;

/// Numbers of a campaign of seeds.
#[derive(Clone, Debug)]
pub struct Config {
    /// First seed.
    pub first: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Operations per sequence.
    pub ops: usize,
    /// Only this cut, when given.
    pub cut: Option<u64>,
    /// Every n-th cut gets e2fsck (1: every).
    pub e2fsck_every: u64,
    /// Every n-th cut has its recovery cut at every boundary.
    pub recut_every: u64,
    /// Of those, every n-th boundary of the recovery.
    pub recut_stride: u64,
    /// Make a failing sequence shorter before it is shown.
    pub shrink: bool,
    /// Directory in which the image of a failing cut is kept.
    pub keep: Option<PathBuf>,
}

/// How many times as many seeds a long run has.
const LONG: u64 = 20;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

impl Config {
    /// `seeds` seeds of `ops` operations, unless the environment says otherwise:
    /// `SIFTFS_LONG` multiplies the seeds, `SIFTFS_SEEDS` is their number, `SIFTFS_SEED` one seed
    /// or the first, `SIFTFS_OPS` the length of a sequence, `SIFTFS_CUT` the one cut to try,
    /// `SIFTFS_SHRINK=1` makes a failing sequence shorter, `SIFTFS_KEEP` names a directory in which
    /// the image of a failing cut is kept. One cut of one seed gets every check.
    pub fn from_env(seeds: u64, ops: usize) -> Self {
        let one = number("SIFTFS_SEED");
        let cut = number("SIFTFS_CUT");
        let long = if env::var_os("SIFTFS_LONG").is_some() { LONG } else { 1 };
        let seeds = if one.is_some() { 1 } else { seeds * long };
        let seeds = number("SIFTFS_SEEDS").unwrap_or(seeds);
        let ops = number("SIFTFS_OPS").map_or(ops, |n| usize::try_from(n).unwrap_or(ops));
        let thorough = cut.is_some();
        Self {
            first: one.unwrap_or(1),
            seeds,
            ops,
            cut,
            e2fsck_every: if thorough { 1 } else { 7 },
            recut_every: if thorough { 1 } else { 61 },
            recut_stride: 1,
            shrink: number("SIFTFS_SHRINK") == Some(1),
            keep: env::var_os("SIFTFS_KEEP").map(PathBuf::from),
        }
    }
}
