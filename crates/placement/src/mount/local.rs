//! A mounted volume: Runtime and, unless another process does its part, Service in this process.

use crate::link::connect::{self, HostEnd};
use crate::mount::beside::book_store_of;
use crate::mount::clock::FileClock;
use crate::mount::freeze::Freezer;
use crate::mount::open::{Pair, Volume, close_pair};
use crate::mount::private_logs::PrivateLogs;
use crate::mount::read_only;
use crate::mount::remount::{Mark, Remounter};
use crate::mount::term::Term;
use crate::options::{OpenOptions, Progress, Threads};
use crate::storage::spare::NOT_SHARED;
use crate::volume::media::{Places, media_of, outlive, tell_storage};
use crate::volume::members::Reached;
use siftfs_base::{Clock, Error, Result};
use siftfs_device::{Device, DeviceInfo, Role};
use siftfs_device_target::{Target, TargetPlace};
use siftfs_log::{EpochKey, show_uuid};
use siftfs_proto::{Cache, FileService, Holder, Opening, Recovered};
use siftfs_remote::{BookStore, Tenure};
use siftfs_runtime::{Endpoint, Push, Runtime};
use siftfs_status::SpareInfo;
use siftfs_volume::{LogPair, Media};
use siftfs_wire::Urgency;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a volume that is being closed waits for a device process that is away, before this
/// process does the rest itself.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Shortest and longest pause of the commit thread.
const PAUSE: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

/// An open volume: Runtime and Service in this process.
pub struct LocalVolume {
    media: Media,
    places: Places,
    clock: Arc<dyn Clock>,
    opts: OpenOptions,
    pair: Pair,
    endpoint: Arc<dyn FileService>,
    background: Option<Background>,
    remounter: Arc<Remounter>,
    private_logs: Arc<PrivateLogs>,
    freezer: Arc<Freezer>,
    uuid: [u8; 16],
    recovered: Option<Arc<Recovered>>,
    /// The process that has the storage, if that is another one.
    target: Option<Arc<Target>>,
    /// The targets that have members of its stripes.
    reached: Reached,
    /// Of a volume that another process can take over.
    term: Option<Arc<Term>>,
}

/// Opens sessions of a volume.
pub struct Sessions {
    runtime: Arc<Runtime>,
}

impl Sessions {
    /// As [`LocalVolume::session`].
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, opening: Opening) -> Result<Arc<dyn FileService>> {
        Ok(Endpoint::open(&self.runtime, opening)?)
    }

    /// As [`LocalVolume::front`].
    ///
    /// # Errors
    /// As there.
    pub fn front(&self, opening: Opening, cache: Arc<dyn Cache>) -> Result<Arc<dyn FileService>> {
        Ok(Endpoint::open_caching(&self.runtime, opening, cache)?)
    }

    /// A client is gone for good: what is kept of its calls is forgotten.
    pub fn forget_client(&self, client: u64) {
        siftfs_runtime::forget_client(&self.runtime, client);
    }

    /// As [`LocalVolume::lender`].
    ///
    /// # Errors
    /// As there.
    pub fn lender(
        &self,
        opening: Opening,
        holder: Arc<dyn Holder>,
    ) -> Result<Arc<dyn FileService>> {
        Ok(Endpoint::open_lending(&self.runtime, opening, holder)?)
    }

    /// As [`LocalVolume::holder`].
    ///
    /// # Errors
    /// As there.
    pub fn holder(
        &self,
        opening: Opening,
        holder: Arc<dyn Holder>,
    ) -> Result<Arc<dyn FileService>> {
        Ok(Endpoint::open_holding(&self.runtime, opening, holder)?)
    }
}

