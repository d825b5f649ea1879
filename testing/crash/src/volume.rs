//! Volumes for tests: made once, cloned for every run.

use siftfs_base::{Clock, Error, ManualClock};
use siftfs_device::{Device, Divisible, Image, MemDevice, Part};
use siftfs_model::Control;
use siftfs_placement::{
    JournalData, LocalVolume, Media, MkfsOptions, OpenOptions, Replay, ReplayMode, Threads,
    mkfs_apart_on, mkfs_on,
};
use siftfs_volume::AreaSuper;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
    /// The log is a device of its own: the last `log` bytes of the image, header included.
    pub apart: bool,
    /// What the journal holds of staged data.
    pub journal_data: JournalData,
}

impl VolumeKind {
    /// Small, with a log that a few dozen operations fill: rings wrap, checkpoints happen.
    pub const SMALL: Self = Self { size: 16 << 20, log: 3 << 20, lanes: 1, ..Self::NONE };
    /// The same with two lanes.
    pub const TWO_LANES: Self = Self { size: 16 << 20, log: 4 << 20, lanes: 2, ..Self::NONE };
    /// As small, with the log on a device of its own.
    pub const APART: Self =
        Self { size: 17 << 20, log: 4 << 20, lanes: 1, apart: true, ..Self::NONE };
    /// The same with two lanes.
    pub const APART_TWO_LANES: Self =
        Self { size: 18 << 20, log: 5 << 20, lanes: 2, apart: true, ..Self::NONE };
    /// Room enough that nothing is short.
    pub const ROOMY: Self = Self { size: 64 << 20, log: 16 << 20, lanes: 1, ..Self::NONE };
    /// The same with two lanes.
    pub const ROOMY_TWO_LANES: Self = Self { lanes: 2, ..Self::ROOMY };
    const NONE: Self =
        Self { size: 0, log: 0, lanes: 0, apart: false, journal_data: JournalData::Ref };

    /// The same with a journal that repeats staged data.
    pub const fn copies(self) -> Self {
        Self { journal_data: JournalData::Copy, ..self }
    }
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
            journal_data: kind.journal_data,
            force: true,
        };
        let made = if kind.apart {
            let part = |range| -> Arc<dyn Device> { Arc::new(Part::new(mem.clone(), range)) };
            let split = kind.size - kind.log;
            let opts = MkfsOptions { size: None, log_size: None, ..opts };
            mkfs_apart_on(&part(0..split), &part(split..kind.size), &opts)
        } else {
            mkfs_on(&device, &opts)
        };
        made.unwrap_or_else(|e| panic!("mkfs of {kind:?}: {e}"));
        let image = mem.snapshot();
        assert_eq!(split_of(&image), kind.apart.then_some(kind.size - kind.log));
        image
    });
    image.clone()
}

/// [`VolumeKind::SMALL`], freshly made.
pub fn base_image() -> Image {
    base_image_of(VolumeKind::SMALL)
}

/// Options of a deterministic run: nothing happens by itself.
pub fn deterministic() -> OpenOptions {
    let mode = *REPLAY.get_or_init(ReplayMode::default);
    let replay = Replay { mode, ..Replay::default() };
    OpenOptions { page_cache: 4 << 20, meta_cache: 4 << 20, replay, ..OpenOptions::default() }
}

/// How checkpoints replay in this process.
static REPLAY: OnceLock<ReplayMode> = OnceLock::new();

/// Chooses how checkpoints replay, for all volumes of this process and before the first is opened.
pub fn replay_by(mode: ReplayMode) {
    let chosen = REPLAY.get_or_init(|| mode);
    assert_eq!(*chosen, mode, "a volume was opened before");
}

/// Where the log of an image begins that stands for two devices: behind the file system whose
/// superblock says that its log lies elsewhere.
pub fn split_of(image: &Image) -> Option<u64> {
    let bytes = (image.size() > 2048).then(|| image.bytes(1024, 1024))?;
    let area = AreaSuper::parse(&bytes).filter(|s| s.link.is_some())?;
    Some(area.len).filter(|len| *len < image.size())
}

/// The one or two devices that `device` stands for, now that it holds `image`.
pub fn media_of<D: Divisible + 'static>(device: &Arc<D>, image: &Image) -> Media {
    let Some(split) = split_of(image) else { return Media::from(device.clone()) };
    let part = |range| -> Arc<dyn Device> { Arc::new(Part::new(device.clone(), range)) };
    Media::split(part(0..split), part(split..image.size()))
}

/// The one or two devices that hold `image`, in memory, and what they stand in.
pub fn mem_media(image: &Image) -> (Arc<MemDevice>, Media) {
    let device = Arc::new(MemDevice::from_image(image.clone()));
    let media = media_of(&device, image);
    (device, media)
}

/// Opens a volume so that one thread runs everything.
pub fn open(media: impl Into<Media>) -> Result<Driver, Error> {
    open_with(media, &deterministic())
}

/// As [`open`], with options of one's own.
pub fn open_with(media: impl Into<Media>, opts: &OpenOptions) -> Result<Driver, Error> {
    let clock = Arc::new(ManualClock::new(START));
    let shared: Arc<dyn Clock> = clock.clone();
    let volume = LocalVolume::open_on(media, shared, opts, Threads::None)?;
    Ok(Driver { volume, clock })
}

/// An open volume and its clock.
pub struct Driver {
    /// The volume.
    pub volume: LocalVolume,
    /// The volume's clock.
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
