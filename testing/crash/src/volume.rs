//! Volumes for tests: made once, cloned for every run.

use siftfs_base::{Clock, Error, ManualClock};
use siftfs_device::{Device, Divisible, FaultDevice, Image, MemDevice, Part};
use siftfs_log::{
    MIN_REDO_LANE, RECORD_AREA_LANE, RECORD_AREA_SLOTS, RecordAreaHeader, SPARE_SLOTS, SpareHeader,
};
use siftfs_model::Control;
use siftfs_placement::{
    JournalData, LocalVolume, Media, MkfsOptions, OpenOptions, Replay, ReplayMode, Threads, mkfs_on,
};
use siftfs_volume::{AreaSuper, MIN_SPARE};
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
    /// There is a record area: the last [`RECORD_AREA`] bytes of the image, as a medium of its own.
    pub record_area: bool,
    /// There is a redo lane of [`REDO_LANE`] bytes.
    pub redo_lane: bool,
    /// Bytes of the spare log: the last ones of the image, as a device of its own; 0 if there is
    /// none. Not beside a record area.
    pub spare: u64,
}

/// Bytes of a spare log that has no room for an image of the log.
pub const SPARE: u64 = MIN_SPARE;
/// Bytes of one that has room for [`VolumeKind::APART`]'s.
const ROOMY_SPARE: u64 = MIN_SPARE + VolumeKind::APART.log;

/// Bytes of a redo lane, its slots included: the least that there may be.
pub const REDO_LANE: u64 = MIN_REDO_LANE;

/// Bytes of a record area, its header included: small enough to be full now and then.
pub const RECORD_AREA: u64 = (256 << 10) + RECORD_AREA_LANE;

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
    const NONE: Self = Self {
        size: 0,
        log: 0,
        lanes: 0,
        apart: false,
        journal_data: JournalData::Ref,
        record_area: false,
        redo_lane: false,
        spare: 0,
    };

    /// The same with a spare log behind it.
    pub const fn with_spare(self) -> Self {
        Self { spare: SPARE, size: self.size + SPARE, ..self }
    }

    /// [`VolumeKind::APART`] with a spare log behind it that may be the log alone.
    pub const fn with_roomy_spare() -> Self {
        let size = Self::APART.size + ROOMY_SPARE;
        Self { spare: ROOMY_SPARE, size, ..Self::APART }
    }

    /// The same with a journal that repeats staged data.
    pub const fn copies(self) -> Self {
        Self { journal_data: JournalData::Copy, ..self }
    }

    /// The same with a record area behind it.
    pub const fn with_area(self) -> Self {
        Self { record_area: true, size: self.size + RECORD_AREA, ..self }
    }

    /// The same with a redo lane in its log.
    pub const fn with_redo_lane(self) -> Self {
        let (size, log) = (self.size + REDO_LANE, self.log + REDO_LANE);
        Self { redo_lane: true, size, log, ..self }
    }

    /// Where the record area begins; the image's end if there is none.
    fn area_split(&self) -> u64 {
        let area = if self.record_area { RECORD_AREA } else { 0 };
        self.spare_split().unwrap_or(self.size) - area
    }

    /// Where the spare log begins, if there is one.
    fn spare_split(&self) -> Option<u64> {
        (self.spare > 0).then(|| self.size - self.spare)
    }

    /// Where the log's device begins, if it has one of its own.
    fn log_split(&self) -> Option<u64> {
        self.apart.then(|| self.area_split() - self.log)
    }
}