/// The thread that commits and asks for checkpoints.
struct Background {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl LocalVolume {
    /// Opens a volume exclusively, recovering it first if it is dirty; then its Service's part is
    /// the other process's, if the options name one. With `read_only` a volume that cannot be
    /// written, or that this build may not write, is opened if it is clean, and refused if it is
    /// not.
    pub fn open(path: &Path, opts: &OpenOptions, progress: Progress<'_>) -> Result<Self> {
        let clock = Arc::new(FileClock::default());
        let called = call_ahead(opts)?;
        let (opened, writable) = read_only::open_to_serve(path, opts)?;
        let (places, target, reached) = (opened.places, opened.target, opened.reached);
        let writable = writable && !read_only::may_only_be_read(&opened.media, opts)?;
        let volume = Volume::read(opened.media, writable)?.at(target.clone());
        if let (Some(end), Some(place)) = (called, &opts.service) {
            match connect::inquire(end, volume.view().header.volume) {
                Err(error) if place.fallback.is_some() => {
                    tracing::warn!(%error, "the device process does not serve this volume");
                }
                other => other?,
            }
        }
        if writable {
            places.remember(&show_uuid(&volume.view().header.volume));
        } else {
            read_only::refuse_dirty(path, &volume)?;
        }
        volume.media.devices().for_each(tell_storage);
        let local = Self::open_with(volume, writable, clock, opts, Threads::Real, progress)?;
        if !opts.read_only {
            opts.waits.begin();
        }
        Self { places, reached, ..local }.outliving(target, opts)
    }

    /// As [`LocalVolume::open_on`], of a volume whose storage `target` has: it is waited for when
    /// it is lost.
    pub fn open_at(
        target: Arc<Target>,
        clock: Arc<dyn Clock>,
        opts: &OpenOptions,
        threads: Threads,
    ) -> Result<Self> {
        let (media, target) = (media_of(target.devices()), Some(target));
        Self::open_devices(media, target.clone(), clock, opts, threads)?.outliving(target, opts)
    }

    fn outliving(self, target: Option<Arc<Target>>, opts: &OpenOptions) -> Result<Self> {
        if let (Some(target), false) = (&target, opts.read_only) {
            outlive(target, &self.media, self.pair.key)?;
        }
        Ok(Self { target, ..self })
    }

    /// As [`LocalVolume::open`], on any devices, with any clock.
    pub fn open_on(
        media: impl Into<Media>,
        clock: Arc<dyn Clock>,
        opts: &OpenOptions,
        threads: Threads,
    ) -> Result<Self> {
        Self::open_devices(media.into(), None, clock, opts, threads)
    }

    fn open_devices(
        media: Media,
        target: Option<Arc<Target>>,
        clock: Arc<dyn Clock>,
        opts: &OpenOptions,
        threads: Threads,
    ) -> Result<Self> {
        for role in Role::ALL {
            media.claim(role, Duration::ZERO)?;
        }
        let volume = Volume::read(media, true)?.at(target);
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
        if opts.service.is_some() && volume.media.spare.is_some() {
            return Err(Error::Refused(NOT_SHARED.into()));
        }
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
        let (uuid, recovered) = (volume.view.header.volume, volume.recovered.clone());
        let mark = if opts.read_only { Mark::Unmarked { writable } } else { Mark::Marked };
        let remounter = Arc::new(Remounter::new(&pair, clock.clone(), volume, mark));
        let private_logs = Arc::new(PrivateLogs::new(&pair, uuid, remounter.clone()));
        let (logs, elsewhere) = (private_logs.clone(), opts.service.is_some());
        let freezer = Arc::new(Freezer::new(remounter.clone(), logs, elsewhere));
        let places = Places::default();
        let endpoint = Endpoint::open(&pair.runtime, Opening::kernel())?;
        let term = if opts.read_only { None } else { Term::of(&media.area)? };
        Ok(Self {
            media,
            places,
            clock,
            opts,
            pair,
            endpoint,
            background,
            remounter,
            private_logs,
            freezer,
            uuid,
            recovered,
            target: None,
            reached: Reached::default(),
            term,
        })
    }

    /// Is it open by a path of this machine, and not through a target?
    pub fn has_path(&self) -> bool {
        self.opts.target.is_none() && self.reached.is_empty()
    }

    /// The target that has its storage, if it is open through one.
    pub fn target_place(&self) -> Option<TargetPlace> {
        self.target.as_ref().map(|target| target.place().clone())
    }

    /// Its UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// What the recovery that opened it found of clients' calls; `None` if there was none, or the
    /// one before it was interrupted: then nobody knows.
    pub fn recovered(&self) -> Option<Arc<Recovered>> {
        self.recovered.clone()
    }

    /// The epoch in which the volume is open: [`Recovered::epoch`] of the next one, if this process
    /// is killed.
    pub fn epoch(&self) -> u64 {
        self.pair.key.epoch.0
    }

    /// The same with its nonce, for the server's book.
    pub(crate) fn key(&self) -> EpochKey {
        self.pair.key
    }

