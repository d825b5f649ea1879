//! A kernel that owns the times is told late of a ctime that chattr(1) moved.

use crate::support::Mem;
use rustix::fs::IFlags;
use siftfs_base::{InodeNr, Result};
use siftfs_fuse::{FuseMount, MountOptions, WriteCache};
use siftfs_proto::{Credentials, FileService, Reply, Request, SetAttr};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// More than a tick of the clock by which the kernel stamps files.
const TICK: Duration = Duration::from_millis(12);

/// At what the thread that tells the kernel is kept up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// When it asks for the times that it is to tell.
    Asks,
    /// When it stores those that the kernel has taken.
    Stores,
}

/// Files in memory.
struct Service {
    mem: Mem,
    at: At,
    /// When that thread may go on; said once.
    go: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Service {
    fn keep_up(&self, at: At) {
        if self.at == at
            && is_telling()
            && let Some(go) = self.go.lock().unwrap().take()
        {
            let _ = go.recv_timeout(Duration::from_secs(60));
        }
    }
}

impl FileService for Service {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        match req {
            Request::SetFlags { file, .. } => {
                let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
                self.mem.call(cred, Request::SetAttr { file, set, times: true })?;
                Ok(Reply::Done)
            }
            Request::GetAttr { .. } => {
                self.keep_up(At::Asks);
                self.mem.call(cred, req)
            }
            Request::SetAttr { .. } => {
                self.keep_up(At::Stores);
                self.mem.call(cred, req)
            }
            req => self.mem.call(cred, req),
        }
    }
}

/// Is this the thread that tells the kernel?
fn is_telling() -> bool {
    std::thread::current().name() == Some("siftfs-sizes")
}

/// Is there one still?
fn is_told() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    !tasks.flatten().any(|task| name(task).is_ok_and(|name| name.trim() == "siftfs-sizes"))
}

/// Does something by a thread that has its descriptors for itself.
fn alone<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> std::thread::Result<T> {
    let thread = std::thread::spawn(move || {
        // SAFETY: the thread has no descriptor yet: what is closed are copies.
        unsafe {
            rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES).unwrap();
            assert_eq!(libc::close_range(3, libc::c_uint::MAX, 0), 0);
        }
        body()
    });
    thread.join()
}

type Ctime = (i64, i64);

fn ctime(file: &File) -> Ctime {
    file.metadata().map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap()
}

/// What a program sees on a mount of such files.
fn mounted<T: Send + 'static>(
    at: At,
    program: impl FnOnce(&Path, &Service, mpsc::Sender<()>) -> T + Send + 'static,
) -> T {
    let dir = tempfile::tempdir().unwrap();
    let (go, gone) = mpsc::channel();
    let service = Arc::new(Service { mem: Mem::new(), at, go: Mutex::new(Some(gone)) });
    let options =
        MountOptions { write_cache: WriteCache::Writeback, threads: 4, ..crate::options() };
    let mount = || FuseMount::new(service.clone(), dir.path(), &options);
    let mount = crate::mounting(mount).unwrap();
    let server = std::thread::spawn(move || mount.serve());
    let path = dir.path().to_path_buf();
    let seen = alone(move || program(&path, &service, go));
    crate::cases::unmount_patiently(dir.path());
    server.join().unwrap().unwrap();
    seen.unwrap()
}

#[test]
fn a_ctime_that_is_told_late_moves_no_younger_one() {
    let [renamed, told] = mounted(At::Asks, |dir, _, go| {
        let file = File::create(dir.join("f")).unwrap();
        rustix::fs::ioctl_setflags(&file, IFlags::NODUMP).unwrap();
        std::thread::sleep(TICK);
        std::fs::rename(dir.join("f"), dir.join("g")).unwrap();
        let renamed = ctime(&file);
        std::thread::sleep(TICK);
        go.send(()).unwrap();
        while !is_told() {
            std::thread::sleep(Duration::from_millis(1));
        }
        [renamed, ctime(&file)]
    });
    assert_eq!(renamed, told, "nobody has changed it since");
}

#[test]
fn a_ctime_that_is_shown_is_stored() {
    let (shown, stored) = mounted(At::Stores, |dir, service, go| {
        let file = File::create(dir.join("f")).unwrap();
        let created = ctime(&file);
        std::thread::sleep(TICK);
        rustix::fs::ioctl_setflags(&file, IFlags::NODUMP).unwrap();
        while ctime(&file) == created {
            std::thread::sleep(Duration::from_millis(1));
        }
        let shown = ctime(&file);
        let ino = InodeNr::try_from(file.metadata().unwrap().ino()).unwrap();
        let get = Request::GetAttr { file: ino.into() };
        let stored = service.mem.call(&Credentials::default(), get).and_then(Reply::attr).unwrap();
        go.send(()).unwrap();
        while !is_told() {
            std::thread::sleep(Duration::from_millis(1));
        }
        (shown, (stored.ctime.sec, i64::from(stored.ctime.nsec)))
    });
    assert!(stored >= shown, "{stored:?} is stored, {shown:?} shown");
}
