//! The process that serves a mount, from opening the volume to closing it.

use crate::daemon::allocator::one_heap;
use crate::daemon::control_server::{ControlServer, Info};
use crate::daemon::limits;
use crate::daemon::memory::Arranged;
use crate::daemon::metrics_server::{self, Address, Listener};
use crate::daemon::settings::Settings;
use crate::daemon::utab;
use crate::options::parsed::Options;
use crate::show::failure::{Failure, Outcome};
use siftfs_fuse::{
    FuseMount, Gate, MountEntry, MountOptions, Syncing, apart, detach, mounts_of, top_mount,
    unmount,
};
use siftfs_placement::LocalVolume;
use siftfs_proto::Opening;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXCPU};
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
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
    /// The volume, absolute.
    pub volume: PathBuf,
    /// Where to mount the volume, absolute, without links.
    pub dir: PathBuf,
    /// Options.
    pub options: Options,
    /// The options as they were given.
    pub shown: String,
    /// How this process stands to the kernel's memory.
    pub memory: Arranged,
}

/// Why the daemon stops serving.
enum End {
    /// The mount is gone.
    Served(io::Result<()>),
    /// A signal asked for it and the grace time is over.
    Forced,
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
        let metrics = self.options.daemon.metrics.as_ref().map(listen).transpose()?;
        let mut progress = |what: &str, done, total| report.progress(what, done, total);
        let volume = LocalVolume::open(&self.volume, &self.options.open, &mut progress)
            .map_err(|e| about(&e))?;
        if let Some(place) = volume.volatile_place() {
            report.volatile(&place);
        }
        limits::check_files(volume.log_path())?;
        if let Some(text) = &self.memory.warning {
            tracing::warn!("{text}");
            report.warning(&self.volume, text);
        }
        let gate = Gate::default();
        let started = self.start(&gate, &volume);
        let (mount, control) = match started {
            Ok(started) => started,
            Err(failure) => {
                gate.close();
                volume.close().map_err(|e| about(&e))?;
                return Err(failure);
            }
        };
        let (tx, rx) = channel();
        Self::watch_signals(signals, mount.entry().clone(), tx.clone());
        let server = thread::Builder::new().name("siftfs-serve".into());
        let served = server.spawn(move || tx.send(End::Served(mount.serve())));
        if let Some(metrics) = &metrics {
            serve_metrics(metrics, &control);
        }
        // umount(8) is told to wait for as long as there is something to wait for.
        let line = utab::Line::write(&self.volume, &self.dir);
        let result = match served {
            Ok(_) => {
                report.ready();
                tracing::info!(volume = %self.volume.display(), dir = %self.dir.display(), "mounted");
                self.wait(&rx)
            }
            Err(e) => {
                self.detach();
                Err(Failure::plain(e))
            }
        };
        control.gone();
        gate.close();
        let closed = volume.close().map_err(|e| {
            let hint = "run `siftfs recover` on it, or mount it again";
            Failure::about(&self.volume, format!("{e}; the volume was not closed: {hint}"))
        });
        let result = closed.and(result);
        drop(line);
        if let Err(f) = &result {
            tracing::error!(error = f.message, "ended");
        }
        control.finish(result.as_ref().map(|_| ()).map_err(|f| f.message.clone()));
        result.map(|()| 0)
    }

    fn start(
        &self,
        gate: &Gate,
        open: &LocalVolume,
    ) -> Result<(FuseMount, ControlServer), Failure> {
        let options = MountOptions { source: self.volume.clone(), ..self.options.mount.clone() };
        let session = open.session(Opening::kernel()).map_err(Failure::plain)?;
        let mount =
            FuseMount::new(gate.before(session), &self.dir, &options).map_err(Failure::plain)?;
        signal_hook::flag::register(SIGXCPU, mount.overtime()).map_err(Failure::plain)?;
        let settings = Settings::new(
            self.options.clone(),
            self.shown.clone(),
            open.remounter(),
            (mount.write_back(), mount.operations()),
        );
        let settings = Arc::new(settings);
        let shown = settings.clone();
        let info = Info {
            volume: self.volume.clone(),
            log: open.log_path().map(Path::to_path_buf),
            dir: self.dir.clone(),
            options: Box::new(move || shown.shown()),
            remount: Box::new(move |change| settings.change(change)),
            started: Instant::now(),
            warnings: self.memory.warning.iter().cloned().collect(),
            backlog: Box::new(open.backlog()),
            waiting: Box::new(open.waiting()),
        };
        match ControlServer::start(&mount, gate.before(open.endpoint()), info) {
            Ok(control) => Ok((mount, control)),
            Err(e) => {
                self.detach();
                Err(Failure::plain(format!("cannot listen for commands: {e}")))
            }
        }
    }

    fn detach(&self) {
        let _ = leave_apart(&self.dir, detach);
    }

    fn wait(&self, ends: &Receiver<End>) -> Result<(), Failure> {
        match ends.recv() {
            Ok(End::Served(Ok(())) | End::Forced) => Ok(()),
            Ok(End::Served(Err(e))) => {
                self.detach();
                Err(Failure::about(&self.dir, format!("the kernel's requests ended: {e}")))
            }
            Err(_) => Err(Failure::about(&self.dir, "the serving thread ended without a word")),
        }
    }

    /// SIGTERM, SIGINT and SIGHUP unmount; if the mount is in use it is detached, what the
    /// kernel still holds is written, and after a grace time the volume is closed all the same.
    fn watch_signals(mut signals: Signals, entry: MountEntry, tx: Sender<End>) {
        let watch = move || {
            for signal in signals.forever() {
                tracing::info!(signal, "asked to end");
                let mut busy = places_of(&entry);
                busy.retain(|dir| leave_apart(dir, unmount).is_err());
                // What is detached already, covered, or mounted in another namespace too: only
                // force is left.
                if busy.is_empty() {
                    thread::sleep(GRACE)
                } else {
                    leave(&entry, &busy)
                }
                if tx.send(End::Forced).is_err() {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("siftfs-signals".into()).spawn(watch);
        if let Err(error) = started {
            tracing::error!(%error, "no thread for signals; use `siftfs umount`");
        }
    }
}

fn listen(address: &Address) -> Result<Listener, Failure> {
    let what = |e| Failure::plain(format!("cannot serve metrics at {address}: {e}"));
    address.listen().map_err(what)
}

fn serve_metrics(listener: &Listener, control: &ControlServer) {
    if let Err(error) = metrics_server::serve(listener, Arc::new(control.status())) {
        tracing::error!(%error, "no thread for metrics");
    }
}

/// Where our file system is mounted now and can be reached, the newest mount first. Since the mount
/// was made, a program may have moved it, bound it elsewhere, covered it, or put another mount in
/// its place, even one with the same device number.
fn places_of(entry: &MountEntry) -> Vec<PathBuf> {
    let mut mounts = mounts_of(entry).unwrap_or_default();
    mounts.retain(|m| top_mount(&m.mount_point).is_ok_and(|top| top.is_some_and(|t| t.id == m.id)));
    mounts.into_iter().rev().map(|m| m.mount_point).collect()
}

/// Takes a mount away. The kernel may wait for requests that this process answers, and a thread
/// that waits must keep nothing of it.
fn leave_apart(dir: &Path, how: fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let dir = dir.to_path_buf();
    apart(move || how(&dir))
}

/// Detaches mounts in use. Pages dirtied through shared mappings are still in the kernel, which
/// sends them to us only when it is asked to.
fn leave(entry: &MountEntry, dirs: &[PathBuf]) {
    let syncing = Syncing::start(entry);
    for dir in dirs {
        if let Err(error) = leave_apart(dir, detach) {
            tracing::error!(%error, dir = %dir.display(), "cannot detach");
        }
    }
    let start = Instant::now();
    while start.elapsed() < GRACE {
        thread::sleep(Duration::from_millis(50));
    }
    if syncing.is_ok_and(|syncing| !syncing.is_over()) {
        tracing::warn!("closing although the kernel still writes");
    }
}
