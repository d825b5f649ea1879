//! Times that a kernel with the writeback cache sends, beside times that a compound sets, in every
//! order that a test can bring about.

use crate::support::Mem;
use siftfs_base::{InodeNr, Result, Timestamp};
use siftfs_fuse::{FuseMount, MountOptions, WriteCache};
use siftfs_proto::compound::{Compounded, NewAttributes, Value};
use siftfs_proto::ioctl::compound::{Compound, File as Named, Step};
use siftfs_proto::{Credentials, FileService, Level, Reply, Request, SessionId, SetAttr, SetTime};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

const SET: Timestamp = Timestamp { sec: 9, nsec: 5 };

/// When the times come that the kernel had before the compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// The compound is carried out and has not returned.
    BeforeItReturns,
    /// The kernel has not heard of it.
    BeforeTheKernelIsTold,
    /// It is being told.
    WhileTheKernelIsTold,
}

/// Files in memory, and a compound that sets the times of the only one.
struct Service {
    mem: Mem,
    comes: Comes,
    file: Mutex<Option<(File, InodeNr)>>,
    /// Questions for attributes since the compound.
    asked: AtomicU32,
    /// The kernel sent no times.
    late: AtomicBool,
    /// Its times have arrived, one way or the other.
    arrived: Mutex<Option<mpsc::Sender<()>>>,
}

impl Service {
    /// The kernel sends its times: close(2) waits until they are answered. Returns when they have
    /// arrived, which `told` says, or wait in the daemon.
    fn close(&self, told: &mpsc::Receiver<()>) {
        let copy = self.file.lock().unwrap().as_ref().unwrap().0.try_clone().unwrap();
        let (begin, begun) = mpsc::channel();
        let closer = std::thread::spawn(move || {
            begin.send(rustix::thread::gettid()).unwrap();
            drop(copy);
        });
        let waits = format!("/proc/self/task/{}/wchan", begun.recv().unwrap().as_raw_nonzero());
        let limit = Instant::now() + Duration::from_secs(60);
        // It waits for an answer, or for times that another close(2) sends (the daemon's threads
        // get copies of this test's descriptors, and close them), or, after that, for the lock that
        // is held while the kernel is told.
        let waits_for = match self.comes {
            Comes::BeforeItReturns => ["request_wait_answer", "inode_wait_for_writeback"],
            _ => ["rwsem", "inode_wait_for_writeback"],
        };
        let waits = || {
            let at = std::fs::read_to_string(&waits).unwrap_or_default();
            waits_for.iter().any(|function| at.contains(function))
        };
        while told.try_recv().is_err() && !closer.is_finished() && !waits() {
            if Instant::now() > limit {
                return self.late.store(true, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn compound(&self, session: SessionId, cred: &Credentials) -> Result<Reply> {
        let ino = {
            let file = self.file.lock().unwrap();
            let (file, ino) = file.as_ref().unwrap();
            // From here on the kernel has a time to send.
            file.write_all_at(b"y", 0).unwrap();
            *ino
        };
        let set = SetAttr { mtime: Some(SetTime::At(SET)), ..SetAttr::default() };
        self.mem.call(session, cred, Request::SetAttr { ino, set })?;
        if self.comes == Comes::BeforeItReturns {
            self.close(&self.listen());
        }
        self.asked.store(1, Ordering::SeqCst);
        let (values, files) = (vec![Value::None], vec![ino]);
        let done = Compounded::Done { values, names: Vec::new(), files, written: Vec::new() };
        Ok(Reply::Compounded(done))
    }

    fn listen(&self) -> mpsc::Receiver<()> {
        let (tell, told) = mpsc::channel();
        *self.arrived.lock().unwrap() = Some(tell);
        told
    }

    fn say(&self) {
        if let Some(tell) = self.arrived.lock().unwrap().take() {
            let _ = tell.send(());
        }
    }
}

impl FileService for Service {
    fn call(&self, session: SessionId, cred: &Credentials, req: Request) -> Result<Reply> {
        match &req {
            Request::Compound(_) => return self.compound(session, cred),
            Request::SetAttr { .. } => {
                let done = self.mem.call(session, cred, req);
                self.say();
                return done;
            }
            Request::GetAttr { .. } if self.asked.load(Ordering::SeqCst) > 0 => {
                match (self.asked.fetch_add(1, Ordering::SeqCst), self.comes) {
                    (1, Comes::BeforeTheKernelIsTold) | (2, Comes::WhileTheKernelIsTold) => {
                        self.close(&self.listen());
                    }
                    _ => self.say(),
                }
            }
            _ => {}
        }
        self.mem.call(session, cred, req)
    }
}

fn set_times(dir: &File, file: &File) {
    let set = NewAttributes { mtime: Some(SetTime::At(SET)), ..NewAttributes::default() };
    let number = u32::try_from(file.as_raw_fd()).unwrap();
    let step = Step::SetAttributes { file: Named::Descriptor(number), set };
    let compound = Compound { steps: vec![(step, false)], level: Level::Visible };
    let (command, mut buffer) = compound.encode(0).unwrap();
    // SAFETY: the buffer is as long as the command says.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), command.into(), buffer.as_mut_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn older_times_of_the_kernel_undo_nothing() {
    use Comes as C;
    for comes in [C::BeforeItReturns, C::BeforeTheKernelIsTold, C::WhileTheKernelIsTold] {
        let dir = tempfile::tempdir().unwrap();
        let service = Arc::new(Service {
            mem: Mem::new(),
            comes,
            file: Mutex::default(),
            asked: AtomicU32::new(0),
            late: AtomicBool::new(false),
            arrived: Mutex::default(),
        });
        let options =
            MountOptions { write_cache: WriteCache::Writeback, threads: 4, ..crate::options() };
        let make = || FuseMount::new(service.clone(), SessionId(1), dir.path(), &options);
        let mount = crate::mounting(make).unwrap();
        let server = std::thread::spawn(move || mount.serve());
        let path = dir.path().join("f");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        file.sync_all().unwrap();
        let ino = InodeNr::try_from(file.metadata().unwrap().ino()).unwrap();
        *service.file.lock().unwrap() = Some((file.try_clone().unwrap(), ino));
        set_times(&File::open(dir.path()).unwrap(), &file);
        let asked = service.asked.swap(0, Ordering::SeqCst);
        let shown = file.metadata().unwrap();
        file.sync_all().unwrap();
        let get = Request::GetAttr { ino };
        let stored = service.mem.call(SessionId(1), &Credentials::default(), get).unwrap();
        // What is changed after that counts.
        file.write_all_at(b"z", 0).unwrap();
        file.sync_all().unwrap();
        let later = file.metadata().unwrap();
        *service.file.lock().unwrap() = None;
        drop(file);
        crate::cases::unmount_patiently(dir.path());
        server.join().unwrap().unwrap();
        // A failure while it was mounted would wait for its own mount.
        assert!(!service.late.load(Ordering::SeqCst), "{comes:?}: the kernel sends no times");
        assert!(asked > 2, "{comes:?}: the kernel was told after {asked} questions");
        assert_eq!((shown.mtime(), shown.mtime_nsec()), (9, 5), "{comes:?}: shown");
        let Reply::Attr(stored) = stored else { panic!("{stored:?}") };
        assert_eq!(stored.mtime, SET, "{comes:?}: stored");
        let change = (stored.ctime.sec, i64::from(stored.ctime.nsec));
        assert_eq!(change, (shown.ctime(), shown.ctime_nsec()), "{comes:?}");
        assert!(later.mtime() > 9, "{comes:?}");
    }
}
