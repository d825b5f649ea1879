//! Tests of the list of runs that were written ahead.

use super::*;

#[test]
fn runs_that_join_are_listed_as_one() {
    let mut pushed = Pushed::default();
    pushed.add(BlockRun { start: 100, len: 4 }, false);
    pushed.add(BlockRun { start: 104, len: 2 }, true);
    // Right behind the one before it, but the caller hands it over on its own.
    pushed.add(BlockRun { start: 106, len: 1 }, false);
    assert_eq!(pushed.bytes(), 7 * BLOCK_SIZE);
    let wanted = [BlockRun { start: 100, len: 6 }, BlockRun { start: 106, len: 1 }];
    assert_eq!(pushed.into_runs(), wanted);
}
