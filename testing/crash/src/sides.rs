//! Host and device process as two processes of one test: each with seats of its own on the shared
//! storage, a connection between them, and a schedule by which the device process dies.

use crate::volume::{Driver, Split, VolumeKind, base_image_of, deterministic, fault_device};
use siftfs_base::{Clock, Error, ManualClock, Result};
use siftfs_device::{Device, FaultDevice, Part, ProcessDevice, Role, SharedDevice};
use siftfs_device_target::{Target, TargetPlace};
use siftfs_model::Rng;
use siftfs_placement::{
    Address, Connector, DeviceEnd, HostEnd, Listener, LocalVolume, Media, OpenOptions, OpenStorage,
    Server, ServerOptions, ServicePlace, Threads,
};
use siftfs_transport::{Received, Receiver, Sender, TransportOptions, in_process};
use siftfs_wire::{Access, BlockProtocol, ToService};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// When the device process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Before its n-th message, received or sent.
    Message(u64),
    /// Before its n-th access to the storage.
    Access(u64),
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device process.
struct Process {
    server: Server,
    seats: Mutex<Vec<Arc<ProcessDevice>>>,
    dead: AtomicBool,
    /// Messages before it dies.
    left: AtomicU64,
}

impl Process {
    /// Kills the process, if it has not died: nothing that it does reaches a host any more.
    fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
        lock(&self.seats).iter().for_each(|seat| seat.kill());
    }

    fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::SeqCst) && !lock(&self.seats).iter().any(|seat| seat.is_dead())
    }

    /// It dies so from now on.
    fn dies(&self, death: Option<Death>) {
        match death {
            Some(Death::Message(n)) => self.left.store(n, Ordering::SeqCst),
            Some(Death::Access(n)) => lock(&self.seats).iter().for_each(|seat| seat.kill_after(n)),
            None => {}
        }
    }

    /// One message is about to pass; an error if the process is dead.
    fn pass(&self) -> Result<()> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            (left != u64::MAX).then(|| left.saturating_sub(1))
        });
        if left == Ok(0) || !self.is_alive() {
            self.kill();
        }
        match self.is_alive() {
            true => Ok(()),
            false => Err(Error::Link("the process is dead".into())),
        }
    }
}

/// A half of a device process's connection.
struct Tap<T> {
    process: Arc<Process>,
    inner: T,
}

impl<M> Sender<M> for Tap<Arc<dyn Sender<M>>> {
    fn send(&self, message: M) -> Result<()> {
        self.process.pass()?;
        self.inner.send(message)
    }
    fn try_send(&self, message: M) -> bool {
        self.process.pass().is_ok() && self.inner.try_send(message)
    }
    fn close(&self) {
        // The dead do not close in order.
        if !self.process.dead.load(Ordering::SeqCst) {
            self.inner.close();
        }
    }
}

impl Receiver<ToService> for Tap<Box<dyn Receiver<ToService>>> {
    fn recv(&mut self, timeout: Option<Duration>) -> Result<Received<ToService>> {
        if self.process.dead.load(Ordering::SeqCst) {
            return Err(Error::Link("the process is dead".into()));
        }
        let received = self.inner.recv(timeout)?;
        // A hint may be dropped by chance, and says nothing that lasts: deaths are counted without.
        let hint = matches!(received, Received::Message(ToService::ExpectUrgent { .. }));
        if matches!(received, Received::Message(_)) && !hint {
            self.process.pass()?;
        } else if self.process.dead.load(Ordering::SeqCst) {
            return Err(Error::Link("the process is dead".into()));
        }
        Ok(received)
    }
}

/// The place where device processes live, one after the other.
pub struct Town {
    shared: Vec<SharedDevice>,
    /// Which of them is what.
    split: Split,
    clock: Arc<ManualClock>,
    deaths: Mutex<Box<dyn FnMut() -> Option<Death> + Send>>,
    process: Mutex<Option<Arc<Process>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Connections that are refused before the next one succeeds.
    away: AtomicU64,
    /// How many are refused after a death.
    absence: u64,
    died: AtomicU64,
    /// Processes die as they are told.
    deadly: AtomicBool,
    /// Where hosts reach the storage through the device process.
    door: Mutex<Option<Door>>,
}

