//! Placement: puts Frontend-facing endpoint, Runtime and Service together, in one process (the
//! `local` profile) or in two, and does what needs both: mkfs, mount, unmount, recovery.

mod adopt;
pub mod child;
mod clock;
mod connect;
mod discard;
mod find;
mod hint;
mod layout;
mod link;
mod marker;
mod mend;
mod mkfs;
mod open;
mod outbox;
mod place;
mod remote;
mod remount;
mod replay;
mod ro;
mod server;
mod tally;

pub use adopt::{ReleaseReport, adopt, adopt_on, release, release_on};
pub use connect::{Connector, Dial};
pub use discard::Discarded;
pub use mkfs::{mkfs, mkfs_apart_on, mkfs_on, mkfs_with_log};
pub use remount::Remounter;
pub use replay::Replay;
pub use server::{OpenMedia, Server, ServerOptions};
pub use siftfs_service::{MIN_MEMORY, ReplayMode};
use siftfs_transport::HostEnd;
pub use siftfs_transport::{Address, Listener, TransportOptions};
pub use siftfs_volume::Media;

use crate::clock::FileClock;
use open::{Pair, Volume, close_pair};
use remount::Unmarked;
use siftfs_base::{Clock, Error, Result, SystemClock};
use siftfs_device::{Device, FileOptions, Role, open_exclusive, open_for_service};
pub use siftfs_log::JournalData;
use siftfs_log::show_uuid;
use siftfs_proto::FileService;
pub use siftfs_runtime::Group;
use siftfs_runtime::{Push, Runtime};
use siftfs_wire::Urgency;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How a volume is made.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// Whole size in bytes (area, header, journal and staging); `None`: the size that is there.
    pub size: Option<u64>,
    /// Journal and staging together, in bytes; `None`: chosen from the size. For a log elsewhere:
    /// the whole log, header included; `None`: the size that is there.
    pub log_size: Option<u64>,
    /// ext4 label.
    pub label: Option<String>,
    /// Number of staging lanes (1 to 16); 0 means 1.
    pub lanes: u16,
    /// What the journal holds of staged data: references, or for comparison the data again.
    pub journal_data: JournalData,
    /// Overwrite an existing file system.
    pub force: bool,
}

/// How a volume is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenOptions {
    /// Age in milliseconds after which unsynced state is journaled.
    pub commit_ms: u64,
    /// Page cache bound in bytes.
    pub page_cache: u64,
    /// Metadata cache bound in bytes.
    pub meta_cache: u64,
    /// Bounded adaptive wait of group commit in microseconds; 0 switches it off.
    pub group_wait_us: u64,
    /// How fsyncs that come together are made durable: by a shared flush, by durable writes in parallel, or
    /// by what measures better.
    pub group: Group,
    /// How long an operation that finds no space waits for references to removed files to be given
    /// back: a kernel does it a moment after the removal. Zero where a removed file's end is known at
    /// once.
    pub late_forgets: Duration,
    /// Free share of staging or journal (percent) below which a background checkpoint starts.
    pub low_watermark: u8,
    /// Keep no access times.
    pub noatime: bool,
    /// Refuse every change.
    pub read_only: bool,
    /// Direct I/O on files.
    pub direct: bool,
    /// io_uring where allowed.
    pub uring: bool,
    /// Where the log is, if not with the volume; `None`: looked for, if the volume names one.
    pub log: Option<PathBuf>,
    /// How this process replays, if it does the background work.
    pub replay: Replay,
    /// The process that does the background work; `None`: this one.
    pub service: Option<ServicePlace>,
}

/// A Service in a process of its own.
#[derive(Clone)]
pub struct ServicePlace {
    /// Reaches it.
    pub connector: Arc<dyn Connector>,
    /// When nobody has been there for this long, this process does the work until somebody is there
    /// again; `None`: it waits.
    pub fallback: Option<Duration>,
}

/// The same process, reached at the same address, and the same patience with it.
impl PartialEq for ServicePlace {
    fn eq(&self, other: &Self) -> bool {
        (self.connector.address(), self.fallback) == (other.connector.address(), other.fallback)
    }
}

impl std::fmt::Debug for ServicePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (fallback after {:?})", self.connector.address(), self.fallback)
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            commit_ms: 5000,
            page_cache: 256 << 20,
            meta_cache: 64 << 20,
            group_wait_us: 1000,
            group: Group::default(),
            late_forgets: Duration::ZERO,
            low_watermark: 50,
            noatime: false,
            read_only: false,
            direct: true,
            uring: true,
            log: None,
            replay: Replay::default(),
            service: None,
        }
    }
}