    /// The server's book, if the volume was opened to be served.
    pub(crate) fn book(&self) -> Option<Arc<dyn BookStore>> {
        let books = self.opts.books.as_deref();
        books.map(|books| book_store_of(self.area(), books, &self.uuid))
    }

    /// The device that the area is on.
    pub(crate) fn area(&self) -> &dyn Device {
        &*self.media.area
    }

    /// What is known of this process's hold on the volume, where another one can take it over.
    pub(crate) fn tenure(&self) -> Option<Arc<dyn Tenure>> {
        self.term.clone().map(|term| -> Arc<dyn Tenure> { term })
    }

    /// Why the volume is another process's by now, once this one was told so. Nothing that it does
    /// counts any more.
    pub fn lost(&self) -> Option<String> {
        self.term.as_ref().and_then(|term| term.lost())
    }

    /// Tells, at any time, how the log is that has a spare one; `None` for a log that has none, and
    /// once the volume is closed.
    pub fn spare_log(&self) -> impl Fn() -> Option<SpareInfo> + Send + Sync + use<> {
        let pair = self.media.pair.as_ref().map(Arc::downgrade);
        move || pair.as_ref().and_then(Weak::upgrade).map(|pair| told(&pair))
    }

    /// Where the log is, if on a file or device of its own that was opened by path.
    pub fn log_path(&self) -> Option<&Path> {
        self.places.log.as_deref()
    }

    /// Describes the devices: the area's, then those of a log elsewhere, of a spare one and of a
    /// record area. Does not wait for the volume.
    pub fn devices(&self) -> impl Fn() -> Vec<DeviceInfo> + Send + Sync + use<> {
        let Media { area, log, bytes, spare, .. } = &self.media;
        // When the volume is closed, they are gone.
        let all: Vec<Weak<dyn Device>> = [Some(area), log.as_ref(), spare.as_ref(), bytes.as_ref()]
            .into_iter()
            .flatten()
            .map(Arc::downgrade)
            .collect();
        move || all.iter().filter_map(|device| Some(device.upgrade()?.describe())).collect()
    }

    /// The place of a record area, opened by name, that promises nothing over a power cut.
    pub fn volatile_place(&self) -> Option<String> {
        let described = self.media.bytes.as_ref()?.describe();
        (described.persistent == Some(false)).then_some(described.path)
    }

    /// A session of this process itself, which may name any inode and ask for anything. It is one
    /// and the same as long as the volume is open.
    pub fn endpoint(&self) -> Arc<dyn FileService> {
        self.endpoint.clone()
    }

    /// Opens a session for a Frontend. It ends when it is dropped.
    ///
    /// # Errors
    /// `ENFILE` if there are too many.
    pub fn session(&self, opening: Opening) -> Result<Arc<dyn FileService>> {
        Ok(Endpoint::open(&self.pair.runtime, opening)?)
    }

    /// Opens sessions from any thread, until the volume is closed.
    pub fn sessions(&self) -> Sessions {
        Sessions { runtime: self.pair.runtime.clone() }
    }

    /// Opens a session for a Frontend that caches: `cache` is told of what other sessions change.
    /// It ends when it is dropped.
    ///
    /// # Errors
    /// `ENFILE` if there are too many.
    pub fn front(&self, opening: Opening, cache: Arc<dyn Cache>) -> Result<Arc<dyn FileService>> {
        Ok(Endpoint::open_caching(&self.pair.runtime, opening, cache)?)
    }

    /// Opens a session for a Frontend that may hold write leases: `holder` is told when one is
    /// recalled. It ends when it is dropped.
    ///
    /// # Errors
    /// `ENFILE` if there are too many.
    pub fn holder(
        &self,
        opening: Opening,
        holder: Arc<dyn Holder>,
    ) -> Result<Arc<dyn FileService>> {
        Ok(Endpoint::open_holding(&self.pair.runtime, opening, holder)?)
    }

    /// As [`LocalVolume::holder`], of a session that changes nothing but the files that are leased
    /// to it: everything else is `EPERM`. It is no front end, so a kernel that is alone stays so.
    ///
    /// # Errors
    /// `ENFILE` if there are too many.
    pub fn lender(
        &self,
        opening: Opening,
        holder: Arc<dyn Holder>,
    ) -> Result<Arc<dyn FileService>> {
        Ok(Endpoint::open_lending(&self.pair.runtime, opening, holder)?)
    }

