//! A target, a host without storage of its own, and sessions, for tests of direct files.

// Each test file uses a part of it.
#![allow(dead_code)]

#[path = "../../../../placement/tests/at_target/machine.rs"]
pub mod machine;

use machine::Machine;
use siftfs_base::{InodeNr, Rng};
use siftfs_device::{Device, FaultDevice};
use siftfs_device_target::TargetPlace;
use siftfs_direct::{DirectFile, Session};
use siftfs_placement::{
    Dial, LocalVolume, MkfsOptions, OpenOptions, ServicePlace, TransportOptions, mkfs_on,
};
use siftfs_proto::compound::Access;
use siftfs_proto::*;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A new volume on a disk of this size.
pub fn volume(size: u64) -> FaultDevice {
    volume_with(size, None)
}

/// A new volume, perhaps with a redo lane of these bytes.
pub fn volume_with(size: u64, redo_lane: Option<u64>) -> FaultDevice {
    let disk = Arc::new(FaultDevice::new(size, 1));
    let any: Arc<dyn Device> = disk.clone();
    let log_size = Some(6 << 20);
    let opts = MkfsOptions { log_size, lanes: 1, redo_lane, ..MkfsOptions::default() };
    mkfs_on(any, &opts).expect("mkfs");
    FaultDevice::from_image(disk.contents(), 1)
}

/// A host without storage of its own; its Service is in the target.
pub fn host(machine: &Machine) -> LocalVolume {
    let (target, options) = (machine.place(), TransportOptions::default());
    let dial = Dial { address: target.address.clone(), options, secured: None };
    let service = Some(ServicePlace { connector: Arc::new(dial), fallback: None });
    let opts = OpenOptions { target: Some(target), service, ..OpenOptions::default() };
    LocalVolume::open(Path::new("target:test"), &opts, &mut |_, _, _| {}).unwrap()
}

/// How a program reaches a target that a host names.
pub fn reach(target: &str) -> siftfs_base::Result<TargetPlace> {
    let named = TargetPlace::parse(target).expect("a target").expect("an address");
    let options = TransportOptions::default();
    Ok(TargetPlace { address: named.0, volume: named.1, options, secured: None })
}

pub fn opening() -> Opening {
    Opening::user(0, 0, Rights::all())
}

pub fn session(v: &LocalVolume) -> Session {
    Session::open(Box::new(reach), |holder| v.holder(opening(), holder)).unwrap()
}

pub fn user(v: &LocalVolume) -> Arc<dyn FileService> {
    v.session(Opening::user(0, 0, Rights::all())).unwrap()
}

pub fn ask(session: &Arc<dyn FileService>, req: Request) -> Reply {
    session.call(&Credentials::default(), req).unwrap()
}

/// A new file.
pub fn create(session: &Session, name: &str) -> DirectFile {
    let new = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
    let (attr, handle) = ask(session.service(), new).created().unwrap();
    session.file(handle, attr.ino)
}

pub fn open(session: &Arc<dyn FileService>, name: &str) -> Handle {
    find(session, name).0
}

/// A file, open to read and write it, and its inode.
pub fn find(session: &Arc<dyn FileService>, name: &str) -> (Handle, InodeNr) {
    let found = ask(session, Request::Lookup { parent: ROOT_INO, name: name.into() });
    let ino = found.attr().unwrap().ino;
    (ask(session, Request::open(ino, Access::Both)).opened().unwrap(), ino)
}

/// Returns when something of the file is granted.
pub fn until_direct(file: &DirectFile) {
    let begun = Instant::now();
    while !file.is_direct() {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is granted");
        thread::sleep(Duration::from_millis(5));
    }
}

/// All bytes of a file, as another user reads them.
pub fn all(session: &Arc<dyn FileService>, handle: Handle) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let (file, offset) = (handle.into(), bytes.len() as u64);
        let read = ask(session, Request::Read { file, offset, len: 1 << 16 });
        match read.data().unwrap() {
            more if more.is_empty() => return bytes,
            more => bytes.extend(more),
        }
    }
}

pub fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.below(256) as u8).collect()
}
