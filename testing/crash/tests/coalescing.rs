//! Power cuts of volumes whose checkpoints replay what is left of a batch, whatever its size.

mod replay;

use siftfs_placement::ReplayMode;

#[test]
fn many_checkpoints() {
    replay::many_checkpoints(ReplayMode::Coalesce);
}

#[test]
fn long() {
    replay::long(ReplayMode::Coalesce);
}

#[test]
fn a_journal_with_copies() {
    replay::a_journal_with_copies(ReplayMode::Coalesce);
}

#[test]
fn two_lanes_and_a_log_elsewhere() {
    replay::two_lanes_and_a_log_elsewhere(ReplayMode::Coalesce);
}

#[test]
fn a_record_area() {
    replay::a_record_area(ReplayMode::Coalesce);
}
