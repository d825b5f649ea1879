//! Host and device process apart: the device process dies again and again, the host dies at the end
//! and what is durable is finished without it, power is cut everywhere. Nothing acknowledged is
//! lost.

use siftfs_crash::{
    Death, Driver, Source, Town, VolumeKind, busy, deaths_and_cuts, e2fsck_image, record_on,
    recorded_device, seeded_deaths, targets_and_cuts, walk_image,
};
use siftfs_model::Lockstep;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn the_device_process_dies_and_another_takes_over() {
    deaths_and_cuts(VolumeKind::SMALL, 0, None, 16);
}

#[test]
fn with_two_lanes_and_a_log_elsewhere() {
    deaths_and_cuts(VolumeKind::APART_TWO_LANES, 0, None, 8);
}

/// The device process reads the record area that the host writes.
#[test]
fn with_a_record_area() {
    deaths_and_cuts(VolumeKind::SMALL.with_area(), 0, None, 8);
    deaths_and_cuts(VolumeKind::APART.with_area(), 2, Some(Duration::ZERO), 8);
}

/// After every death no device process is there for a while, and the host does the work itself.
#[test]
fn the_host_takes_over_and_gives_back() {
    deaths_and_cuts(VolumeKind::SMALL, 2, Some(Duration::ZERO), 8);
}

/// The host has its storage through the device process, which dies in the middle of reads, writes
/// and flushes.
#[test]
fn a_target_dies_and_another_takes_over() {
    targets_and_cuts(VolumeKind::SMALL, 8);
}

#[test]
fn a_target_with_a_log_elsewhere_and_a_record_area() {
    targets_and_cuts(VolumeKind::APART_TWO_LANES, 4);
    targets_and_cuts(VolumeKind::SMALL.with_area(), 4);
}

/// Each target replays its redo lane before it answers a host.
#[test]
fn a_target_with_a_redo_lane() {
    targets_and_cuts(VolumeKind::SMALL.with_redo_lane(), 3);
    targets_and_cuts(VolumeKind::APART_TWO_LANES.with_redo_lane().with_area(), 2);
}

/// Runs one history with a death at each message boundary, and at every `step`th access to the
/// storage; how many there were of either.
fn deaths_at_every_boundary(
    step: u64,
    open: impl Fn(&Arc<Town>) -> siftfs_base::Result<Driver>,
) -> [u64; 2] {
    let source = Source::Seed(3, 160, busy());
    let mut boundaries = [0u64; 2];
    for (which, count) in boundaries.iter_mut().enumerate() {
        for n in 0.. {
            let death = if which == 0 { Death::Message(n * step) } else { Death::Access(n * 7) };
            let mut death = Some(death);
            let device = recorded_device(VolumeKind::SMALL);
            let town = Town::new(&device, 0, move || death.take());
            let driver = open(&town).unwrap();
            let recording = record_on(&device, driver, &source, || town.join()).unwrap();
            drop(recording);
            // The host is dead, and so may be the device process: recovery, and e2fsck.
            let image = siftfs_crash::recover_image(&device.contents()).unwrap();
            e2fsck_image(&image).unwrap();
            walk_image(&image).unwrap();
            if town.deaths() == 0 {
                break;
            }
            *count += 1;
        }
    }
    println!("{boundaries:?} boundaries");
    boundaries
}

/// Every message boundary of one history, and every seventh access to the storage.
#[test]
fn a_death_at_every_boundary_loses_nothing() {
    let boundaries =
        deaths_at_every_boundary(1, |town| town.open(Some(Duration::from_millis(200))));
    assert!(boundaries.iter().all(|n| *n > 15), "{boundaries:?}");
}

/// The same of a target, at every fourth message, since there are far more of them.
#[test]
fn a_death_of_the_target_at_every_fourth_boundary_loses_nothing() {
    let boundaries = deaths_at_every_boundary(4, |town| town.open_through(None));
    assert!(boundaries.iter().all(|n| *n > 10), "{boundaries:?}");
}

/// A volume that is unmounted while the device process comes and goes is plain ext4, and has
/// everything.
#[test]
fn an_unmount_ends_as_ever() {
    for seed in 0..6 {
        let device = recorded_device(VolumeKind::SMALL);
        let town = Town::new(&device, 0, seeded_deaths(seed));
        let driver = town.open(Some(Duration::from_millis(200))).unwrap();
        let service = driver.volume.endpoint();
        let mut pair = Lockstep::new(&*service, &driver).unwrap();
        let mut generator = siftfs_model::Generator::new(seed, busy());
        for _ in 0..40 {
            let op = generator.next(&pair.model);
            let _outcome = pair.step(&op).unwrap();
        }
        let (model, ids) = (pair.model.clone(), pair.ids.clone());
        drop(pair);
        drop(service);
        driver.volume.close().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        town.join();
        e2fsck_image(&device.contents()).unwrap();
        let tree = walk_image(&device.contents()).unwrap();
        let number = |seen: &siftfs_model::Seen| ids.model_of(&seen.attr);
        assert_eq!(model.tree_differences(&tree, &number), Vec::<String>::new(), "seed {seed}");
    }
}

/// Two hosts at once, and a mount while a device process has the volume: refused, nothing written.
#[test]
fn a_second_host_is_refused() {
    let device = recorded_device(VolumeKind::SMALL);
    let town = Town::new(&device, 0, || None);
    let driver = town.open(None).unwrap();
    let ops = device.ops();
    let refused = town.open(None).map(drop).unwrap_err().to_string();
    assert!(refused.contains("in use") && refused.contains("Host"), "{refused}");
    assert_eq!(device.ops(), ops, "nothing was written");
    driver.volume.close().unwrap();
    town.join();
    let town = Arc::clone(&town);
    town.open(None).unwrap().volume.close().unwrap();
    town.join();
}
