//! How much of a backlog will be dead at its end, estimated from a sample of its blocks, for
//! `auto`'s choice.

use siftfs_base::BLOCK_BYTES;
use siftfs_log::Transaction;
use std::collections::HashSet;

/// One block in this many is noted.
const ONE_IN: u64 = 64;
/// Notes that a judgement needs.
const ENOUGH: usize = 64;
/// Notes that are read, at most.
const MOST: usize = 1 << 16;
/// Blocks of one transaction that are checked, at most: it may free a whole disk.
const MOST_BLOCKS: u64 = 1 << 18;
/// A backlog is worth an interval map if one in this many of its blocks will be dead.
const DEAD: usize = 16;
/// Marks a block that was freed.
const FREED: u64 = 1 << 63;

/// Is this block one of those whose every use is noted?
fn noted(block: u64) -> bool {
    (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(ONE_IN)
}

/// A transaction's notes: blocks freed, then blocks that its tags name. A block's uses are
/// noted in all transactions or in none, so reuse shows at any distance.
pub(crate) fn sample(txn: &Transaction) -> Box<[u64]> {
    let blocks =
        |dst: u64, len: u32| dst / BLOCK_BYTES..(dst + u64::from(len)).div_ceil(BLOCK_BYTES);
    let freed = txn.drops.iter().flat_map(|r| r.start..r.end()).map(|b| (b, FREED));
    let zeros = txn.zeros.iter().flat_map(|z| blocks(z.dst, z.len));
    let copies = txn.copies.iter().flat_map(|c| blocks(c.dst, c.len));
    let all = freed.chain(zeros.chain(copies).map(|b| (b, 0)));
    let most = all.take(MOST_BLOCKS as usize);
    most.filter(|(b, _)| noted(*b)).map(|(b, mark)| b | mark).collect()
}

/// Is the backlog with these notes, oldest first, worth an interval map?
pub(crate) fn worth_a_map<'a>(notes: impl Iterator<Item = &'a u64>) -> bool {
    let (mut live, mut named, mut dead) = (HashSet::new(), 0, 0);
    for note in notes.take(MOST) {
        if note & FREED != 0 {
            dead += usize::from(live.remove(&(note ^ FREED)));
        } else {
            named += 1;
            dead += usize::from(!live.insert(*note));
        }
    }
    named < ENOUGH || dead * DEAD >= named
}

#[cfg(test)]
#[path = "reuse_tests.rs"]
mod tests;
