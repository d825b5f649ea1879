//! A volume in this process, mounted at several places and embedded.

use crate::cuts::Ways;
use crate::leased::Leaser;
use crate::logs::grants::{Directory, HASTE, Hasty, Lends, grantor};
use crate::view;
use siftfs::Volume;
use siftfs_device::{Device, FileOptions, open_for_service};
use siftfs_fuse::{Front, FuseMount, MountOptions, Requests};
use siftfs_grantor::{Counts, Grantor};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs};
use siftfs_proto::{Cache, FileService, Opening};
use siftfs_rig::place::{Failed, Place, Result};
use siftfs_served::{Setup, Way};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A call of the program that embeds the volume.
type Call = Box<dyn FnOnce(&Volume) + Send>;

/// The program that embeds the volume: a thread, because other threads here have tables of
/// descriptors in which those of the volume are missing.
struct Embedded {
    calls: Sender<Call>,
    thread: JoinHandle<Volume>,
}

impl Embedded {
    fn start(volume: Volume) -> Self {
        let (calls, given) = channel::<Call>();
        let thread = std::thread::spawn(move || {
            given.into_iter().for_each(|call| call(&volume));
            volume
        });
        Self { calls, thread }
    }

    fn call<T: Send + 'static>(&self, act: impl FnOnce(&Volume) -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        let call: Call = Box::new(move |volume| drop(tell.send(act(volume))));
        self.calls.send(call).expect("the thread lives");
        told.recv().expect("the call returns")
    }
}

/// How remote mounts reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// A unix socket, and shared memory.
    Unix,
    /// TCP with keys. The server believes the machine's kernel.
    Keys,
    /// TCP with keys. The server checks each caller.
    Checked,
}

/// Mounts whose sessions go over a wire.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// How many of the mounts these are.
    pub mounts: u32,
    /// How they reach the server.
    pub by: By,
    /// Their ways to it may break.
    pub breaks: bool,
}

impl Remote {
    fn serve(self, local: &LocalVolume) -> Option<Setup> {
        let way = if self.by == By::Unix { Way::Shared } else { Way::Secret };
        // A line with maps has the callers of its kernel checked, also if each user is himself.
        let same = " uids=0:0:100000 gids=0:0:100000";
        let bounds = if self.by == By::Checked { same } else { "" };
        let line = format!("role=client squash=none{bounds}");
        (self.mounts > 0).then(|| Setup::admitting(local, way, &line))
    }
}

/// A volume and its front ends.
pub struct Stage {
    /// Where it is mounted.
    pub dirs: Vec<PathBuf>,
    embedded: Option<Embedded>,
    leaser: Option<Arc<Leaser>>,
    servers: Vec<JoinHandle<io::Result<()>>>,
    /// The server of remote mounts.
    served: Option<Setup>,
    checked: bool,
    /// The ways of remote mounts, if they may break.
    ways: Option<Ways>,
    /// Where programs may have private logs.
    lends: Option<Lends>,
    /// The mounts' grantors.
    grantors: Vec<Arc<Grantor>>,
    place: Place,
}

/// How long the end of a mount waits for what programs have in their logs.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a mount that is busy is unmounted again, and after how long.
const BUSY_LOOKS: u32 = 100;
const BUSY: Duration = Duration::from_millis(50);

/// How often programs' logs are taken in from outside.
const SYNCED_EACH: Duration = Duration::from_millis(400);

pub(crate) fn said(e: impl Display) -> Failed {
    Failed(e.to_string())
}

/// Mounts a volume on `dir`, beside its other front ends. `open` opens the session; the thread ends
/// with the mount.
///
/// # Errors
/// What mount(2) says.
pub fn front_at(
    dir: &Path,
    requests: Requests,
    open: impl FnOnce(Opening, Arc<dyn Cache>) -> siftfs_base::Result<Arc<dyn FileService>>,
) -> Result<JoinHandle<io::Result<()>>> {
    let front = Arc::new(Front::default());
    let service = open(Opening::kernel(), front.clone()).map_err(said)?;
    let options = MountOptions { requests, shared: true, ..MountOptions::default() };
    let mount = FuseMount::new(service, dir, &options).map_err(said)?.with_front(front);
    Ok(std::thread::spawn(move || mount.serve()))
}

/// Serves a mount to its end, and takes in what its programs have published.
fn serve(mount: FuseMount, logs: &Grantor) -> io::Result<()> {
    mount.serve()?;
    if !logs.stop(PATIENCE) {
        return Err(io::Error::other("private logs are not taken in"));
    }
    match logs.counts() {
        Counts { ended: 0, lost: 0, .. } => Ok(()),
        counts => Err(io::Error::other(format!("sessions did not end well: {counts:?}"))),
    }
}

/// Unmounts. The daemon's own look at the place, or the last descriptor of a program that has just
/// ended, makes the mount busy for a moment.
fn unmount(dir: &Path) -> io::Result<()> {
    for _ in 0..BUSY_LOOKS {
        match siftfs_fuse::unmount(dir) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(BUSY),
            other => return other,
        }
    }
    siftfs_fuse::unmount(dir)
}