/// Who runs the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Threads of this process.
    Real,
    /// Nobody: the caller drives [`LocalVolume::commit`] and [`LocalVolume::checkpoint`]; waits for
    /// progress make it inline, so a single thread runs everything deterministically.
    None,
}

/// What mkfs made.
#[derive(Clone, Debug, serde::Serialize)]
pub struct MkfsReport {
    /// Volume UUID.
    pub uuid: String,
    /// Bytes of the ext4 area.
    pub area_bytes: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Bytes of all lanes.
    pub staging_bytes: u64,
    /// Number of lanes.
    pub lanes: u16,
    /// What the journal holds of staged data: `ref` or `copy`.
    pub journal_data: String,
}

/// What recovery found and did.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct RecoverReport {
    /// The volume was already clean; nothing was written.
    pub clean: bool,
    /// Journal transactions replayed.
    pub replayed_transactions: u64,
    /// Staged transactions found valid in the lanes.
    pub staged_found: u64,
    /// Staged transactions applied (newer than the cut).
    pub staged_applied: u64,
    /// Orphans removed.
    pub orphans: u64,
    /// Bytes read from staging.
    pub staging_read_bytes: u64,
    /// Bytes read from the journal.
    pub journal_read_bytes: u64,
}

/// How long a volume that is being closed waits for a device process that is away, before this
/// process does the rest itself.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Shortest and longest pause of the commit thread.
const PAUSE: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

/// Progress of long work: what, done, total (in the same unit).
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// A volume's devices, opened exclusively.
pub struct OpenedMedia {
    /// The devices.
    pub media: Media,
    /// Where the log is, if on a file or device of its own.
    pub log: Option<PathBuf>,
}

/// Opens the file or block device `path` and, where the volume's log lies elsewhere, that of the log:
/// the one that `opts.log` says, else the one found by the UUID that the superblock names. A log that
/// is not found is not opened; reading the header then says so.
///
/// # Errors
/// Refused if one of both cannot be had alone, or several devices hold the log.
pub fn open_media(path: &Path, opts: &OpenOptions) -> Result<OpenedMedia> {
    open_media_for(path, opts, true)
}

/// As [`open_media`], to write or only to read.
pub fn open_media_for(path: &Path, opts: &OpenOptions, rw: bool) -> Result<OpenedMedia> {
    let options = FileOptions { direct: opts.direct, uring: opts.uring, ..FileOptions::default() };
    if opts.log.as_ref().is_some_and(|log| place::same_storage(path, log)) {
        return Err(Error::Refused("the log given is the volume itself".into()));
    }
    let area = open_exclusive(path, rw, options)?;
    let link = find::link_of(&area)?;
    let log = match (&opts.log, &link) {
        (Some(log), _) => Some(log.clone()),
        (None, Some(link)) => find::find_log(path, link)?,
        (None, None) => None,
    };
    let Some(log) = log else { return Ok(OpenedMedia { media: Arc::new(area).into(), log: None }) };
    let device = open_exclusive(&log, rw, options)?;
    tracing::debug!(log = %log.display(), "the log lies elsewhere");
    Ok(OpenedMedia { media: Media::split(Arc::new(area), Arc::new(device)), log: Some(log) })
}

/// Opens a volume's devices for a process that serves a host elsewhere, without any role.
///
/// # Errors
/// As [`open_media`], other SiftFS processes excepted.
pub fn open_media_for_service(path: &Path, opts: &OpenOptions) -> Result<Media> {
    let options = FileOptions { direct: opts.direct, uring: opts.uring, ..FileOptions::default() };
    let area = open_for_service(path, options)?;
    let link = find::link_of(&area)?;
    let log = match (&opts.log, &link) {
        (Some(log), _) => Some(log.clone()),
        (None, Some(link)) => find::find_log(path, link)?,
        (None, None) => None,
    };
    let Some(log) = log else { return Ok(Arc::new(area).into()) };
    Ok(Media::split(Arc::new(area), Arc::new(open_for_service(&log, options)?)))
}

/// Recovers a volume without mounting it; afterwards it is plain ext4.
pub fn recover(path: &Path, opts: &OpenOptions, progress: Progress<'_>) -> Result<RecoverReport> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let opened = open_media(path, opts)?;
    let mut volume = Volume::read(opened.media, true)?;
    remember_log(&volume, opened.log.as_deref());
    volume.recover(&clock, opts, progress)
}