    /// Changes its settings, from any thread, until it is closed.
    pub fn remounter(&self) -> Arc<Remounter> {
        self.remounter.clone()
    }

    /// Freezes it for snapshots, from any thread, until it is closed.
    pub fn freezer(&self) -> Arc<Freezer> {
        self.freezer.clone()
    }

    /// The volume's registry of private logs, from any thread, until it is closed. Its sessions
    /// have to be over by then: what they had is durable in the volume, and the registry goes.
    pub fn private_logs(&self) -> Arc<PrivateLogs> {
        self.private_logs.clone()
    }

    /// Tells, at any time, about how many bytes are still to be brought into the area.
    pub fn backlog(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let runtime = self.pair.runtime.clone();
        move || runtime.backlog()
    }

    /// Tells, at any time, which process closing the volume waits for, in words for people; `None`
    /// if it waits for no other process.
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

    /// Asks the Service to give back some of what was freed and reclaimed, as the background thread
    /// does.
    pub fn discard(&self) -> Result<()> {
        self.pair.runtime.discard_some()
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
        self.term.iter().for_each(|term| term.end());
        let (target, reached) = (self.target.take(), self.reached.clone());
        let media = self.media.clone();
        let closed = self.close_volume();
        if closed.is_ok() {
            media.devices().for_each(|device| device.finish());
        }
        if let Some(target) = target {
            target.close();
        }
        reached.close();
        closed
    }

    fn close_volume(mut self) -> Result<()> {
        self.freezer.close();
        // Before anything waits for a Service that may be away: the commit thread does.
        self.pair.driver.close_within(CLOSE_PATIENCE);
        if !self.private_logs.seal() {
            let why = "programs have logs of their own that were not taken in: they are left to the \
                       next mount, which recovers the volume";
            let error = Error::Latched(why.into());
            self.pair.runtime.fail(&error);
            self.leave();
            return Err(error);
        }
        siftfs_runtime::end_leases(&self.pair.runtime);
        if let Some(background) = self.background.take() {
            background.stop(&self.pair.runtime);
        }
        if !self.remounter.is_marked() {
            self.pair.runtime.wait_for_no_room();
            return self.pair.driver.stop();
        }
        let runtime = self.pair.runtime.clone();
        // From here on all of the log is on its own device again.
        let home = self.media.pair.as_ref().map_or(Ok(()), |pair| pair.disarm());
        let closed = home
            .and_then(|()| runtime.make_writable())
            .and_then(|()| close_pair(self.pair, self.clock.now()));
        // A Service that waits for room would keep the volume: it ends, and the next mount goes on.
        closed.inspect_err(|error| runtime.fail(error))?;
        // The header says clean; clearing the marker is what recovery would do now.
        let mut volume = Volume::read(self.media, true)?;
        volume.recover(&self.clock, &self.opts, &mut |_, _, _| {})?;
        if !volume.is_clean() {
            return Err(Error::Latched("the volume is not clean".into()));
        }
        self.private_logs.remove();
        Ok(())
    }

    /// Stops without writing anything more, as a crash would (tests).
    pub fn abandon(mut self) {
        self.term.iter().for_each(|term| term.end());
        if let Some(target) = self.target.take() {
            target.close();
        }
        self.reached.close();
        self.pair.runtime.fail(&Error::Latched("abandoned".into()));
        let log = self.media.pair.clone();
        self.leave();
        if let Some(log) = log {
            log.abandon();
        }
    }

    fn leave(mut self) {
        if let Some(background) = self.background.take() {
            background.stop(&self.pair.runtime);
        }
        self.pair.driver.abandon();
    }
}

/// A spare log, in the status report.
fn told(pair: &LogPair) -> SpareInfo {
    let report = pair.report();
    SpareInfo {
        path: pair.spare().describe().path,
        state: report.state.text().into(),
        stalls: report.stalls,
        longest_ms: u64::try_from(report.longest.as_millis()).unwrap_or(u64::MAX),
        batches: report.batches,
        written_bytes: report.bytes,
        lacking_bytes: report.lacking,
        used_bytes: report.used,
        total_bytes: report.len,
        may_stand_alone: report.may_stand_alone,
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
