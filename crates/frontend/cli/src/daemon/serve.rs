//! The process that serves a mount, from opening the volume to closing it.

use crate::command::volume::name_of;
use crate::daemon::allocator::one_heap;
use crate::daemon::board::Board;
use crate::daemon::control_server::{ControlServer, Info};
use crate::daemon::limits;
use crate::daemon::listening::{self, Listening};
use crate::daemon::memory::Arranged;
use crate::daemon::metrics_server::{self, Address, Listener};
use crate::daemon::mounts::attach;
use crate::daemon::mounts::live::Mounts;
use crate::daemon::mounts::mounted::{Mounted, Wanted, leave_apart, places_of, take_away};
use crate::daemon::mounts::settings::Settings;
use crate::daemon::mounts::subdir;
use crate::daemon::origin::Origin;
use crate::options::keys::Admit;
use crate::options::parsed::Options;
use crate::options::served::Served;
use crate::show::failure::{Failure, Outcome};
use siftfs_fuse::{MountEntry, Syncing, detach, unmount};
use siftfs_placement::Freezer;
use siftfs_remote::{Execution, Listener as Clients, Server};
use siftfs_status::State;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// After a signal and a lazy unmount: how long programs may go on with files they hold open.
const GRACE: Duration = Duration::from_secs(5);

/// Receives how the start goes.
pub trait Report {
    /// `done` of `total` of `what`.
    fn progress(&mut self, what: &str, done: u64, total: u64);
    /// The record area at `place` keeps nothing over a power cut.
    fn volatile(&mut self, place: &str);
    /// Something of the mount is not as it should be.
    fn warning(&mut self, volume: &Path, text: &str);
    /// The mount is usable.
    fn ready(&mut self);
}

/// One mount to be.
pub struct Daemon {
    /// The volume, absolute, or where it is served.
    pub volume: PathBuf,
    /// The process that serves it, if it is another one.
    pub served: Option<Served>,
    /// Where to mount the volume, absolute, without links.
    pub dir: PathBuf,
    /// Options.
    pub options: Options,
    /// The options as they were given.
    pub shown: String,
    /// How this process stands to the kernel's memory.
    pub memory: Arranged,
}