/// Gives the log of a volume up: see [`discard_log_on`].
pub fn discard_log(path: &Path, opts: &OpenOptions) -> Result<Discarded> {
    discard_log_on(open_media(path, opts)?.media)
}

/// What the volume lies on, and how a write is made durable there, for the log.
fn tell_storage(device: &dyn Device) {
    let d = device.describe();
    tracing::info!(
        path = d.path,
        kind = d.kind,
        volatile_cache = d.volatile_cache,
        fua = d.fua,
        direct = d.direct,
        uring = d.uring,
        durable_write = d.durable_write,
        why = d.why,
        "storage"
    );
}

/// So that the log is found without being told the next time.
fn remember_log(volume: &Volume, log: Option<&Path>) {
    if let Some(log) = log {
        find::remember(&show_uuid(&volume.view().header.volume), log);
    }
}

/// Forgets everything that lies in the log alone and clears the marker, for a dirty volume whose
/// log is lost (rule R16). What had been fsynced since the last checkpoint may be lost, and the
/// file system may be inconsistent: e2fsck must follow.
pub fn discard_log_on(media: impl Into<Media>) -> Result<Discarded> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    discard::discard_log(media.into(), &clock)
}

/// As [`recover`], on any devices.
pub fn recover_on(media: impl Into<Media>, opts: &OpenOptions) -> Result<RecoverReport> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    Volume::read(media.into(), true)?.recover(&clock, opts, &mut |_, _, _| {})
}

/// An open volume: Runtime and Service in this process.
pub struct LocalVolume {
    media: Media,
    log: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    opts: OpenOptions,
    pair: Pair,
    background: Option<Background>,
    remounter: Arc<Remounter>,
}

/// The thread that commits and asks for checkpoints.
struct Background {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl LocalVolume {
    /// Opens a volume exclusively, recovering it first if it is dirty; then its Service's part is the
    /// other process's, if the options name one. With `read_only` a volume that
    /// cannot be written is opened if it is clean, and refused if it is not.
    pub fn open(path: &Path, opts: &OpenOptions, progress: Progress<'_>) -> Result<Self> {
        let clock = Arc::new(FileClock::default());
        let called = call_ahead(opts)?;
        let (opened, writable) = ro::open_to_serve(path, opts)?;
        let log = opened.log;
        let volume = Volume::read(opened.media, writable)?;
        if let (Some(end), Some(place)) = (called, &opts.service) {
            match connect::inquire(end, volume.view().header.volume) {
                Err(error) if place.fallback.is_some() => {
                    tracing::warn!(%error, "the device process does not serve this volume");
                }
                other => other?,
            }
        }
        if writable {
            remember_log(&volume, log.as_deref());
        } else {
            ro::refuse_dirty(path, &volume)?;
        }
        volume.media.devices().for_each(tell_storage);
        let local = Self::open_with(volume, writable, clock, opts, Threads::Real, progress)?;
        Ok(Self { log, ..local })
    }

    /// As [`LocalVolume::open`], on any devices, with any clock.
    pub fn open_on(
        media: impl Into<Media>,
        clock: Arc<dyn Clock>,
        opts: &OpenOptions,
        threads: Threads,
    ) -> Result<Self> {
        let media = media.into();
        for role in Role::ALL {
            media.claim(role, Duration::ZERO)?;
        }
        let volume = Volume::read(media, true)?;
        Self::open_with(volume, true, clock, opts, threads, &mut |_, _, _| {})
    }

