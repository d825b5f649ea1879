//! Power cuts, as in `power_cut`, of volumes whose checkpoints replay in a chosen mode. A process
//! has one mode.

use siftfs_crash::{Config, CutReport, Source, VolumeKind, campaign, cut_everywhere, replay_by};
use siftfs_model::Profile;
use siftfs_placement::ReplayMode;

fn run(mode: ReplayMode, kind: VolumeKind, profile: &Profile, seeds: u64, ops: usize) {
    replay_by(mode);
    let config = Config::from_env(seeds, ops);
    let source = |seed| Source::Seed(seed, config.ops, profile.clone());
    let result = campaign(&config, |seed| cut_everywhere(kind, &source(seed), seed, &config));
    let reports = result.unwrap_or_else(|failure| panic!("{failure}"));
    let cuts: u64 = reports.iter().map(|CutReport { cuts, .. }| cuts).sum();
    println!("{kind:?}: {} runs, {cuts} cuts", reports.len());
    assert!(config.cut.is_some() || cuts >= reports.len() as u64, "nothing was cut");
}

/// Checkpoints of many transactions, often.
pub fn many_checkpoints(mode: ReplayMode) {
    let profile = Profile { background: 30, ..Profile::crash() };
    run(mode, VolumeKind::SMALL, &profile, 60, 40);
}

/// Rings wrap, blocks are freed and used again within a batch's reach.
pub fn long(mode: ReplayMode) {
    let profile = Profile { background: 8, write_max: 60_000, ..Profile::crash() };
    run(mode, VolumeKind::SMALL, &profile, 4, 160);
}

/// The journal repeats staged data: the journaled repetition wins, and recovery reads it.
pub fn a_journal_with_copies(mode: ReplayMode) {
    let profile = Profile { background: 20, ..Profile::crash() };
    run(mode, VolumeKind::SMALL.copies(), &profile, 16, 40);
    run(mode, VolumeKind::APART_TWO_LANES.copies(), &profile, 4, 40);
}

pub fn two_lanes_and_a_log_elsewhere(mode: ReplayMode) {
    let profile = Profile { background: 20, ..Profile::crash() };
    run(mode, VolumeKind::APART_TWO_LANES, &profile, 16, 40);
}

pub fn a_record_area(mode: ReplayMode) {
    let profile = Profile { background: 20, ..Profile::crash() };
    run(mode, VolumeKind::SMALL.with_area(), &profile, 24, 40);
}