/// A freshly made volume of this kind; made once per process.
pub fn base_image_of(kind: VolumeKind) -> Image {
    static MADE: Mutex<BTreeMap<VolumeKind, Image>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let image = made.entry(kind).or_insert_with(|| {
        let mem = Arc::new(MemDevice::new(kind.size));
        let size = kind.area_split();
        let alone = !kind.apart;
        let opts = MkfsOptions {
            size: alone.then_some(size),
            log_size: alone.then_some(kind.log),
            lanes: kind.lanes,
            journal_data: kind.journal_data,
            redo_lane: kind.redo_lane.then_some(REDO_LANE),
            force: true,
            ..MkfsOptions::default()
        };
        let (log, spare) = (kind.log_split(), kind.spare_split());
        let split = Split { log, bytes: kind.record_area.then_some(size), spare };
        mkfs_on(split.media(&mem, kind.size), &opts)
            .unwrap_or_else(|e| panic!("mkfs of {kind:?}: {e}"));
        let image = mem.snapshot();
        assert_eq!(Split::of(&image), split);
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
    let most_freed = *MOST_FREED.get_or_init(|| usize::MAX);
    OpenOptions {
        page_cache: 4 << 20,
        meta_cache: 4 << 20,
        replay,
        most_freed,
        ..OpenOptions::default()
    }
}

/// Extents of a file that one transaction frees in this process.
static MOST_FREED: OnceLock<usize> = OnceLock::new();

/// Do operations commit in the middle, which their callers are not told of?
pub fn commits_unseen() -> bool {
    MOST_FREED.get().is_some_and(|extents| *extents < usize::MAX)
}

/// Has each transaction free this many extents of a file at most, on all volumes of this process
/// and before the first is opened.
pub fn free_at_most(extents: usize) {
    let chosen = MOST_FREED.get_or_init(|| extents);
    assert_eq!(*chosen, extents, "a volume was opened before");
}

/// How checkpoints replay in this process.
static REPLAY: OnceLock<ReplayMode> = OnceLock::new();

/// Chooses how checkpoints replay, for all volumes of this process and before the first is opened.
pub fn replay_by(mode: ReplayMode) {
    let chosen = REPLAY.get_or_init(|| mode);
    assert_eq!(*chosen, mode, "a volume was opened before");
}

/// Where the devices begin that an image stands for, besides the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// The log's: behind the file system whose superblock says that its log lies elsewhere.
    pub log: Option<u64>,
    /// The record area's.
    pub bytes: Option<u64>,
    /// The spare log's.
    pub spare: Option<u64>,
}

impl Split {
    /// As the image says it.
    pub fn of(image: &Image) -> Self {
        let at = image.size().checked_sub(RECORD_AREA);
        let is_slot = |at: u64| {
            let mut slots = RECORD_AREA_SLOTS.iter().map(|slot| image.bytes(at + slot, 64));
            slots.any(|slot| {
                let slot = slot.as_slice().try_into().expect("64 bytes");
                RecordAreaHeader::decode(slot).is_ok()
            })
        };
        let bytes = at.filter(|at| is_slot(*at));
        let is_spare = |at: &u64| {
            let mut slots = SPARE_SLOTS.iter().map(|slot| image.bytes(at + slot, 4096));
            slots.any(|slot| {
                SpareHeader::decode(slot.as_slice().try_into().expect("a block")).is_ok()
            })
        };
        let places = [SPARE, ROOMY_SPARE].map(|len| image.size().checked_sub(len));
        let spare = places.into_iter().flatten().find(is_spare);
        let end = bytes.or(spare).unwrap_or(image.size());
        let superblock = (image.size() > 2048).then(|| image.bytes(1024, 1024));
        let area = superblock.and_then(|bytes| AreaSuper::parse(&bytes));
        let log = area.filter(|area| area.link.is_some()).map(|area| area.len);
        Self { log: log.filter(|log| *log < end), bytes, spare }
    }

    /// The devices that `device`, of `size` bytes, stands for.
    pub fn media<D: Divisible + 'static>(self, device: &Arc<D>, size: u64) -> Media {
        if self == (Self { log: None, bytes: None, spare: None }) {
            return Media::from(device.clone());
        }
        let part = |range| -> Arc<dyn Device> { Arc::new(Part::new(device.clone(), range)) };
        let end = self.bytes.or(self.spare).unwrap_or(size);
        let media = match self.log {
            Some(log) => Media::split(part(0..log), part(log..end)),
            None => Media::from(part(0..end)),
        };
        let media = media.with_bytes(self.bytes.map(|at| part(at..size)));
        media.with_spare(self.spare.map(|at| part(at..size)))
    }
}

/// The devices that `device` stands for, now that it holds `image`.
pub fn media_of<D: Divisible + 'static>(device: &Arc<D>, image: &Image) -> Media {
    Split::of(image).media(device, image.size())
}

/// The devices, for a check.
pub fn devices(media: &Media) -> siftfs_fsck::Devices<'_> {
    let (log, bytes) = (media.log.as_deref(), media.bytes.as_deref());
    siftfs_fsck::Devices { area: &*media.area, log, bytes, spare: media.pair.is_some() }
}

/// A device that breaks on purpose with these contents, and to which freed space is given back; a
/// record area on it is torn at words.
pub fn fault_device(image: Image, seed: u64) -> FaultDevice {
    let bytes = Split::of(&image).bytes;
    let device = FaultDevice::from_image(image, seed);
    device.enable_discard();
    match bytes {
        Some(at) => device.with_bytes_from(at),
        None => device,
    }
}

/// The devices that hold `image`, in memory, and what they stand in.
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
        self.volume.checkpoint()?;
        self.volume.discard()
    }
    fn advance(&self, ns: u64) {
        self.clock.advance(ns);
    }
}
