//! The mounts of a daemon's volume: the first one, and those that commands attach. Each has a
//! session, a request loop and options of its own. The volume is closed after the last one.

use crate::control::messages::Device;
use crate::daemon::mounts::mounted::{Mounted, Wanted, take_away};
use crate::daemon::mounts::private_logs::{LogPlace, PrivateLogs};
use crate::daemon::mounts::sockets::Sockets;
use crate::daemon::origin::Source;
use crate::options::parsed::Options;
use siftfs_base::Result as VolumeResult;
use siftfs_fuse::{Front, FuseMount, Gate, MountEntry, MountOptions, NewMount};
use siftfs_grantor::Opens;
use siftfs_placement::principal;
use siftfs_proto::{FileService, Holder, Identity, Limits, Opening};
use signal_hook::consts::SIGXCPU;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Mounts of a volume at a time.
pub const MOST_MOUNTS: usize = 64;

/// Why a mount whose server checks the callers has no mapped users.
const NO_IDMAP: &str = "idmap: the server checks who calls, and with this option the kernel does not say whose a request \
                        is; leave it out";

/// Why the daemon stops serving.
pub enum End {
    /// The last mount is gone.
    Last,
    /// A signal asked for it and the grace time is over.
    Forced,
}

/// All mounts of the volume.
pub struct Mounts {
    volume: PathBuf,
    gate: Gate,
    source: Arc<dyn Source>,
    ends: Sender<End>,
    /// Held while `State::live` changes, so that names and mounts go together. Taken before it.
    sockets: Mutex<Option<Sockets>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Those that are served, the oldest first.
    live: Vec<Arc<Mounted>>,
    /// Those that are being made.
    coming: usize,
    /// Numbers given out.
    numbers: u64,
    /// No mount may come any more.
    ending: bool,
    /// The kernel has none of them any more, or they do not count any more.
    gone: bool,
    /// By number, how many commands are about to take a mount away.
    leavers: Vec<u64>,
    /// Why serving a mount failed, of the first that did.
    failure: Option<String>,
    /// How the daemon ended.
    closed: Option<Result<(), String>>,
}

/// Room for one mount that is being made: the volume stays open meanwhile.
pub struct Place(Arc<Mounts>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lock().coming -= 1;
        self.0.look_for_the_end();
    }
}

/// Opens the sessions of programs with private logs.
struct Lenders(Weak<Mounts>);

impl Opens for Lenders {
    fn open(&self, holder: Arc<dyn Holder>) -> VolumeResult<Arc<dyn FileService>> {
        let mounts = self.0.upgrade().ok_or_else(|| siftfs_base::errno(libc::ENODEV))?;
        mounts.lender(holder)
    }
}

/// Why there is no room for one more mount.
pub enum NoPlace {
    /// The volume is being closed.
    Closing,
    /// There are too many.
    TooMany,
}

/// How a mount, or all of them, is doing.
pub struct Now {
    /// Is it there?
    pub mounted: bool,
    /// Is a command about to take it away?
    pub leaving: bool,
    /// Where others are, if it is gone and they are not.
    pub others: Option<Vec<PathBuf>>,
    /// How the daemon ended, if it has.
    pub closed: Option<Result<(), String>>,
}