    fn open_with(
        mut volume: Volume,
        writable: bool,
        clock: Arc<dyn Clock>,
        opts: &OpenOptions,
        threads: Threads,
        progress: Progress<'_>,
    ) -> Result<Self> {
        let report = volume.recover(&clock, opts, progress)?;
        if !report.clean {
            tracing::info!(?report, "the volume was recovered");
        }
        let pair = match volume.open_clean(&clock, opts, threads) {
            Ok(pair) => pair,
            Err(error) if opts.service.is_some() => {
                volume.take_back(&clock, opts)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let background = match threads {
            Threads::Real => Some(Background::start(pair.runtime.clone())?),
            Threads::None => None,
        };
        let (media, opts) = (volume.media.clone(), opts.clone());
        let unmarked = opts.read_only.then_some(Unmarked { volume, writable });
        let remounter = Arc::new(Remounter::new(&pair, clock.clone(), unmarked));
        Ok(Self { media, log: None, clock, opts, pair, background, remounter })
    }

    /// Where the log is, if on a file or device of its own that was opened by path.
    pub fn log_path(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// The endpoint Frontends speak to.
    pub fn endpoint(&self) -> Arc<dyn FileService> {
        self.pair.runtime.clone()
    }

    /// Changes its settings, from any thread, until it is closed.
    pub fn remounter(&self) -> Arc<Remounter> {
        self.remounter.clone()
    }

    /// Tells, at any time, about how many bytes are still to be brought into the area.
    pub fn backlog(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let runtime = self.pair.runtime.clone();
        move || runtime.backlog()
    }

    /// Tells, at any time, whom closing the volume waits for, in words for people; `None` for nobody
    /// but this process.
    pub fn waiting(&self) -> impl Fn() -> Option<String> + Send + Sync + use<> {
        let driver = Arc::downgrade(&self.pair.driver);
        move || driver.upgrade().and_then(|driver| driver.waiting())
    }

    /// Assembles and journals one background transaction now (everything unsynced is pushed when
    /// `push_all`); returns when it is durable.
    pub fn commit(&self, push_all: bool) -> Result<()> {
        if push_all {
            return self.pair.runtime.sync_all().map(drop);
        }
        self.pair.runtime.commit(&Push::Aged).map(drop)
    }

    /// Checkpoints and reclaims everything journaled.
    pub fn checkpoint(&self) -> Result<()> {
        self.pair.runtime.checkpoint(Urgency::Emergency).map(drop)
    }

    /// One round of the background work that is due, as the background thread does it.
    pub fn tick(&self) -> Result<()> {
        self.pair.runtime.tick()
    }

    /// Makes everything durable and final, clears the marker: the volume is plain ext4.
    ///
    /// # Errors
    /// When something could not be made durable: the volume stays dirty, and the next mount or
    /// `siftfs recover` brings back everything that was.
    pub fn close(mut self) -> Result<()> {
        // Before anything waits for a Service that may be away: the commit thread does.
        self.pair.driver.close_within(CLOSE_PATIENCE);
        if let Some(background) = self.background.take() {
            background.stop(&self.pair.runtime);
        }
        if !self.remounter.is_marked() {
            return self.pair.driver.stop();
        }
        self.pair.runtime.make_writable()?;
        close_pair(self.pair, self.clock.now())?;
        // The header says clean; clearing the marker is what recovery would do now.
        let mut volume = Volume::read(self.media, true)?;
        volume.recover(&self.clock, &self.opts, &mut |_, _, _| {})?;
        if volume.is_clean() {
            Ok(())
        } else {
            Err(Error::Latched("the volume is not clean".into()))
        }
    }

    /// Stops without writing anything more, as a crash would (tests).
    pub fn abandon(mut self) {
        self.pair.runtime.fail(&Error::Latched("abandoned".into()));
        if let Some(background) = self.background.take() {
            background.stop(&self.pair.runtime);
        }
        self.pair.driver.abandon();
    }
}

/// Is the device process there, before anything is locked or written? One that still finishes what
/// another host left stops for the connection.
fn call_ahead(opts: &OpenOptions) -> Result<Option<HostEnd>> {
    let Some(place) = &opts.service else { return Ok(None) };
    match place.connector.connect() {
        Ok(end) => Ok(Some(end)),
        Err(_) if place.fallback.is_some() => Ok(None),
        Err(error) => Err(Error::Refused(format!(
            "no device process is at {} ({error}): start `siftfs device` there, or mount with \
             --service-fallback",
            place.connector.address()
        ))),
    }
}

impl Background {
    fn start(runtime: Arc<Runtime>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("siftfs-commit".into())
            .spawn(move || {
                while !stopped.load(Ordering::Acquire) {
                    let pause = runtime.commit_age() / 5;
                    runtime.wait_for_work(pause.clamp(PAUSE[0], PAUSE[1]));
                    if runtime.tick().is_err() {
                        // Latched and logged; callers see EIO. Nothing is left to do here.
                        return;
                    }
                }
            })
            .map_err(|e| Error::Refused(format!("cannot start the commit thread: {e}")))?;
        Ok(Self { stop, thread })
    }

    fn stop(self, runtime: &Runtime) {
        self.stop.store(true, Ordering::Release);
        runtime.wake();
        if self.thread.join().is_err() {
            tracing::error!("the commit thread ended with a failed assertion");
        }
    }
}
