//! A patient session: a file's first calls go by the host, and ask for nothing.

#[path = "support/mod.rs"]
mod support;

use siftfs_base::Error;
use siftfs_direct::{DirectFile, PATIENCE, Session};
use siftfs_placement::LocalVolume;
use siftfs_proto::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::machine::{Machine, Way};
use support::{create, host, opening, reach, until_direct, volume};

/// Counts what is asked of the host for the sake of the target.
struct Asking {
    inner: Arc<dyn FileService>,
    asked: Arc<AtomicU64>,
}

impl FileService for Asking {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply, Error> {
        let asks = matches!(
            req,
            Request::Lease { .. } | Request::LeaseDirect { .. } | Request::ReadDirect { .. }
        );
        self.asked.fetch_add(u64::from(asks), Ordering::Relaxed);
        self.inner.call(cred, req)
    }
}

fn patient(v: &LocalVolume) -> (Session, Arc<AtomicU64>) {
    let asked = Arc::<AtomicU64>::default();
    let counts = asked.clone();
    let session = Session::open(Box::new(reach), |holder| {
        let inner = v.holder(opening(), holder)?;
        Ok(Arc::new(Asking { inner, asked: counts }) as Arc<dyn FileService>)
    });
    (session.unwrap().patient(), asked)
}

fn to_read(session: &Session, name: &str) -> DirectFile {
    let (handle, ino) = support::find(session.service(), name);
    session.file_to_read(handle, ino)
}

/// Calls of every kind count: none of the first few asks, and the next one does.
#[test]
fn the_first_calls_of_a_file_ask_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (program, asked) = patient(&v);
    let asked = || asked.load(Ordering::Relaxed);
    let file = create(&program, "f");
    file.write_at(0, &[1; 8192]).unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.read_at(0, 4096).unwrap(), [1; 4096]);
    assert_eq!(file.len().unwrap(), 8192);
    file.write_durable_at(4096, &[2; 4096]).unwrap();
    assert_eq!(asked(), 0, "four calls and a size");
    assert_eq!(PATIENCE, 4, "the calls above");
    assert_eq!(file.read_at(4096, 4096).unwrap(), [2; 4096]);
    assert!(asked() > 0, "the fifth asks");
    until_direct(&file);
    file.write_durable_at(0, &[3; 4096]).unwrap();
    assert_eq!(file.read_at(0, 8192).unwrap(), [[3; 4096], [2; 4096]].concat());
    drop(file);
    v.close().unwrap();
}

/// A file that moves much asks sooner. An atomic write and [`DirectFile::is_direct`] ask at once.
#[test]
fn large_calls_and_those_in_need_of_a_grant_ask_sooner() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let (program, asked) = patient(&v);
    let asked = || asked.load(Ordering::Relaxed);
    let file = create(&program, "large");
    file.write_at(0, &[1; 256 << 10]).unwrap();
    assert_eq!(asked(), 0);
    file.write_at(0, &[2; 4096]).unwrap();
    let first = asked();
    assert!(first > 0, "256 KiB are worth a grant");
    file.sync_data().unwrap();
    drop(file);
    let reader = to_read(&program, "large");
    assert_eq!(reader.read_at(0, 4096).unwrap(), [2; 4096]);
    assert_eq!(asked(), first, "one read");
    until_direct(&reader);
    assert!(asked() > first, "it was asked whether it is direct");
    drop(reader);
    let whole = create(&program, "whole");
    let before = asked();
    let mut section = whole.atomic_start();
    section.write_at(0, &[4; 4096]).unwrap();
    section.commit().unwrap();
    assert!(asked() > before, "the lane is for what is granted");
    assert_eq!(whole.read_at(0, 4096).unwrap(), [4; 4096]);
    drop(whole);
    v.close().unwrap();
}
