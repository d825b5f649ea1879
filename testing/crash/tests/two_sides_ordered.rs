//! As `two_sides`, with checkpoints that replay one transaction after the other.

use siftfs_crash::{VolumeKind, deaths_and_cuts, replay_by};
use siftfs_placement::ReplayMode;
use std::time::Duration;

#[test]
fn the_device_process_dies_and_another_takes_over() {
    replay_by(ReplayMode::Ordered);
    deaths_and_cuts(VolumeKind::SMALL, 0, None, 8);
}

#[test]
fn with_two_lanes_and_a_log_elsewhere() {
    replay_by(ReplayMode::Ordered);
    deaths_and_cuts(VolumeKind::APART_TWO_LANES, 0, None, 4);
}

#[test]
fn with_a_record_area() {
    replay_by(ReplayMode::Ordered);
    deaths_and_cuts(VolumeKind::SMALL.with_area(), 0, None, 8);
}

#[test]
fn the_host_takes_over_and_gives_back() {
    replay_by(ReplayMode::Ordered);
    deaths_and_cuts(VolumeKind::SMALL, 2, Some(Duration::ZERO), 4);
}