/// A socket at which the device process that is there is reached.
struct Door {
    ending: Arc<AtomicBool>,
    listening: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

/// What the volume is called there.
const NAME: &str = "volume";

impl Town {
    /// Device processes on the storage that `device` is, or stands for; each asks `deaths` how it
    /// will die. After a death `absence` connections are refused before there is another process.
    pub fn new(
        device: &Arc<FaultDevice>,
        absence: u64,
        deaths: impl FnMut() -> Option<Death> + Send + 'static,
    ) -> Arc<Self> {
        let image = device.contents();
        let split = Split::of(&image);
        let ends = [split.log, split.bytes, Some(image.size())].into_iter().flatten();
        let mut start = 0;
        let parts = ends.map(|end| std::mem::replace(&mut start, end)..end);
        let part = |range| -> Arc<dyn Device> { Arc::new(Part::new(device.clone(), range)) };
        Arc::new(Self {
            shared: parts.map(part).map(SharedDevice::new).collect(),
            split,
            clock: Arc::new(ManualClock::new(1_600_000_000)),
            deaths: Mutex::new(Box::new(deaths)),
            process: Mutex::default(),
            threads: Mutex::default(),
            away: AtomicU64::new(0),
            absence,
            died: AtomicU64::new(0),
            deadly: AtomicBool::new(true),
            door: Mutex::default(),
        })
    }

    fn seats(&self) -> (Vec<Arc<ProcessDevice>>, Media) {
        let seats: Vec<Arc<ProcessDevice>> = self.shared.iter().map(SharedDevice::open).collect();
        let mut rest = seats.iter().map(|seat| seat.clone() as Arc<dyn Device>);
        let mut take = |there: bool| there.then(|| rest.next().expect("a seat for each part"));
        let area = take(true).expect("there is a first");
        let (log, bytes) = (take(self.split.log.is_some()), take(self.split.bytes.is_some()));
        (seats.clone(), Media { log, bytes, ..Media::from(area) })
    }

    /// A host opens the volume; its Service is the device process.
    ///
    /// # Errors
    /// Why it was not opened.
    pub fn open(self: &Arc<Self>, fallback: Option<Duration>) -> Result<Driver> {
        let connector: Arc<dyn Connector> = Arc::new(Road(self.clone()));
        let place = ServicePlace { connector, fallback };
        let opts = OpenOptions { service: Some(place), ..deterministic() };
        let clock: Arc<dyn Clock> = self.clock.clone();
        let media = self.seats().1;
        let volume = LocalVolume::open_on(media, clock, &opts, Threads::None)?;
        Ok(Driver { volume, clock: self.clock.clone() })
    }

