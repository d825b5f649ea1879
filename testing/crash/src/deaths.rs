//! Campaigns in which the device process dies, and power is cut everywhere.

use crate::campaign::campaign;
use crate::config::Config;
use crate::cuts::{CutReport, cut_recording};
use crate::record::{Source, record_on};
use crate::sides::{Town, recorded_device, seeded_deaths};
use crate::volume::{Driver, VolumeKind};
use siftfs_base::Result;
use siftfs_model::Profile;
use std::sync::Arc;
use std::time::Duration;

/// Half of what happens is the background's.
pub fn busy() -> Profile {
    Profile { background: 60, ..Profile::crash() }
}

/// The same of few files, whose blocks are overwritten by little and synced: what a record area
/// takes, and names the blocks of (rule R42).
fn overwriting() -> Profile {
    let small = Profile { write_max: 700, offset_max: 12_000, ..busy() };
    Profile { names: 10, data: 50, sync: 50, scripts: 2, attrs: 2, ..small }
}

/// Sequences on a volume of `kind` whose device process dies again and again. After a death no
/// device process is there for `absence` connections, and after `fallback` (200 ms without it) the
/// host does the work. The host dies at the end, what is durable is finished without it, and power
/// is cut at every access to the storage. Panics with the first failure, and if nothing died or was
/// cut.
pub fn deaths_and_cuts(kind: VolumeKind, absence: u64, fallback: Option<Duration>, seeds: u64) {
    let fallback = fallback.or(Some(Duration::from_millis(200)));
    campaign_of((kind, absence), seeds, |town| town.open(fallback));
}

/// The same with the device process as the target, through which alone the host has its storage: it
/// waits for the next one.
pub fn targets_and_cuts(kind: VolumeKind, seeds: u64) {
    campaign_of((kind, 0), seeds, |town| town.open_through(None));
}

fn campaign_of(
    (kind, absence): (VolumeKind, u64),
    seeds: u64,
    open: impl Fn(&Arc<Town>) -> Result<Driver> + Sync,
) {
    let (profile, ops) = if kind.record_area { (overwriting(), 80) } else { (busy(), 40) };
    let config = Config::from_env(seeds, ops);
    let result = campaign(&config, |seed| {
        let device = recorded_device(kind);
        let town = Town::new(&device, absence, seeded_deaths(seed));
        let driver = open(&town).map_err(|e| format!("open: {e}"))?;
        let source = Source::Seed(seed, config.ops, profile.clone());
        let recording = record_on(&device, driver, &source, || town.join())?;
        Ok((cut_recording(&recording, seed, &config)?, town.deaths()))
    });
    let reports = result.unwrap_or_else(|failure| panic!("{failure}"));
    let deaths: u64 = reports.iter().map(|(_, deaths)| deaths).sum();
    let cuts: u64 = reports.iter().map(|(CutReport { cuts, .. }, _)| cuts).sum();
    println!("{kind:?}: {} runs, {deaths} deaths, {cuts} cuts", reports.len());
    let happened = deaths > 0 && cuts > reports.len() as u64;
    assert!(config.cut.is_some() || happened, "nothing happened");
}