impl Daemon {
    /// Opens, mounts, serves until the mount is gone or a signal ends it, and closes the volume:
    /// when this returns 0 the volume is plain ext4.
    pub fn run(&self, report: &mut dyn Report) -> Outcome {
        one_heap();
        let about = |e: &dyn std::fmt::Display| Failure::about(&self.volume, e);
        self.memory.log();
        for left in limits::left() {
            tracing::warn!("{left}");
        }
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::plain)?;
        let board = Arc::new(Board::default());
        let metrics = self.options.daemon.metrics.as_ref().map(listen).transpose()?;
        metrics.iter().for_each(|metrics| serve_metrics(metrics, &board));
        let listeners = self.listeners()?;
        let mut progress = |what: &str, done, total| report.progress(what, done, total);
        let volume = match &self.served {
            Some(served) => Origin::served(served, &self.options),
            None => {
                Origin::open(&self.volume, &self.options, &mut progress).map_err(|e| about(&e))?
            }
        };
        if let Some(place) = volume.volatile_place() {
            report.volatile(&place);
        }
        limits::check_files(volume.log_path())?;
        if let Some(text) = &self.memory.warning {
            tracing::warn!("{text}");
            report.warning(&self.volume, text);
        }
        let (ends, ended) = channel();
        let mounts = Mounts::new(&self.volume, volume.source(), ends);
        let mut listening = None;
        let started = self.listen(listeners, &volume).and_then(|served| {
            listening = served;
            self.start(&mounts, &volume, &board)
        });
        let control = match started {
            Ok(control) => control,
            Err(failure) => {
                drop(listening);
                mounts.gate().close();
                let closed = volume.close().map_err(|e| about(&e));
                mounts.closed(Err(failure.message.clone()));
                closed?;
                return Err(failure);
            }
        };
        Self::watch_signals(signals, mounts.clone(), volume.freezer());
        board.show(control.status());
        board.state().set(State::Serving);
        report.ready();
        if ended.recv().is_err() {
            tracing::error!("the mounts ended without a word");
        }
        board.state().set(State::Closing);
        let result = match mounts.gone() {
            Some(failure) => Err(Failure::plain(failure)),
            None => Ok(()),
        };
        drop(listening);
        volume.freezer().iter().for_each(Freezer::close);
        // Of mounts that are in use when a signal ends the daemon.
        mounts.live().iter().for_each(|front| front.end_logs());
        mounts.gate().close();
        let closed = volume.close().map_err(|e| about(&e));
        let result = closed.and(result);
        if let Err(f) = &result {
            tracing::error!(error = f.message, "ended");
        }
        control.finish(result.as_ref().map(|_| ()).map_err(|f| f.message.clone()));
        result.map(|()| 0)
    }

    /// Where the volume is to be served. An address that is in use is said before the volume is
    /// touched.
    fn listeners(&self) -> Result<Vec<Clients>, Failure> {
        let Options { daemon, service, .. } = &self.options;
        let admit = Admit {
            authorized: daemon.authorized.clone(),
            key: service.trust.key.clone(),
            insecure: service.trust.insecure,
        };
        listening::bind(&daemon.listen, &admit, &siftfs_remote::transport())
    }

    /// Serves the volume there until what is returned is dropped. Mounts go on without that.
    /// Clients of a daemon before this one that has died repeat what they keep before this kernel
    /// changes anything. If it is not served, a later server must not have them do it after that.
    fn listen(
        &self,
        listeners: Vec<Clients>,
        volume: &Origin,
    ) -> Result<Option<Listening>, Failure> {
        let Origin::Local(volume) = volume else { return Ok(None) };
        if listeners.is_empty() {
            return Ok(None);
        }
        let server = volume.served(&name_of(&self.volume)).and_then(|served| {
            let before = served.before();
            Server::after(served, Execution::default(), before)
        });
        let server = server.map_err(Failure::plain);
        let listening = server.and_then(|server| {
            let listening = Listening::start(listeners, server.clone())?;
            server.wait_for_clients();
            Ok(listening)
        });
        match listening {
            Ok(listening) => Ok(Some(listening)),
            Err(failure) => {
                tracing::error!(error = failure.message, "the volume is not served to others");
                volume.give_up_book().map_err(|e| Failure::about(&self.volume, e))?;
                Ok(None)
            }
        }
    }

    /// Makes and serves the first mount, and listens for commands.
    fn start(
        &self,
        mounts: &Arc<Mounts>,
        open: &Origin,
        board: &Arc<Board>,
    ) -> Result<ControlServer, Failure> {
        let place = mounts.begin().map_err(|_| Failure::plain("no room for a mount"))?;
        let mut options = self.options.clone();
        let about = |e: String| Failure::about(&self.volume, e);
        // Its directory stays looked up until the mount holds it.
        let found = subdir::find(mounts, options.subdir.as_deref()).map_err(about)?;
        options.mount.root = found.ino;
        attach::bind(&mut options);
        let made = mounts.open_front(&options.mount).map_err(about)?;
        let on = |e: io::Error| Failure::plain(format!("mount on {}: {e}", self.dir.display()));
        siftfs_fuse::attach(made.tree(), &self.dir).map_err(on)?;
        let mount = made.attached().map_err(on)?;
        let mount =
            mount.ok_or_else(|| Failure::about(&self.dir, "the new mount is not visible"))?;
        let entry = mount.entry().clone();
        let warnings = self.memory.warning.iter().cloned().collect();
        let info = Info {
            volume: self.volume.clone(),
            log: open.log_path().map(Path::to_path_buf),
            settings: Settings::new(options.clone(), open.remounter()),
            freezer: open.freezer(),
            warnings,
            backlog: open.backlog(),
            waiting: open.waiting(),
            devices: open.devices(),
            board: board.clone(),
            spare_log: open.spare_log(),
            server: open.server(),
        };
        let service = mounts.gate().before(open.service());
        let started = mounts
            .listen(&entry)
            .and_then(|listener| ControlServer::start(listener, mounts, service, info))
            .map_err(|e| Failure::plain(format!("cannot listen for commands: {e}")));
        let control = started.inspect_err(|_| take_away(&entry))?;
        let wanted = Wanted { options, shown: self.shown.clone(), warnings: Vec::new() };
        mounts.serve(place, mount, wanted).map_err(Failure::plain)?;
        Ok(control)
    }

    /// SIGTERM, SIGINT and SIGHUP unmount; if the mount is in use it is detached, what the
    /// kernel still holds is written, and after a grace time the volume is closed all the same.
    fn watch_signals(mut signals: Signals, mounts: Arc<Mounts>, freezer: Option<Arc<Freezer>>) {
        let watch = move || {
            for signal in signals.forever() {
                tracing::info!(signal, "asked to end");
                // What waits for the end of a hold keeps the mount in use.
                freezer.iter().for_each(Freezer::close);
                let fronts = mounts.stop();
                let mut busy: Vec<Busy> = fronts.iter().map(|front| unmounted(front)).collect();
                busy.retain(|(_, dirs)| !dirs.is_empty());
                // What is detached already, covered, or mounted in another namespace too: only
                // force is left.
                leave(&busy, &mounts);
                mounts.forced();
            }
        };
        let started = thread::Builder::new().name("siftfs-signals".into()).spawn(watch);
        if let Err(error) = started {
            tracing::error!(%error, "no thread for signals; use `siftfs umount`");
        }
    }
}

/// A mount, and where it is in use.
type Busy = (MountEntry, Vec<PathBuf>);

/// Unmounts a mount wherever that is possible.
fn unmounted(front: &Mounted) -> Busy {
    let mut busy = places_of(&front.entry);
    busy.retain(|dir| leave_apart(dir, unmount).is_err());
    (front.entry.clone(), busy)
}

/// Listens where the process is watched.
///
/// # Errors
/// The address is in use, or may not be taken.
pub fn listen(address: &Address) -> Result<Listener, Failure> {
    let what = |e| Failure::plain(format!("cannot serve metrics at {address}: {e}"));
    address.listen().map_err(what)
}

/// Answers there as long as the process lives. The volume is served without that, too.
pub fn serve_metrics(listener: &Listener, board: &Arc<Board>) {
    if let Err(error) = metrics_server::serve(listener, board.clone()) {
        tracing::error!(%error, "no thread for metrics");
    }
}

/// Detaches mounts in use. Pages dirtied through shared mappings are still in the kernel, which
/// sends them to us only when it is asked to.
fn leave(busy: &[Busy], mounts: &Mounts) {
    let syncing: Vec<_> = busy.iter().map(|(entry, _)| Syncing::start(entry)).collect();
    for dir in busy.iter().flat_map(|(_, dirs)| dirs) {
        if let Err(error) = leave_apart(dir, detach) {
            tracing::error!(%error, dir = %dir.display(), "cannot detach");
        }
    }
    let start = Instant::now();
    while start.elapsed() < GRACE && !mounts.is_over() {
        thread::sleep(Duration::from_millis(50));
    }
    let writes = |syncing: &io::Result<Syncing>| syncing.as_ref().is_ok_and(|s| !s.is_over());
    if syncing.iter().any(writes) {
        tracing::warn!("closing although the kernel still writes");
    }
}
