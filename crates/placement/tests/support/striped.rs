//! A striped volume on files, and a target that serves it.

// Each test program uses a part of it.
#![allow(dead_code)]

use siftfs_device_target::TargetPlace;
use siftfs_placement::{
    Access, Address, Listener, LocalVolume, MkfsOptions, OpenOptions, OpenStorage, Server,
    ServerOptions, StripePlace, TransportOptions, mkfs, open_media_for_host,
};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub const UNIT: u64 = 64 << 10;
const BEGIN: u64 = 1 << 20;

/// The members `m0`, `m1` and on, and the log, in a folder of their own.
pub struct Set {
    pub dir: tempfile::TempDir,
    pub members: Vec<PathBuf>,
}

impl Set {
    /// Files that are not there yet.
    pub fn named(count: usize) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let members = (0..count).map(|n| dir.path().join(format!("m{n}"))).collect();
        Self { dir, members }
    }

    /// A volume of this size.
    pub fn made(count: usize, size: u64) -> Self {
        let set = Self::named(count);
        mkfs(&set.name(), &set.options(size), &mut |_, _, _| {}).expect("mkfs");
        set
    }

    pub fn options(&self, size: u64) -> MkfsOptions {
        MkfsOptions {
            size: Some(size),
            log: Some(self.log()),
            log_size: Some(8 << 20),
            stripe_unit: Some(UNIT),
            lanes: 1,
            ..MkfsOptions::default()
        }
    }

    /// Its log is found by itself: it has the first member's name.
    pub fn log(&self) -> PathBuf {
        self.dir.path().join("m0.log")
    }

    pub fn name(&self) -> PathBuf {
        StripePlace::new(self.members.clone()).name()
    }

    pub fn open(&self) -> siftfs_base::Result<LocalVolume> {
        LocalVolume::open(&self.name(), &OpenOptions::default(), &mut |_, _, _| {})
    }

    /// The area in one file, put together unit by unit.
    pub fn whole(&self) -> tempfile::NamedTempFile {
        let whole = tempfile::NamedTempFile::new().expect("a file");
        let len = self.members[0].metadata().expect("a member").len() - BEGIN;
        let files: Vec<_> =
            self.members.iter().map(|path| std::fs::File::open(path).expect("a member")).collect();
        let mut unit = vec![0; UNIT as usize];
        for turn in 0..len / UNIT {
            for (at, file) in (0u64..).zip(&files) {
                file.read_exact_at(&mut unit, BEGIN + turn * UNIT).expect("a unit");
                let place = (turn * files.len() as u64 + at) * UNIT;
                whole.as_file().write_all_at(&unit, place).expect("room");
            }
        }
        whole
    }

    /// `e2fsck -fn` on the area: nothing but pass lines and summary.
    pub fn e2fsck(&self) {
        e2fsck(self.whole().path());
    }
}

/// `e2fsck -fn`: nothing but pass lines and summary.
pub fn e2fsck(path: &Path) {
    let out = Command::new("e2fsck").arg("-fn").arg(path).output().expect("e2fsck");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}");
    for line in text.lines().filter(|line| !line.is_empty()) {
        assert!(line.starts_with("Pass ") || line.contains("files ("), "{text}");
    }
}

/// A process that serves the volume, as `siftfs device stripe:...` does.
pub struct Serving {
    pub place: TargetPlace,
    server: Arc<Server>,
    ending: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Serving {
    pub fn start(set: &Set) -> Self {
        let opts = OpenOptions { log: Some(set.log()), ..OpenOptions::default() };
        opts.waits.begin();
        let (name, waits) = (set.name(), opts.waits.clone());
        let storage: OpenStorage = {
            let (name, opts) = (name.clone(), opts.clone());
            Arc::new(move |access| open_media_for_host(&name, &opts, access))
        };
        let (names, storage) = (vec!["m0".into()], Some(storage));
        let options = ServerOptions { names, storage, waits, ..ServerOptions::default() };
        let open = Box::new(move || open_media_for_host(&name, &opts, Access::Shared));
        let server = Arc::new(Server::new(open, options));
        let address = Address::Unix(set.dir.path().join("target.sock"));
        let listener = Listener::bind(&address, &TransportOptions::default()).expect("a listener");
        let ending = Arc::new(AtomicBool::new(false));
        let accepting = Some(accept(listener, server.clone(), ending.clone()));
        let options = TransportOptions::default();
        let place = TargetPlace { address, volume: "m0".into(), options, secured: None };
        Self { place, server, ending, accepting }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.stop();
        self.ending.store(true, Ordering::SeqCst);
        self.accepting.take().map(JoinHandle::join);
    }
}

fn accept(listener: Listener, server: Arc<Server>, ending: Arc<AtomicBool>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut sessions = Vec::new();
        while !ending.load(Ordering::SeqCst) {
            if let Ok(Some(end)) = listener.accept(Some(Duration::from_millis(10))) {
                let server = server.clone();
                sessions.push(thread::spawn(move || server.session(end)));
            }
        }
        sessions.into_iter().for_each(|session| drop(session.join()));
    })
}
