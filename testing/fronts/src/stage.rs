//! A volume in this process, mounted at several places and embedded.

use crate::leased::Leaser;
use crate::view;
use siftfs::Volume;
use siftfs_fuse::{Front, FuseMount, MountOptions, Requests};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, mkfs};
use siftfs_proto::{Cache, FileService, Opening};
use siftfs_rig::place::{Failed, Place, Result};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
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

/// A volume and its front ends.
pub struct Stage {
    /// Where it is mounted.
    pub dirs: Vec<PathBuf>,
    embedded: Option<Embedded>,
    leaser: Option<Arc<Leaser>>,
    servers: Vec<JoinHandle<io::Result<()>>>,
    place: Place,
}

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
        let place = Place::new("siftfs-fronts", 2 << 30, None)?;
        let image = place.path("volume");
        let options = MkfsOptions { size: Some(512 << 20), ..MkfsOptions::default() };
        mkfs(&image, &options, &mut |_, _, _| {}).map_err(said)?;
        // Nothing here depends on how fast a holder is.
        let lease_term = Duration::from_secs(600);
        let options = OpenOptions { lease_term, ..OpenOptions::default() };
        let local = LocalVolume::open(&image, &options, &mut |_, _, _| {}).map_err(said)?;
        let embedded = Embedded::start(Volume::from_local(local).map_err(said)?);
        let leaser = Some(Arc::new(embedded.call(Leaser::start).map_err(said)?));
        let (dirs, servers, embedded) = (Vec::new(), Vec::new(), Some(embedded));
        let mut stage = Self { dirs, embedded, leaser, servers, place };
        for number in 1..=count {
            stage.mount(&format!("m{number}"), requests)?;
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

    /// The program that embeds the volume does something.
    pub fn embed<T: Send + 'static>(&self, act: impl FnOnce(&Volume) -> T + Send + 'static) -> T {
        self.embedded.as_ref().expect("the volume is open").call(act)
    }

    /// The program that embeds the volume does something with leases.
    pub fn lease<T: Send + 'static>(&self, act: impl FnOnce(&Leaser) -> T + Send + 'static) -> T {
        let leaser = self.leaser.clone().expect("the volume is open");
        self.embed(move |_| act(&leaser))
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
            siftfs_fuse::unmount(dir).map_err(said)?;
        }
        for server in self.servers.drain(..) {
            server.join().map_err(|_| Failed("a server panicked".into()))?.map_err(said)?;
        }
        if let Some(leaser) = self.leaser.take().and_then(Arc::into_inner) {
            self.embed(move |_| leaser.end()).map_err(said)?;
        }
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