/// The volume is plain ext4, without a fault.
///
/// # Errors
/// What e2fsck says.
pub fn e2fsck(volume: &Path) -> Result<()> {
    let out = siftfs_rig::place::output("e2fsck", &["-fn", &volume.to_string_lossy()])?;
    match out.status.success() {
        true => Ok(()),
        false => Err(Failed(String::from_utf8_lossy(&out.stdout).into_owned())),
    }
}

impl Stage {
    /// A new volume, mounted `count` times.
    ///
    /// # Errors
    /// What cannot be made or mounted.
    pub fn new(count: u32, requests: Requests) -> Result<Self> {
        Self::with_remote(count, Remote { mounts: 0, by: By::Unix, breaks: false }, requests)
    }

    /// As [`Stage::new`]; the last ones of the mounts have their sessions over a wire, as `siftfs
    /// mount ADDRESS DIR` has. The process that serves them has the volume open, and the other
    /// mounts.
    ///
    /// # Errors
    /// As there.
    pub fn with_remote(count: u32, remote: Remote, requests: Requests) -> Result<Self> {
        let (place, image) = Self::place()?;
        // Nothing here depends on how fast a holder is.
        let lease_term = Duration::from_secs(600);
        let options = OpenOptions { lease_term, ..OpenOptions::default() };
        let local = LocalVolume::open(&image, &options, &mut |_, _, _| {}).map_err(said)?;
        let served = remote.serve(&local);
        let mut stage = Self::of(place, local, None, (count - remote.mounts.min(count), requests))?;
        (stage.served, stage.checked) = (served, remote.by == By::Checked);
        stage.ways = remote.breaks.then(Ways::default);
        for number in stage.dirs.len() + 1..=count as usize {
            stage.mount_remote(&format!("m{number}"), requests, remote.by)?;
        }
        Ok(stage)
    }

    /// As [`Stage::new`], with mounts on which programs may have private logs. One alone is not
    /// shared.
    ///
    /// # Errors
    /// As there.
    pub fn with_logs(count: u32, requests: Requests) -> Result<Self> {
        let (place, image) = Self::place()?;
        let lease_term = Duration::from_secs(600 * HASTE);
        let options = OpenOptions { lease_term, ..OpenOptions::default() };
        let device = open_for_service(&image, FileOptions::default()).map_err(said)?;
        let device: Arc<dyn Device> = Arc::new(device);
        let clock = Arc::new(Hasty::default());
        let local = LocalVolume::open_on(device, clock, &options, Threads::Real).map_err(said)?;
        let logs = Arc::new(Directory::new(local.private_logs())?);
        let lends = Some(Lends { sessions: Arc::new(local.sessions()), logs });
        Self::of(place, local, lends, (count, requests))
    }

    fn place() -> Result<(Place, PathBuf)> {
        let place = Place::new("siftfs-fronts", 2 << 30, None)?;
        let image = place.path("volume");
        let options = MkfsOptions { size: Some(512 << 20), ..MkfsOptions::default() };
        mkfs(&image, &options, &mut |_, _, _| {}).map_err(said)?;
        Ok((place, image))
    }

    fn of(
        place: Place,
        local: LocalVolume,
        lends: Option<Lends>,
        (count, requests): (u32, Requests),
    ) -> Result<Self> {
        let embedded = Embedded::start(Volume::from_local(local).map_err(said)?);
        let leaser = Some(Arc::new(embedded.call(Leaser::start).map_err(said)?));
        let (dirs, servers, embedded) = (Vec::new(), Vec::new(), Some(embedded));
        let (grantors, served, checked, ways) = (Vec::new(), None, false, None);
        let mut stage =
            Self { dirs, embedded, leaser, servers, served, checked, ways, lends, grantors, place };
        for number in 1..=count {
            let name = format!("m{number}");
            match stage.lends.clone() {
                None => stage.mount(&name, requests)?,
                Some(lends) => stage.lend(&name, (requests, count > 1), lends)?,
            }
        }
        Ok(stage)
    }

    /// Mounts the volume once more.
    ///
    /// # Errors
    /// What mount(2) says.
    pub fn mount(&mut self, name: &str, requests: Requests) -> Result<()> {
        let dir = self.place.mount_point(name)?.canonicalize().map_err(said)?;
        let server = front_at(&dir, requests, |opening, cache| {
            self.embed(move |volume| volume.front(opening, cache))
        })?;
        self.servers.push(server);
        self.dirs.push(dir);
        Ok(())
    }

    /// Mounts the volume once more, by a session over a wire.
    fn mount_remote(&mut self, name: &str, requests: Requests, by: By) -> Result<()> {
        let dir = self.place.mount_point(name)?.canonicalize().map_err(said)?;
        let served = self.served.as_ref().expect("remote mounts have a server");
        let address = match &mut self.ways {
            None => served.address.clone(),
            Some(ways) => ways.lead(&served.address.to_string()).parse().map_err(said)?,
        };
        let server = front_at(&dir, requests, |_, cache| {
            let session = Arc::new(served.lasting_by(&address, cache)?);
            assert_eq!(session.checks(), by == By::Checked, "the line was read as another one");
            Ok(match session.checks() {
                true => siftfs_fuse::vouching(session),
                false => session,
            })
        })?;
        self.servers.push(server);
        self.dirs.push(dir);
        Ok(())
    }

