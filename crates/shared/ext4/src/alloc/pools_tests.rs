use super::*;

fn run(start: u64, len: u64) -> BlockRun {
    BlockRun { start, len }
}

#[test]
fn a_run_is_found_where_it_is_wanted() {
    let mut pools = Pools::default();
    let id = PoolId::Of(7);
    assert!(!pools.turn_of(id));
    pools.begin(id);
    assert!(pools.turn_of(id));
    assert_eq!((pools.best(id, 0, 1), pools.at(id, 0, 1)), (None, None));
    for (start, len) in [(10, 3), (20, 8), (40, 8), (60, 5)] {
        pools.give(id, run(start, len));
    }
    assert_eq!((pools.blocks(), pools.blocks_of(id), pools.runs_of(id)), (24, 24, 4));
    assert_eq!(pools.at(id, 22, 4), Some(run(22, 4)), "in the middle of a run");
    assert_eq!(pools.at(id, 22, 100), Some(run(22, 6)), "as far as it goes");
    assert_eq!((pools.at(id, 9, 4), pools.at(id, u64::MAX, 4)), (None, None));
    assert_eq!(pools.best(id, 25, 4), Some(run(40, 4)), "behind the goal");
    assert_eq!(pools.best(id, 61, 6), Some(run(20, 6)), "none behind it");
    assert_eq!(pools.best(id, 61, 9), Some(run(20, 8)), "the longest, and the first of these");
    pools.take(id, run(22, 4));
    assert_eq!((pools.blocks(), pools.runs_of(id)), (20, 5));
    assert_eq!(pools.at(id, 22, 1), None);
    assert!(!pools.all().contains(22) && pools.all().contains(26));
}

#[test]
fn pools_end_alone_and_together() {
    let mut pools = Pools::default();
    let ids = [PoolId::Shared, PoolId::Of(1), PoolId::Of(2)];
    for (id, start) in ids.into_iter().zip([100, 200, 300]) {
        pools.begin(id);
        pools.turn_of(id);
        pools.give(id, run(start, 10));
    }
    assert_eq!(pools.oldest_beside(PoolId::Of(2)), Some(PoolId::Shared));
    pools.turn_of(PoolId::Shared);
    assert_eq!(pools.oldest_beside(PoolId::Of(2)), Some(PoolId::Of(1)));
    assert_eq!(pools.end(PoolId::Of(1)), [run(200, 10)]);
    assert!(!pools.turn_of(PoolId::Of(1)), "it has ended");
    assert_eq!((pools.filled(), pools.blocks()), (2, 20));
    assert!(pools.is_too_much_of(39) && !pools.is_too_much_of(40));
    assert_eq!(pools.empty_all(), [run(100, 10), run(300, 10)]);
    assert_eq!((pools.filled(), pools.blocks(), pools.all().is_empty()), (0, 0, true));
    assert!(pools.turn_of(PoolId::Shared), "an empty pool goes on");
    assert_eq!(pools.end(PoolId::Of(9)), []);
}

#[test]
#[should_panic(expected = "a block of two pools")]
fn no_block_is_in_two_pools() {
    let mut pools = Pools::default();
    pools.give(PoolId::Of(1), run(10, 5));
    pools.give(PoolId::Of(2), run(14, 5));
}

#[test]
fn a_small_volume_has_no_pools() {
    assert_eq!((window(0), window(1023)), (0, 0));
    assert_eq!((window(1024), window(u64::MAX)), (16, 1024));
}
