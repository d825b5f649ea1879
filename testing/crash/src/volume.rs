//! Volumes for tests: made once, cloned for every run.

use siftfs_base::{Clock, Error, ManualClock};
use siftfs_device::{Device, Image, MemDevice};
use siftfs_model::Control;
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// When the clock of every test starts (September 2020).
const START: u64 = 1_600_000_000;

/// Geometry of a test volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VolumeKind {
    /// Whole size in bytes.
    pub size: u64,
    /// Journal and staging together, in bytes.
    pub log: u64,
    /// Staging lanes.
    pub lanes: u16,
}

impl VolumeKind {
    /// Small, with a log that a few dozen operations fill: rings wrap, checkpoints happen.
    pub const SMALL: Self = Self { size: 16 << 20, log: 3 << 20, lanes: 1 };
    /// The same with two lanes.
    pub const TWO_LANES: Self = Self { size: 16 << 20, log: 4 << 20, lanes: 2 };
    /// Room enough that nothing is short.
    pub const ROOMY: Self = Self { size: 64 << 20, log: 16 << 20, lanes: 1 };
}

/// A freshly made volume of this kind; made once per process.
pub fn base_image_of(kind: VolumeKind) -> Image {
    static MADE: Mutex<BTreeMap<VolumeKind, Image>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let image = made.entry(kind).or_insert_with(|| {
        let mem = Arc::new(MemDevice::new(kind.size));
        let device: Arc<dyn Device> = mem.clone();
        let opts = MkfsOptions {
            size: Some(kind.size),
            log_size: Some(kind.log),
            label: None,
            lanes: kind.lanes,
            force: true,
        };
        mkfs_on(&device, &opts).unwrap_or_else(|e| panic!("mkfs of {kind:?}: {e}"));
        mem.snapshot()
    });
    image.clone()
}

/// [`VolumeKind::SMALL`], freshly made.
pub fn base_image() -> Image {
    base_image_of(VolumeKind::SMALL)
}

/// Options of a deterministic run: nothing happens by itself.
pub fn deterministic() -> OpenOptions {
    OpenOptions { page_cache: 4 << 20, meta_cache: 4 << 20, ..OpenOptions::default() }
}

/// Opens `device` so that one thread runs everything.
pub fn open(device: Arc<dyn Device>) -> Result<Driver, Error> {
    let clock = Arc::new(ManualClock::new(START));
    let shared: Arc<dyn Clock> = clock.clone();
    let volume = LocalVolume::open_on(device, shared, &deterministic(), Threads::None)?;
    Ok(Driver { volume, clock })
}

/// An open volume and its clock.
pub struct Driver {
    /// The volume.
    pub volume: LocalVolume,
    /// Its clock.
    pub clock: Arc<ManualClock>,
}

impl Control for Driver {
    fn commit(&self, push: bool) -> Result<(), Error> {
        self.volume.commit(push)
    }
    fn checkpoint(&self) -> Result<(), Error> {
        self.volume.checkpoint()
    }
    fn advance(&self, ns: u64) {
        self.clock.advance(ns);
    }
}