    /// As [`Town::open`], of a host that reaches the storage through the device process alone.
    /// None dies before the volume is open: until then the host has nothing by which it could know
    /// the volume again.
    ///
    /// # Errors
    /// Why it was not opened.
    pub fn open_through(self: &Arc<Self>, fallback: Option<Duration>) -> Result<Driver> {
        self.deadly.store(false, Ordering::SeqCst);
        let dir = tempfile::tempdir().map_err(|e| Error::Refused(e.to_string()))?;
        let address = Address::Unix(dir.path().join("target"));
        let listener = Listener::bind(&address, &TransportOptions::default())?;
        let (ending, town) = (Arc::new(AtomicBool::new(false)), Arc::downgrade(self));
        let ended = ending.clone();
        let listening = std::thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                if let Ok(Some(end)) = listener.accept(Some(Duration::from_millis(5)))
                    && let Some(town) = town.upgrade()
                    && let Ok(process) = town.present()
                {
                    town.serve(process, end);
                }
            }
        });
        *lock(&self.door) = Some(Door { ending, listening, _dir: dir });
        let connector: Arc<dyn Connector> = Arc::new(Road(self.clone()));
        let service = Some(ServicePlace { connector, fallback });
        let opts = OpenOptions { service, ..deterministic() };
        let (volume, options) = (NAME.into(), TransportOptions::default());
        let place = TargetPlace { address, volume, options, secured: None };
        let (target, clock) = (Target::open(place, true)?, self.clock.clone());
        let volume = LocalVolume::open_at(target, clock, &opts, Threads::None)?;
        self.deadly.store(true, Ordering::SeqCst);
        if let Some(process) = &*lock(&self.process) {
            process.dies(lock(&self.deaths)());
        }
        Ok(Driver { volume, clock: self.clock.clone() })
    }

    /// Device processes that have died.
    pub fn deaths(&self) -> u64 {
        let present = lock(&self.process).as_ref().is_some_and(|p| !p.is_alive());
        self.died.load(Ordering::SeqCst) + u64::from(present)
    }

    /// The device process dies now.
    pub fn kill(&self) {
        if let Some(process) = &*lock(&self.process) {
            process.kill();
        }
    }

    /// Returns when every session has ended, what a dead host left included.
    pub fn join(&self) {
        if let Some(Door { ending, listening, _dir }) = lock(&self.door).take() {
            ending.store(true, Ordering::SeqCst);
            assert!(listening.join().is_ok(), "a failed assertion beside a socket");
        }
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            assert!(thread.join().is_ok(), "a session ended with a failed assertion");
        }
    }

    /// The process that lives, or another one.
    fn present(self: &Arc<Self>) -> Result<Arc<Process>> {
        let mut present = lock(&self.process);
        if let Some(process) = present.as_ref() {
            if process.is_alive() {
                return Ok(process.clone());
            }
            *present = None;
            self.died.fetch_add(1, Ordering::SeqCst);
            self.away.store(self.absence, Ordering::SeqCst);
        }
        let less = |away: u64| away.checked_sub(1);
        if self.away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(Error::Link("nobody listens".into()));
        }
        let deadly = self.deadly.load(Ordering::SeqCst);
        let death = if deadly { lock(&self.deaths)() } else { None };
        let town = self.clone();
        let process = Arc::new_cyclic(|this: &std::sync::Weak<Process>| {
            let this = this.clone();
            let open: Arc<dyn Fn() -> Result<Media> + Send + Sync> = Arc::new(move || {
                let (seats, media) = town.seats();
                let process = this.upgrade().ok_or_else(|| Error::Link("dead".into()))?;
                if let Some(Death::Access(n)) = death {
                    seats.iter().for_each(|seat| seat.kill_after(n));
                }
                lock(&process.seats).extend(seats);
                match process.dead.load(Ordering::SeqCst) {
                    true => Err(Error::Link("the process is dead".into())),
                    false => Ok(media),
                }
            });
            let open_storage = open.clone();
            let storage: OpenStorage = Arc::new(move |access| {
                let media = open_storage()?;
                let alone = access == Access::Alone;
                Role::ALL
                    .into_iter()
                    .filter(|_| alone)
                    .try_for_each(|role| media.claim(role, Duration::from_secs(20)))?;
                Ok(media)
            });
            let clock: Arc<dyn Clock> = self.clock.clone();
            let (patience, replay) = (Duration::from_secs(20), deterministic().replay);
            let (names, storage) = (vec![NAME.into()], Some(storage));
            let more = ServerOptions::default();
            let options = ServerOptions { patience, replay, clock, names, storage, ..more };
            let left = match death {
                Some(Death::Message(n)) => n,
                _ => u64::MAX,
            };
            Process {
                server: Server::new(Box::new(move || open()), options),
                seats: Mutex::default(),
                dead: AtomicBool::new(false),
                left: AtomicU64::new(left),
            }
        });
        *present = Some(process.clone());
        Ok(process)
    }
}

impl Town {
    /// A session of the process on this connection, in a thread of its own.
    fn serve(&self, process: Arc<Process>, end: DeviceEnd) {
        let tapped = DeviceEnd {
            sender: Arc::new(Tap { process: process.clone(), inner: end.sender }),
            receiver: Box::new(Tap { process: process.clone(), inner: end.receiver }),
            ..end
        };
        let thread = std::thread::spawn(move || process.server.session(tapped));
        lock(&self.threads).push(thread);
    }
}

/// Connects the host to the device process that is there.
pub struct Road(pub Arc<Town>);

impl Connector for Road {
    fn connect(&self) -> Result<HostEnd> {
        let process = self.0.present()?;
        let (host, device) = in_process::<BlockProtocol>(TransportOptions::default());
        self.0.serve(process, device);
        Ok(host)
    }
    fn address(&self) -> String {
        "the device process".into()
    }
}

/// A fresh volume of this kind on a fault device that records.
pub fn recorded_device(kind: VolumeKind) -> Arc<FaultDevice> {
    let device = Arc::new(fault_device(base_image_of(kind), 0));
    device.record_history();
    device
}

/// Deaths by seed: at messages and at accesses in turn, after few or after many.
pub fn seeded_deaths(seed: u64) -> impl FnMut() -> Option<Death> + Send {
    let mut rng = Rng::new(seed);
    move || {
        let most = [6, 20, 80][rng.below(3) as usize];
        let n = 1 + rng.below(most);
        Some(if rng.below(2) == 0 { Death::Message(n) } else { Death::Access(6 * n) })
    }
}
