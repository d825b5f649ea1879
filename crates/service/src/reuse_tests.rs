use super::*;
use siftfs_base::BlockRun;
use siftfs_log::CopyTag;

fn txn(blocks: impl Iterator<Item = u64>, drops: Vec<BlockRun>) -> Transaction {
    let tag = |b| CopyTag { source: 0, data_offset: 0, dst: b * BLOCK_BYTES, len: 4096 };
    Transaction { copies: blocks.map(tag).collect(), drops, ..Transaction::default() }
}

fn judge(txns: &[Transaction]) -> bool {
    let notes: Vec<_> = txns.iter().map(sample).collect();
    worth_a_map(notes.iter().flat_map(|n| n.iter()))
}

#[test]
fn a_stream_needs_no_map() {
    let txns: Vec<_> = (0..100).map(|i| txn(i * 1000..(i + 1) * 1000, vec![])).collect();
    let notes: usize = txns.iter().map(|t| sample(t).len()).sum();
    assert!((1000..2200).contains(&notes), "{notes} notes of 100,000 blocks");
    assert!(!judge(&txns));
}

#[test]
fn reuse_is_seen_at_any_distance() {
    // Everything twice, but the second time 100,000 blocks later.
    let txns: Vec<_> = (0..200).map(|i| (i % 100) * 1000).collect();
    let txns: Vec<_> = txns.into_iter().map(|b| txn(b..b + 1000, vec![])).collect();
    assert!(judge(&txns));
}

#[test]
fn temporary_files_are_worth_a_map() {
    let drops = |i| vec![BlockRun { start: i * 1000, len: 1000 }];
    let txns = (0..100u64).map(|i| {
        let drops = if i > 0 { drops(i - 1) } else { vec![] };
        txn(i * 1000..(i + 1) * 1000, drops)
    });
    assert!(judge(&txns.collect::<Vec<_>>()));
    // Freed without ever having been named in the backlog: nothing is saved.
    let old = (0..100u64).map(|i| txn(i * 1000..(i + 1) * 1000, drops(5000 + i)));
    assert!(!judge(&old.collect::<Vec<_>>()));
}

#[test]
fn little_to_judge_by_means_the_map() {
    assert!(judge(&[txn(0..500, vec![])]));
    assert!(!judge(&[txn(0..8000, vec![])]));
}

#[test]
fn a_freed_disk_is_not_walked() {
    let t = txn(0..0, vec![BlockRun { start: 0, len: 1 << 50 }]);
    assert!(sample(&t).len() < 8192);
}
