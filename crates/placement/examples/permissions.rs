//! How long checks of the target's permission table take, and what memory it takes: figures of
//! `docs/design/target.md`, "The permission table". `permissions [FOLDER]` makes the scratch files
//! in FOLDER, or in the temporary folder.
//!
//! A check is timed with 31 others of its kind beside it, so that the clock's own time does not
//! count: p50 and p99 of a check that is answered from memory are those of means of 32. Where some
//! checks read the scratch file, each is timed by itself, less the clock's own time.

use siftfs_base::{BlockRun, Result, Rng};
use siftfs_placement::permissions::{Checked, Memory, Owner, Permissions};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Blocks of a leaf.
const LEAF: u64 = 512;
/// Leaves of the measured area, 8 GiB.
const LEAVES: u64 = 4096;
/// Bytes of memory that a leaf in memory is reckoned with, and then some.
const LEAF_BYTES: usize = 2144;
/// Checks of a measurement.
const CHECKS: usize = 1 << 19;
/// Checks that are timed together.
const TOGETHER: usize = 32;

fn memory(leaves: u64) -> Memory {
    let leaves = usize::try_from(leaves).expect("few") * LEAF_BYTES;
    Memory { leaves, index: 256 << 20 }
}

/// The blocks that are checked.
#[derive(Clone, Copy)]
enum Where {
    Random,
    /// A leaf of rank r is chosen about as often as 1/r says: of the logarithm of the rank every
    /// value is as likely as another.
    Zipf,
}

impl Where {
    fn block(self, rng: &mut Rng) -> u64 {
        let leaf = match self {
            Self::Random => rng.below(LEAVES),
            Self::Zipf => {
                let part = rng.below(1 << 32) as f64 / (1u64 << 32) as f64;
                let rank = (LEAVES as f64).powf(part) as u64;
                // Ranks that follow each other lie apart in the area.
                rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % LEAVES
            }
        };
        leaf * LEAF + rng.below(LEAF)
    }
}

fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

/// The time that the clock itself takes, in nanoseconds.
fn clock() -> f64 {
    let mut all: Vec<f64> =
        (0..10_000).map(|_| Instant::now().elapsed().as_nanos() as f64).collect();
    all.sort_unstable_by(f64::total_cmp);
    percentile(&all, 50)
}

fn ask(table: &Permissions, owners: [Owner; 2], block: u64) {
    let [even, odd] = owners;
    let owner = if block.is_multiple_of(2) { even } else { odd };
    let checked = table.check(black_box(owner), block..block + 1);
    assert_eq!(checked, Ok(Checked::Written), "block {block}");
}

fn measure(name: &str, table: &Permissions, owners: [Owner; 2], places: Where, together: usize) {
    let mut rng = Rng::new(1);
    let blocks: Vec<u64> = (0..CHECKS).map(|_| places.block(&mut rng)).collect();
    blocks.iter().for_each(|block| ask(table, owners, *block));
    let (own, before) = (clock(), table.counts());
    let mut times: Vec<f64> = Vec::with_capacity(CHECKS / together);
    let begin = Instant::now();
    for some in blocks.chunks(together) {
        let start = Instant::now();
        some.iter().for_each(|block| ask(table, owners, *block));
        let all = start.elapsed().as_nanos() as f64 - own;
        times.push(all.max(0.0) / some.len() as f64);
    }
    let mean = begin.elapsed().as_nanos() as f64 / CHECKS as f64;
    times.sort_unstable_by(f64::total_cmp);
    let after = table.counts();
    let misses = (after.misses - before.misses) as f64;
    let hits = (after.hits - before.hits) as f64 / CHECKS as f64;
    println!(
        "{name:34} p50 {:6.0} ns, p99 {:6.0} ns, mean {mean:6.0} ns, hits {:5.1} %, misses {misses}",
        percentile(&times, 50),
        percentile(&times, 99),
        hits * 100.0,
    );
}

/// A table whose blocks are two owners' in turn, with room in memory for this many leaves.
fn mixed(folder: &Path, leaves: u64) -> Result<(Permissions, [Owner; 2])> {
    let table = Permissions::new(LEAVES * LEAF, memory(leaves), folder)?;
    let owners = [table.owner()?, table.owner()?];
    for (from, owner) in (0..).zip(owners) {
        for first in (0..LEAVES * LEAF).step_by(8192) {
            let blocks = (first + from..first + 8192).step_by(2);
            let runs: Vec<_> = blocks.map(|start| BlockRun { start, len: 1 }).collect();
            table.give(owner, &runs, true)?;
        }
    }
    Ok((table, owners))
}

fn times(folder: &Path) -> Result<()> {
    let table = Permissions::new(LEAVES * LEAF, memory(LEAVES), folder)?;
    let owner = table.owner()?;
    table.give(owner, &[BlockRun { start: 0, len: LEAVES * LEAF }], true)?;
    measure("all in memory, leaves alike", &table, [owner; 2], Where::Random, TOGETHER);
    let (table, owners) = mixed(folder, LEAVES)?;
    measure("all in memory, leaves mixed", &table, owners, Where::Random, TOGETHER);
    for percent in [50, 25, 10] {
        for (places, kind) in [(Where::Random, "random"), (Where::Zipf, "zipf")] {
            let (table, owners) = mixed(folder, LEAVES * percent / 100)?;
            measure(&format!("{percent} % in memory, {kind}"), &table, owners, places, 1);
        }
    }
    Ok(())
}

/// Bytes of this process that are in memory, of which some are the program itself.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or_default() * 4096
}

fn size(name: &str, table: &Permissions, before: usize) {
    let (counts, grown) = (table.counts(), resident().saturating_sub(before));
    println!(
        "{name:34} {:9} bytes computed, {grown:9} resident, {} hot, {} spilled, file {}",
        counts.bytes, counts.hot, counts.spilled, counts.spill_bytes,
    );
}

/// Blocks of 1 TiB.
const AREA: u64 = 1 << 28;

fn sizes(folder: &Path) -> Result<()> {
    let new = |leaves| Permissions::new(AREA, memory(leaves), folder);
    let (before, table) = (resident(), new(2048)?);
    size("1 TiB, nothing granted", &table, before);
    let owner = table.owner()?;
    table.give(owner, &[BlockRun { start: 0, len: 1 << 20 }], true)?;
    size("a million blocks in one run", &table, before);
    drop(table);
    let (before, table) = (resident(), new(2048)?);
    for start in (0..AREA).step_by(4096) {
        table.give(table.owner()?, &[BlockRun { start, len: 1 }], true)?;
    }
    size("65,536 owners of a block each", &table, before);
    drop(table);
    let before = resident();
    let (table, _) = mixed(folder, LEAVES / 2)?;
    size("alternate blocks of 8 GiB, half hot", &table, before);
    Ok(())
}

fn main() -> ExitCode {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    match sizes(&folder).and_then(|()| times(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("permissions: {error}");
            ExitCode::FAILURE
        }
    }
}
