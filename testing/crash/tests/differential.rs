//! The Runtime against the model, without any crash: every answer and the whole tree.

use siftfs_crash::{Config, Source, VolumeKind, campaign, differential, record, shortest};
use siftfs_model::Profile;

fn run(kind: VolumeKind, profile: &Profile, seeds: u64, ops: usize) {
    let config = Config::from_env(seeds, ops);
    let source = |seed| Source::Seed(seed, config.ops, profile.clone());
    let result = campaign(&config, |seed| differential(kind, &source(seed), 40));
    let Err(failure) = result else { return };
    if config.shrink
        && let Some(ops) = siftfs_crash::generate(kind, &source(failure.seed))
    {
        eprintln!("{}", shortest(ops, |source| differential(kind, source, 1)));
    }
    panic!("{failure}");
}

#[test]
fn small_volume() {
    run(VolumeKind::SMALL, &Profile::default(), 150, 150);
}

#[test]
fn two_lanes() {
    run(VolumeKind::TWO_LANES, &Profile::default(), 50, 150);
}

/// A redo lane of the target's is beside it, in which there is nothing.
#[test]
fn a_redo_lane() {
    run(VolumeKind::SMALL.with_redo_lane(), &Profile::default(), 10, 150);
    run(VolumeKind::APART.with_redo_lane(), &Profile::default(), 10, 150);
}

/// Small fsyncs go to a record area, which is full now and then.
#[test]
fn a_record_area() {
    run(VolumeKind::SMALL.with_area(), &Profile::default(), 100, 150);
    run(VolumeKind::TWO_LANES.with_area(), &Profile::default(), 30, 150);
    run(VolumeKind::APART.with_area(), &Profile::default(), 30, 150);
    let all =
        Profile { tickets: 10, sections: 20, compounds: 20, publish: 10, ..Profile::default() };
    run(VolumeKind::ROOMY.with_area(), &all, 40, 150);
}

/// A journal that repeats staged data has room for it: 512 KiB at once where it is smallest.
#[test]
fn a_journal_with_copies() {
    run(VolumeKind::SMALL.copies(), &Profile::default(), 40, 150);
    let data = Profile { names: 6, data: 60, sync: 20, write_max: 300_000, ..Profile::default() };
    run(VolumeKind::SMALL.copies(), &data, 10, 150);
}

/// Many inodes are staged for tickets, which some callers wait for.
#[test]
fn tickets() {
    let profile = Profile { tickets: 30, sync: 8, ..Profile::default() };
    run(VolumeKind::TWO_LANES, &profile, 40, 150);
}

/// Sections of several files at once, and others who change what they wrote.
#[test]
fn sections() {
    let profile = Profile { sections: 60, sync: 8, ..Profile::default() };
    run(VolumeKind::SMALL, &profile, 60, 150);
    run(VolumeKind::TWO_LANES, &profile, 30, 150);
}

/// A compound answers what its steps would under one lock, and leaves what they would.
#[test]
fn compounds() {
    let profile = Profile { compounds: 60, sync: 8, ..Profile::default() };
    run(VolumeKind::ROOMY, &profile, 60, 150);
    run(VolumeKind::ROOMY_TWO_LANES, &profile, 30, 150);
    let with_others = Profile { sections: 30, names: 40, ..profile };
    run(VolumeKind::ROOMY, &with_others, 30, 150);
}

/// Mostly names: directories move, files are replaced and removed while open.
#[test]
fn names() {
    let profile = Profile { names: 60, data: 10, dirs: 12, ..Profile::default() };
    run(VolumeKind::SMALL, &profile, 80, 250);
}

#[test]
fn publishes() {
    let profile = Profile { publish: 30, names: 40, dirs: 8, ..Profile::default() };
    run(VolumeKind::ROOMY, &profile, 80, 150);
}

/// Mostly data: long files, many extents, holes.
#[test]
fn data() {
    let profile = Profile {
        names: 6,
        data: 60,
        write_max: 30_000,
        offset_max: 200_000,
        ..Profile::default()
    };
    run(VolumeKind::ROOMY, &profile, 50, 250);
}

/// More unsynced data than the page cache holds.
#[test]
fn memory_pressure() {
    let profile = Profile {
        names: 6,
        data: 60,
        sync: 4,
        background: 1,
        write_max: 300_000,
        offset_max: 300_000,
        ..Profile::default()
    };
    run(VolumeKind::ROOMY, &profile, 20, 150);
}

/// The recording that power cuts start from is the same run.
#[test]
fn a_recording_is_a_run() {
    let source = Source::Seed(1, 30, Profile::crash());
    let recording = record(VolumeKind::SMALL, &source).expect("runs");
    assert_eq!(recording.ops.len(), 30);
    assert_eq!(recording.ends.len(), 30);
}