fn relock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mounts {
    /// None yet. `source` opens sessions of the volume, `ends` is told when the last is gone.
    pub fn new(volume: &Path, source: Arc<dyn Source>, ends: Sender<End>) -> Arc<Self> {
        Arc::new(Self {
            volume: volume.to_path_buf(),
            gate: Gate::default(),
            source,
            ends,
            sockets: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        relock(&self.state)
    }

    /// The gate before all sessions.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// A session for what the daemon itself looks up.
    ///
    /// # Errors
    /// Those of the volume.
    pub fn session(&self, opening: Opening) -> VolumeResult<Arc<dyn FileService>> {
        self.source.open(opening).map(|session| self.gate.before(session))
    }

    /// A session for a program's private log.
    fn lender(&self, holder: Arc<dyn Holder>) -> VolumeResult<Arc<dyn FileService>> {
        let (identity, limits) = (Identity::Kernel, Limits::default());
        let opening = Opening { identity, administrator: false, limits, client: None };
        self.source.lender(opening, holder).map(|session| self.gate.before(session))
    }

    /// Room for one more mount.
    ///
    /// # Errors
    /// See [`NoPlace`].
    pub fn begin(self: &Arc<Self>) -> Result<Place, NoPlace> {
        let mut state = self.lock();
        if state.ending {
            return Err(NoPlace::Closing);
        }
        if state.live.len() + state.coming >= MOST_MOUNTS {
            return Err(NoPlace::TooMany);
        }
        state.coming += 1;
        Ok(Place(self.clone()))
    }

    /// Makes a mount with a session of its own, which is nowhere yet: the one place where a front
    /// end of the kernel's comes from.
    ///
    /// # Errors
    /// A message that says what is lacking.
    pub fn open_front(&self, options: &MountOptions) -> Result<NewMount, String> {
        let options = MountOptions { source: self.volume.clone(), ..options.clone() };
        let front = options.has_front().then(|| Arc::new(Front::of(options.root)));
        let session = match &front {
            Some(front) => self.source.front(Opening::kernel(), front.clone()),
            None => self.source.open(Opening::kernel()),
        };
        let session = self.gate.before(session.map_err(|e| e.to_string())?);
        if options.idmap && self.source.checks_callers() {
            return Err(NO_IDMAP.into());
        }
        let made = NewMount::new(session, &options).map_err(|e| {
            let root =
                if e.raw_os_error() == Some(libc::EPERM) { " (mounting needs root)" } else { "" };
            format!("the kernel does not make the mount: {e}{root}")
        })?;
        Ok(match front {
            Some(front) => made.with_front(front),
            None => made,
        })
    }

    /// Makes the socket for commands, named after the first mount and the volume.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn listen(&self, first: &MountEntry) -> io::Result<UnixListener> {
        let path = self.source.has_path().then_some(&*self.volume);
        let (listener, sockets) = Sockets::listen(first, path)?;
        *relock(&self.sockets) = Some(sockets);
        Ok(listener)
    }

    /// Serves a mount from here on, on a thread of its own. If that fails, the mount is taken away.
    ///
    /// # Errors
    /// No thread, no name for the socket, or the daemon is about to end.
    pub fn serve(
        self: &Arc<Self>,
        place: Place,
        mount: FuseMount,
        wanted: Wanted,
    ) -> io::Result<()> {
        let entry = mount.entry().clone();
        let taken_away = |e| {
            take_away(&entry);
            e
        };
        let overtime = signal_hook::flag::register(SIGXCPU, mount.overtime());
        let overtime = overtime.map_err(taken_away)?;
        let front = self.enter(&mount, wanted).map_err(taken_away)?;
        let (mounts, served) = (self.clone(), front.clone());
        let body = move || {
            let how = mount.serve();
            signal_hook::low_level::unregister(overtime);
            served.end_logs();
            mounts.ended(&served, how);
        };
        let started = thread::Builder::new().name("siftfs-serve".into()).spawn(body);
        if let Err(e) = started {
            signal_hook::low_level::unregister(overtime);
            self.leave(&front);
            return Err(taken_away(e));
        }
        tracing::info!(volume = %self.volume.display(), dir = %entry.mount_point.display(), "mounted");
        front.show_in_table(&self.volume);
        drop(place);
        Ok(())
    }

    /// Notes a mount that is about to be served.
    fn enter(self: &Arc<Self>, mount: &FuseMount, wanted: Wanted) -> io::Result<Arc<Mounted>> {
        let entry = mount.entry();
        let Options { open, file_logs, ingest, mount: of_mount, .. } = &wanted.options;
        let commit = Duration::from_millis(open.commit_ms);
        let own = principal(&self.volume);
        let beside = open.log.as_deref().unwrap_or(&own);
        let opens = Arc::new(Lenders(Arc::downgrade(self)));
        let place = LogPlace { registry: self.source.registry(), wanted: file_logs, beside };
        let logs = PrivateLogs::of(opens, mount, (of_mount, place), (commit, *ingest))?;
        let mut sockets = relock(&self.sockets);
        let mut state = self.lock();
        if state.ending {
            return Err(io::Error::other("the daemon is about to end"));
        }
        let number = state.numbers;
        let front = Arc::new(Mounted::new(number, (mount, logs), wanted));
        // The first one's name came with the socket.
        if let Some(sockets) = sockets.as_mut().filter(|_| number > 0) {
            sockets.add(entry)?;
        }
        state.numbers += 1;
        state.live.push(front.clone());
        drop(state);
        self.changed.notify_all();
        Ok(front)
    }

    /// A mount's requests have ended.
    fn ended(&self, front: &Arc<Mounted>, how: io::Result<()>) {
        if let Err(error) = how {
            tracing::error!(%error, dir = %front.entry.mount_point.display(), "requests ended");
            take_away(&front.entry);
            let dir = front.entry.mount_point.display();
            let what = format!("{dir}: the kernel's requests ended: {error}");
            self.lock().failure.get_or_insert(what);
        }
        // Before a command is told that the mount is gone.
        front.leave_table();
        self.leave(front);
        tracing::info!(dir = %front.entry.mount_point.display(), "unmounted");
        self.look_for_the_end();
    }

    /// Forgets a mount.
    fn leave(&self, front: &Mounted) {
        let mut sockets = relock(&self.sockets);
        let mut state = self.lock();
        state.live.retain(|other| other.number != front.number);
        // Another of our mounts may have its device number already.
        let device = Device::of(&front.entry);
        let again = state.live.iter().any(|other| Device::of(&other.entry) == device);
        // The last name stays until the volume is closed.
        let last = state.live.is_empty();
        drop(state);
        if let Some(sockets) = sockets.as_mut().filter(|_| !again && !last) {
            sockets.remove(&front.entry);
        }
        drop(sockets);
        self.changed.notify_all();
    }

    fn look_for_the_end(&self) {
        let mut state = self.lock();
        if state.live.is_empty() && state.coming == 0 && !state.ending {
            (state.ending, state.gone) = (true, true);
            let _ = self.ends.send(End::Last);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Lets no mount come any more; those that are there, for a signal to take away.
    pub fn stop(&self) -> Vec<Arc<Mounted>> {
        let mut state = self.lock();
        state.ending = true;
        state.live.clone()
    }

    /// The signal's work is done.
    pub fn forced(&self) {
        let _ = self.ends.send(End::Forced);
    }

    /// Are all of them gone?
    pub fn is_over(&self) -> bool {
        let state = self.lock();
        state.live.is_empty() && state.coming == 0
    }

    /// From here on commands are told that the mounts are gone. Returns why serving one failed.
    pub fn gone(&self) -> Option<String> {
        let mut state = self.lock();
        (state.ending, state.gone) = (true, true);
        let failure = state.failure.take();
        drop(state);
        self.changed.notify_all();
        failure
    }

    /// Takes the socket away, and tells commands that wait how the daemon ended.
    pub fn closed(&self, how: Result<(), String>) {
        if let Some(sockets) = relock(&self.sockets).as_mut() {
            sockets.remove_all();
        }
        self.lock().closed = Some(how);
        self.changed.notify_all();
    }

    /// All that are served, the oldest first.
    pub fn live(&self) -> Vec<Arc<Mounted>> {
        self.lock().live.clone()
    }

    /// The mount of this number.
    pub fn of(&self, device: Device) -> Option<Arc<Mounted>> {
        self.lock().live.iter().rev().find(|f| Device::of(&f.entry) == device).cloned()
    }

    /// How a mount does, or, without one, how all do.
    pub fn now(&self, front: Option<&Mounted>) -> Now {
        let state = self.lock();
        Self::look(&state, front)
    }

    fn look(state: &State, front: Option<&Mounted>) -> Now {
        let any = !state.live.is_empty() || state.coming > 0;
        let here = |front: &Mounted| state.live.iter().any(|f| f.number == front.number);
        let mounted = !state.gone && front.map_or(any, here);
        let leaving = match front {
            Some(front) => state.leavers.contains(&front.number),
            None => !state.leavers.is_empty(),
        };
        let others = || state.live.iter().map(|f| f.entry.mount_point.clone()).collect();
        // One that is being made may come to nothing: then the volume is closed after all.
        let stays = front.is_some() && !mounted && !state.live.is_empty() && !state.ending;
        Now { mounted, leaving, others: stays.then(others), closed: state.closed.clone() }
    }

    /// Waits until that changes, but not long.
    pub fn wait(&self, front: Option<&Mounted>, told: &Now, limit: Duration) {
        let same = |state: &mut State| {
            let now = Self::look(state, front);
            now.mounted == told.mounted && now.closed.is_none() && now.others.is_none()
        };
        let _ = self.changed.wait_timeout_while(self.lock(), limit, same);
    }

    /// A command is about to take this mount away, until what is returned is dropped.
    pub fn leaving(self: &Arc<Self>, front: Option<&Mounted>) -> Leaving {
        let number = front.map(|f| f.number);
        self.lock().leavers.extend(number);
        Leaving { mounts: self.clone(), number }
    }
}

/// A command is about to take a mount away.
pub struct Leaving {
    mounts: Arc<Mounts>,
    number: Option<u64>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut state = self.mounts.lock();
        if let Some(at) = state.leavers.iter().position(|n| Some(*n) == self.number) {
            state.leavers.swap_remove(at);
        }
    }
}