    /// As [`Stage::mount`], for programs with private logs.
    fn lend(
        &mut self,
        name: &str,
        (requests, shared): (Requests, bool),
        lends: Lends,
    ) -> Result<()> {
        let dir = self.place.mount_point(name)?.canonicalize().map_err(said)?;
        let front = Arc::new(Front::default());
        let service = lends.sessions.front(Opening::kernel(), front.clone()).map_err(said)?;
        let options = MountOptions { requests, shared, private_logs: true, ..Default::default() };
        let mount = FuseMount::new(service, &dir, &options).map_err(said)?.with_front(front);
        let socket = self.place.path(&format!("{name}.logs"));
        let logs = Arc::new(grantor(lends, &mount.tokens(), &socket)?);
        self.grantors.push(logs.clone());
        self.servers.push(std::thread::spawn(move || serve(mount, &logs)));
        self.dirs.push(dir);
        Ok(())
    }

    /// The server checks the callers of remote mounts: none has a capability there.
    #[must_use]
    pub fn checks_callers(&self) -> bool {
        self.checked
    }

    /// The program that embeds the volume does something.
    pub fn embed<T: Send + 'static>(&self, act: impl FnOnce(&Volume) -> T + Send + 'static) -> T {
        self.embedded.as_ref().expect("the volume is open").call(act)
    }

    /// The program that embeds the volume does something with leases.
    pub fn lease<T: Send + 'static>(&self, act: impl FnOnce(&Leaser) -> T + Send + 'static) -> T {
        let leaser = self.leaser.clone().expect("the volume is open");
        self.embed(move |_| act(&leaser))
    }

    /// Breaks the ways of remote mounts, if they may, again and again while `act` goes on.
    pub fn while_breaking<T>(&self, seed: u64, act: impl FnOnce() -> T) -> T {
        match &self.ways {
            Some(ways) => ways.while_breaking(seed, act),
            None => act(),
        }
    }

    /// May the ways of remote mounts break?
    #[must_use]
    pub fn may_break(&self) -> bool {
        self.ways.is_some()
    }

    /// How often one of them was broken.
    #[must_use]
    pub fn breaks(&self) -> u64 {
        self.ways.as_ref().map_or(0, Ways::broken)
    }

    /// Does what `siftfs sync` does to the programs of a mount, again and again, while `act` goes
    /// on.
    pub fn while_synced<T>(&self, act: impl FnOnce() -> T) -> T {
        let (ends, ended) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(SYNCED_EACH) == Err(RecvTimeoutError::Timeout) {
                    self.grantors.iter().for_each(|logs| logs.ingest());
                }
            });
            let done = act();
            drop(ends);
            done
        })
    }

    /// A path beside the mounts, on the file system that has the volume.
    #[must_use]
    pub fn beside(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    /// All front ends show the same.
    ///
    /// # Errors
    /// What differs.
    pub fn agree(&self) -> std::result::Result<(), String> {
        let wanted = self.embed(view::of_volume).map_err(|e| e.to_string())?;
        for (at, dir) in self.dirs.iter().enumerate() {
            let (view, times) = view::of_directory(dir).map_err(|e| e.to_string())?;
            if let Some(other) = view::difference(&wanted.0, &view) {
                return Err(format!("m{at}: {other}"));
            }
            if times != wanted.1 {
                return Err(format!("m{at}: times {times:?} instead of {:?}", wanted.1));
            }
        }
        Ok(())
    }

    /// Unmounts all, closes the volume, and has it checked.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn end(mut self) -> Result<()> {
        for dir in &self.dirs {
            unmount(dir).map_err(said)?;
        }
        for server in self.servers.drain(..) {
            server.join().map_err(|_| Failed("a server panicked".into()))?.map_err(said)?;
        }
        if let Some(counts) = self.served.take().map(|served| served.server.counts())
            && (counts.calls == 0 || counts.ended > 0)
        {
            return Err(Failed(format!("sessions of remote mounts did not end well: {counts:?}")));
        }
        if let Some(leaser) = self.leaser.take().and_then(Arc::into_inner) {
            self.embed(move |_| leaser.end()).map_err(said)?;
        }
        if self.lends.take().is_some_and(|lends| lends.logs.made() == 0) {
            return Err(Failed("no program had a file log".into()));
        }
        self.grantors.clear();
        let Some(Embedded { calls, thread }) = self.embedded.take() else { return Ok(()) };
        drop(calls);
        let volume = thread.join().map_err(|_| Failed("the embedding program panicked".into()))?;
        volume.close().map_err(said)?;
        e2fsck(&self.place.path("volume"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for dir in &self.dirs {
            let _ = siftfs_fuse::detach(dir);
        }
    }
}
