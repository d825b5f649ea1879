//! Power cuts, as in `power_cut`, of volumes whose checkpoints replay only what is left of a batch.

use siftfs_crash::{Config, CutReport, Source, VolumeKind, campaign, cut_everywhere, replay_by};
use siftfs_model::Profile;
use siftfs_placement::ReplayMode;

fn run(kind: VolumeKind, profile: &Profile, seeds: u64, ops: usize) {
    replay_by(ReplayMode::Coalesce);
    let config = Config::from_env(seeds, ops);
    let source = |seed| Source::Seed(seed, config.ops, profile.clone());
    let result = campaign(&config, |seed| cut_everywhere(kind, &source(seed), seed, &config));
    let reports = result.unwrap_or_else(|failure| panic!("{failure}"));
    let cuts: u64 = reports.iter().map(|CutReport { cuts, .. }| cuts).sum();
    println!("{kind:?}: {} runs, {cuts} cuts", reports.len());
    assert!(config.cut.is_some() || cuts >= reports.len() as u64, "nothing was cut");
}

/// Checkpoints of many transactions, often.
#[test]
fn many_checkpoints() {
    let profile = Profile { background: 30, ..Profile::crash() };
    run(VolumeKind::SMALL, &profile, 60, 40);
}

/// Rings wrap, blocks are freed and used again within a batch's reach.
#[test]
fn long() {
    let profile = Profile { background: 8, write_max: 60_000, ..Profile::crash() };
    run(VolumeKind::SMALL, &profile, 4, 160);
}

/// The journal repeats staged data: the journaled repetition wins, and recovery reads it.
#[test]
fn a_journal_with_copies() {
    let profile = Profile { background: 20, ..Profile::crash() };
    run(VolumeKind::SMALL.copies(), &profile, 16, 40);
    run(VolumeKind::APART_TWO_LANES.copies(), &profile, 4, 40);
}

#[test]
fn two_lanes_and_a_log_elsewhere() {
    let profile = Profile { background: 20, ..Profile::crash() };
    run(VolumeKind::APART_TWO_LANES, &profile, 16, 40);
}
