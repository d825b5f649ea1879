//! Power cuts, as in `power_cut`, of volumes on which a transaction frees one extent of a file:
//! each truncation, hole and removal of more stops in the middle, for a commit, and then goes on.

use siftfs_crash::{Config, Source, VolumeKind, campaign, cut_everywhere, free_at_most};
use siftfs_model::Profile;

fn run(kind: VolumeKind, profile: &Profile, seeds: u64, ops: usize) {
    free_at_most(1);
    let config = Config::from_env(seeds, ops);
    let source = |seed| Source::Seed(seed, config.ops, profile.clone());
    let result = campaign(&config, |seed| cut_everywhere(kind, &source(seed), seed, &config));
    let reports = result.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(config.cut.is_some() || reports.iter().all(|r| r.cuts > 0), "nothing was cut");
}

#[test]
fn in_the_middle() {
    // Few files with holes, whose blocks have homes.
    let profile = Profile {
        names: 4,
        data: 60,
        attrs: 0,
        sync: 20,
        scripts: 0,
        background: 16,
        write_max: 3000,
        offset_max: 60_000,
        ..Profile::crash()
    };
    run(VolumeKind::SMALL, &profile, 80, 60);
    run(VolumeKind::TWO_LANES, &profile, 20, 60);
    run(VolumeKind::SMALL.with_area(), &profile, 30, 60);
}
