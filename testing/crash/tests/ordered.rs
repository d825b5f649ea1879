//! Power cuts of volumes whose checkpoints replay one transaction after the other.

mod replay;

use siftfs_placement::ReplayMode;

#[test]
fn many_checkpoints() {
    replay::many_checkpoints(ReplayMode::Ordered);
}

#[test]
fn long() {
    replay::long(ReplayMode::Ordered);
}

#[test]
fn a_journal_with_copies() {
    replay::a_journal_with_copies(ReplayMode::Ordered);
}

#[test]
fn two_lanes_and_a_log_elsewhere() {
    replay::two_lanes_and_a_log_elsewhere(ReplayMode::Ordered);
}

#[test]
fn a_record_area() {
    replay::a_record_area(ReplayMode::Ordered);
}
