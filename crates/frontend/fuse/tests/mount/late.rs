//! A kernel that owns the times is told late of a ctime that chattr(1) moved.

use crate::support::Mem;
use rustix::fs::IFlags;
use siftfs_base::Result;
use siftfs_fuse::{FuseMount, MountOptions, WriteCache};
use siftfs_proto::{Credentials, FileService, Reply, Request, SetAttr};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// More than a tick of the clock by which the kernel stamps files.
const TICK: Duration = Duration::from_millis(12);

/// Files in memory, whose server asks late for the times that it is to tell.
struct Service {
    mem: Mem,
    /// When it may ask; said once.
    go: Mutex<Option<mpsc::Receiver<()>>>,
}

impl FileService for Service {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        match req {
            Request::SetFlags { file, .. } => {
                let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
                self.mem.call(cred, Request::SetAttr { file, set, times: true })?;
                Ok(Reply::Done)
            }
            Request::GetAttr { .. } if is_telling() => {
                if let Some(go) = self.go.lock().unwrap().take() {
                    let _ = go.recv_timeout(Duration::from_secs(60));
                }
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

/// The ctime that a program sees once it has renamed the file, and when the kernel was told.
fn program(dir: &Path, go: mpsc::Sender<()>) -> [(i64, i64); 2] {
    // SAFETY: the thread has no descriptor yet: what is closed are copies.
    unsafe {
        rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES).unwrap();
        assert_eq!(libc::close_range(3, libc::c_uint::MAX, 0), 0);
    }
    let file = File::create(dir.join("f")).unwrap();
    let ctime = || file.metadata().map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap();
    rustix::fs::ioctl_setflags(&file, IFlags::NODUMP).unwrap();
    std::thread::sleep(TICK);
    std::fs::rename(dir.join("f"), dir.join("g")).unwrap();
    let renamed = ctime();
    std::thread::sleep(TICK);
    go.send(()).unwrap();
    while !is_told() {
        std::thread::sleep(Duration::from_millis(1));
    }
    [renamed, ctime()]
}

#[test]
fn a_ctime_that_is_told_late_moves_no_younger_one() {
    let dir = tempfile::tempdir().unwrap();
    let (go, gone) = mpsc::channel();
    let service = Arc::new(Service { mem: Mem::new(), go: Mutex::new(Some(gone)) });
    let options =
        MountOptions { write_cache: WriteCache::Writeback, threads: 4, ..crate::options() };
    let mount = crate::mounting(|| FuseMount::new(service, dir.path(), &options)).unwrap();
    let server = std::thread::spawn(move || mount.serve());
    let at = dir.path().to_path_buf();
    let program = std::thread::spawn(move || program(&at, go));
    let shown = program.join();
    crate::cases::unmount_patiently(dir.path());
    server.join().unwrap().unwrap();
    let [renamed, told] = shown.unwrap();
    assert_eq!(renamed, told, "nobody has changed it since");
}
