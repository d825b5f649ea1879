//! Power is cut at every write and flush of generated sequences, and of the recoveries after.

use siftfs_crash::{
    Config, CutReport, Source, VolumeKind, campaign, cut_everywhere, generate, shortest,
};
use siftfs_model::Profile;

fn run(kind: VolumeKind, profile: &Profile, seeds: u64, ops: usize) {
    let config = Config::from_env(seeds, ops);
    let source = |seed| Source::Seed(seed, config.ops, profile.clone());
    let result = campaign(&config, |seed| cut_everywhere(kind, &source(seed), seed, &config));
    let reports = match result {
        Ok(reports) => reports,
        Err(failure) => {
            if config.shrink
                && let Some(ops) = generate(kind, &source(failure.seed))
            {
                let all = Config { cut: None, ..config.clone() };
                let one = |s: &Source| cut_everywhere(kind, s, failure.seed, &all).map(|_| ());
                eprintln!("{}", shortest(ops, one));
            }
            panic!("{failure}");
        }
    };
    let sum = reports.iter().fold(CutReport::default(), |a, b| CutReport {
        runs: a.runs + b.runs,
        cuts: a.cuts + b.cuts,
        recoveries: a.recoveries + b.recoveries,
    });
    println!("{kind:?}: {sum:?}");
    assert!(config.cut.is_some() || sum.cuts >= sum.runs, "nothing was cut");
}

#[test]
fn mixed() {
    run(VolumeKind::SMALL, &Profile::crash(), 240, 30);
}

/// A redo lane of the target's is beside it, in which there is nothing.
#[test]
fn a_redo_lane() {
    run(VolumeKind::SMALL.with_redo_lane(), &Profile::crash(), 10, 30);
    run(VolumeKind::APART.with_redo_lane(), &Profile::crash(), 5, 30);
    run(VolumeKind::SMALL.with_redo_lane().with_area(), &Profile::crash(), 5, 30);
}

/// Small fsyncs go to a record area, whose persists are cut at, too; area and disk also fail apart.
#[test]
fn a_record_area() {
    run(VolumeKind::SMALL.with_area(), &Profile::crash(), 120, 30);
    run(VolumeKind::TWO_LANES.with_area(), &Profile::crash(), 30, 30);
    run(VolumeKind::APART.with_area(), &Profile::crash(), 30, 30);
    let all = Profile { tickets: 20, sections: 20, compounds: 20, publish: 10, ..Profile::crash() };
    run(VolumeKind::ROOMY.with_area(), &all, 30, 40);
    run(VolumeKind::ROOMY.copies().with_area(), &Profile::crash(), 20, 30);
}

/// Tickets: whatever of them power takes, what comes back was staged before what is lost, and what
/// was waited for is there.
#[test]
fn tickets() {
    let profile = Profile { tickets: 30, sync: 8, ..Profile::crash() };
    run(VolumeKind::SMALL, &profile, 80, 30);
    run(VolumeKind::TWO_LANES, &profile, 40, 30);
}

/// Sections: what one commit brings, to a file or to several, is there or not; what was aborted,
/// refused or left open is not.
#[test]
fn sections() {
    let profile = Profile { sections: 60, names: 34, data: 10, sync: 8, ..Profile::crash() };
    run(VolumeKind::SMALL, &profile, 80, 50);
    run(VolumeKind::TWO_LANES, &profile, 40, 50);
    run(VolumeKind::SMALL.copies(), &profile, 20, 50);
}

/// Compounds: of those of a sequence the first few are there in whole, and of the others, and of
/// what came after them, nothing.
#[test]
fn compounds() {
    let profile = Profile { compounds: 40, sync: 10, ..Profile::crash() };
    run(VolumeKind::ROOMY, &profile, 60, 30);
    run(VolumeKind::ROOMY_TWO_LANES, &profile, 40, 30);
    run(VolumeKind::ROOMY.copies(), &profile, 20, 30);
    let with_others = Profile { sections: 30, tickets: 15, publish: 10, ..profile };
    run(VolumeKind::ROOMY, &with_others, 20, 40);
}

#[test]
fn two_lanes() {
    run(VolumeKind::TWO_LANES, &Profile::crash(), 60, 30);
}

#[test]
fn names() {
    let profile = Profile { names: 55, data: 10, scripts: 14, dirs: 10, ..Profile::crash() };
    run(VolumeKind::SMALL, &profile, 140, 40);
}

/// More unsynced data than the page cache holds: it is pushed while it is written.
#[test]
fn memory_pressure() {
    let profile =
        Profile { data: 50, sync: 8, write_max: 300_000, offset_max: 300_000, ..Profile::crash() };
    run(VolumeKind::ROOMY, &profile, 20, 40);
}

/// Names that change together, with all else that happens between.
#[test]
fn publishes() {
    let profile = Profile { publish: 25, names: 30, ..Profile::crash() };
    run(VolumeKind::ROOMY, &profile, 60, 30);
}

/// Long enough that rings wrap and reclaimed space is used again.
#[test]
fn long() {
    let profile = Profile { background: 8, write_max: 60_000, ..Profile::crash() };
    run(VolumeKind::SMALL, &profile, 8, 160);
}

/// The journal repeats staged data, and both are replayed, in order.
#[test]
fn a_journal_with_copies() {
    let profile = Profile { background: 12, ..Profile::crash() };
    run(VolumeKind::SMALL.copies(), &profile, 20, 40);
}

/// The log on a device of its own, with flushes of its own; both lose power together.
#[test]
fn log_apart() {
    run(VolumeKind::APART, &Profile::crash(), 60, 30);
}

#[test]
fn log_apart_with_two_lanes_and_many_names() {
    let profile = Profile { names: 45, scripts: 14, dirs: 10, ..Profile::crash() };
    run(VolumeKind::APART_TWO_LANES, &profile, 20, 40);
}

/// Rings wrap, checkpoints reclaim, blocks are used again.
#[test]
fn log_apart_long() {
    let profile = Profile { background: 8, write_max: 60_000, ..Profile::crash() };
    run(VolumeKind::APART, &profile, 3, 160);
}
