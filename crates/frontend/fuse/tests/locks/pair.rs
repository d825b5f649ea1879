//! Two mounts of one volume.

use crate::puppet::PATIENCE;
use crate::rings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use siftfs_base::SystemClock;
use siftfs_device::MemDevice;
use siftfs_fuse::{
    Front, FuseMount, Gate, MountEntry, MountOptions, Requests, Traffic, abort, unmount,
};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::{Credentials, FileService, Opening, Reply, Request};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How requests may come here.
pub fn loops() -> Vec<Requests> {
    match rings::has_rings() {
        true => vec![Requests::Device, Requests::Ring],
        false => vec![Requests::Device],
    }
}

/// A volume that is mounted twice.
pub struct Pair {
    pub mounts: [Mount; 2],
    volume: Option<LocalVolume>,
    gate: Gate,
}

/// One of its mounts.
pub struct Mount {
    dir: tempfile::TempDir,
    entry: MountEntry,
    traffic: Traffic,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl Mount {
    /// A file of the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How many requests of this kind have come.
    pub fn count(&self, kind: &str) -> u64 {
        self.traffic.by_name().get(kind).copied().unwrap_or(0)
    }

    /// Returns when nothing is under way but this many requests. A file's RELEASE is, for a moment
    /// after its close(2).
    pub fn settle(&self, waits: usize) {
        let place = format!("/sys/fs/fuse/connections/{}/waiting", self.entry.minor);
        let begin = Instant::now();
        loop {
            let text = std::fs::read_to_string(&place).expect("the kernel counts requests");
            if text.trim().parse() == Ok(waits) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{} requests, not {waits}", text.trim());
            sleep(Duration::from_millis(1));
        }
    }

    /// Ends the connection, whatever is under way.
    pub fn abort(&mut self) {
        abort(&self.entry).expect("root can end it");
        let _ = siftfs_fuse::detach(self.dir.path());
        self.join();
    }

    fn join(&mut self) {
        if let Some(server) = self.server.take() {
            let begin = Instant::now();
            while !server.is_finished() {
                assert!(begin.elapsed() < PATIENCE, "the mount's threads end with it");
                sleep(Duration::from_millis(1));
            }
            server.join().expect("no panic").expect("it was served to its end");
        }
    }

    /// umount(2). The files of a program that has ended may be open for a moment.
    pub fn unmount(&mut self) {
        let begin = Instant::now();
        while let Err(e) = unmount(self.dir.path()) {
            let busy = e.raw_os_error() == Some(libc::EBUSY);
            assert!(busy && begin.elapsed() < PATIENCE, "{e}");
            sleep(Duration::from_millis(20));
        }
        self.join();
    }
}

fn session(volume: &LocalVolume, gate: &Gate, front: &Arc<Front>) -> Arc<dyn FileService> {
    gate.before(volume.front(Opening::kernel(), front.clone()).expect("a session"))
}

impl Pair {
    pub fn new(requests: Requests) -> Self {
        // A ring that waits has a descriptor.
        let most = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("allowed");
        let device = Arc::new(MemDevice::new(64 << 20));
        let made = MkfsOptions { log_size: Some(16 << 20), ..MkfsOptions::default() };
        mkfs_on(device.clone(), &made).expect("mkfs");
        let (clock, options) = (Arc::new(SystemClock::default()), OpenOptions::default());
        let volume = LocalVolume::open_on(device, clock, &options, Threads::Real).expect("open");
        let gate = Gate::default();
        let mounts = [(); 2].map(|()| {
            let dir = tempfile::tempdir().expect("a directory");
            let front = Arc::new(Front::default());
            let session = session(&volume, &gate, &front);
            let options = MountOptions { requests, shared: true, ..MountOptions::default() };
            let make = || FuseMount::new(session.clone(), dir.path(), &options);
            let mount = rings::offering(requests != Requests::Device, make)
                .expect("these tests need root and /dev/fuse")
                .with_front(front);
            let (entry, traffic) = (mount.entry().clone(), mount.traffic());
            let server = Some(std::thread::spawn(move || mount.serve()));
            Mount { dir, entry, traffic, server }
        });
        Self { mounts, volume: Some(volume), gate }
    }

    /// Returns when this many requests wait for locks. A program sleeps a moment before the daemon
    /// has its wait.
    pub fn until_wait(&self, waits: u64) {
        let volume = self.volume.as_ref().expect("it is open");
        let begin = Instant::now();
        loop {
            let status = volume.endpoint().call(&Credentials::default(), Request::Status);
            let waiting = status.and_then(Reply::status).expect("a status").operations.lock_waits;
            if waiting == waits {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{waiting} wait, not {waits}");
            sleep(Duration::from_millis(1));
        }
    }

    /// One more session of a kernel.
    pub fn session(&self) -> Arc<dyn FileService> {
        session(self.volume.as_ref().expect("it is open"), &self.gate, &Arc::default())
    }

    /// Runs `act` on two mounts by each request loop, and ends them.
    pub fn each(act: impl Fn(&mut Self)) {
        loops().into_iter().for_each(|requests| Self::by(requests, &act));
    }

    /// The same by one of them.
    pub fn by(requests: Requests, act: impl FnOnce(&mut Self)) {
        let mut pair = Self::new(requests);
        act(&mut pair);
        pair.end();
    }

    /// Unmounts, closes the volume, and finds no fault with it.
    pub fn end(mut self) {
        self.mounts.iter_mut().filter(|mount| mount.server.is_some()).for_each(Mount::unmount);
        self.gate.close();
        self.volume.take().expect("it is open").close().expect("close");
    }
}

impl Drop for Pair {
    /// A test that has failed leaves no mount behind, and no program that waits for one.
    fn drop(&mut self) {
        for mount in self.mounts.iter().filter(|mount| mount.server.is_some()) {
            let _ = abort(&mount.entry);
            let _ = siftfs_fuse::detach(mount.dir.path());
        }
    }
}
