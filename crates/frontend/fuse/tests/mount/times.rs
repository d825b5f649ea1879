//! Times that a kernel with the writeback cache sends, beside times that a compound sets, in every
//! order that a test can bring about.

use crate::support::Mem;
use siftfs_base::{InodeNr, Result, Timestamp};
use siftfs_fuse::{FuseMount, MountOptions, WriteCache};
use siftfs_proto::compound::{Compounded, NewAttributes, Value};
use siftfs_proto::ioctl::compound::{Compound, File as Named, Step};
use siftfs_proto::{Credentials, FileService, Level, Reply, Request, SetAttr, SetTime};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
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

/// What a thread of the program's is to do.
type Job = Box<dyn FnOnce() + Send>;

/// Its file, and where its threads get what they are to do.
type Program = (Arc<File>, InodeNr, mpsc::Sender<Job>);

/// Files in memory, and a compound that sets the times of the only one.
struct Service {
    mem: Mem,
    comes: Comes,
    /// The file, and where its descriptor is one: the daemon's threads get copies of those of
    /// theirs, and close them, which sends times as well.
    program: Mutex<Option<Program>>,
    /// Questions for attributes since the compound.
    asked: AtomicU32,
    /// The kernel was made to send times at one of them.
    closes: AtomicBool,
    /// The kernel sent no times.
    late: AtomicBool,
    /// Its times have arrived, one way or the other.
    arrived: Mutex<Option<mpsc::Sender<()>>>,
}

impl Service {
    /// The kernel sends its times: close(2) waits until they are answered. Returns when they have
    /// arrived, which `told` says, or wait in the daemon.
    fn close(&self, told: &mpsc::Receiver<()>) {
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        // Whatever the kernel sent meanwhile, now it has something to send again, which is older
        // than what it is told. (While it is told it holds the lock that a write wants.)
        let writes = self.comes != Comes::WhileTheKernelIsTold;
        self.run(move |file| {
            if writes {
                file.write_all_at(b"w", 0).unwrap();
            }
            let copy = file.try_clone().unwrap();
            begin.send(rustix::thread::gettid()).unwrap();
            drop(copy);
            let _ = end.send(());
        });
        let patience = Duration::from_secs(60);
        let limit = Instant::now() + patience;
        let Ok(thread) = begun.recv_timeout(patience) else {
            return self.late.store(true, Ordering::SeqCst);
        };
        let waits = format!("/proc/self/task/{}/wchan", thread.as_raw_nonzero());
        // Times that the close(2) of a thread of the daemon's sends are the kernel's as well. After
        // that the lock is waited for that is held while the kernel is told.
        let waits_for = match self.comes {
            Comes::BeforeItReturns => ["request_wait_answer", "inode_wait_for_writeback"],
            _ => ["rwsem", "inode_wait_for_writeback"],
        };
        let waits = || {
            let at = std::fs::read_to_string(&waits).unwrap_or_default();
            waits_for.iter().any(|function| at.contains(function))
        };
        while told.try_recv().is_err() && ended.try_recv().is_err() && !waits() {
            if Instant::now() > limit {
                return self.late.store(true, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn compound(&self, cred: &Credentials) -> Result<Reply> {
        // From here on the kernel has a time to send.
        let (write, written) = mpsc::channel();
        let ino = self.run(move |file| write.send(file.write_all_at(b"y", 0)).unwrap());
        written.recv().unwrap().unwrap();
        let set = SetAttr { mtime: Some(SetTime::At(SET)), ..SetAttr::default() };
        self.mem.call(cred, Request::SetAttr { file: ino.into(), set, times: true })?;
        if self.comes == Comes::BeforeItReturns {
            self.close(&self.listen());
        }
        self.asked.store(1, Ordering::SeqCst);
        let (values, files) = (vec![Value::None], vec![ino]);
        let done = Compounded::Done { values, names: Vec::new(), files, written: Vec::new() };
        Ok(Reply::Compounded(done))
    }

    /// Does `job` with the file, by a thread of the program's.
    fn run(&self, job: impl FnOnce(&File) + Send + 'static) -> InodeNr {
        let program = self.program.lock().unwrap();
        let (file, ino, jobs) = program.as_ref().unwrap();
        let file = file.clone();
        jobs.send(Box::new(move || job(&file))).unwrap();
        *ino
    }

    /// Is this question for attributes the one at which the kernel's times are to come? Times that
    /// were left out are answered after such a question as well; a test that waited in one of those
    /// would wait for itself, because the kernel has locked the file until it has the answer.
    fn is_the_moment(&self, cred: &Credentials) -> bool {
        let name_of = |thread: String| std::fs::read_to_string(thread).unwrap_or_default();
        match self.comes {
            Comes::BeforeItReturns => false,
            // The daemon's own question, for the times that it tells.
            Comes::BeforeTheKernelIsTold => {
                name_of("/proc/thread-self/comm".into()).trim() == "siftfs-sizes"
            }
            // The question of the daemon's utimensat(2), which the kernel carries out.
            Comes::WhileTheKernelIsTold => {
                name_of(format!("/proc/self/task/{}/comm", cred.pid)).trim() == "siftfs-apart"
            }
        }
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
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        match &req {
            Request::Compound(_) => return self.compound(cred),
            Request::SetAttr { .. } => {
                let done = self.mem.call(cred, req);
                self.say();
                return done;
            }
            Request::GetAttr { .. } if self.asked.load(Ordering::SeqCst) > 0 => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                if self.is_the_moment(cred) && !self.closes.swap(true, Ordering::SeqCst) {
                    self.close(&self.listen());
                } else {
                    self.say();
                }
            }
            _ => {}
        }
        self.mem.call(cred, req)
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

/// The program, which has its descriptors for itself.
fn program(service: &Service, dir: &Path) -> (u32, Metadata, Result<Reply>, Metadata) {
    // SAFETY: the thread has no descriptor yet: what is closed are copies.
    unsafe {
        rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES).unwrap();
        assert_eq!(libc::close_range(3, libc::c_uint::MAX, 0), 0);
    }
    let (jobs, asked) = mpsc::channel::<Job>();
    let helper = std::thread::spawn(move || {
        let threads: Vec<_> = asked.iter().map(std::thread::spawn).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let mut create = File::options();
    let file = create.read(true).write(true).create_new(true).open(dir.join("f")).unwrap();
    let file = Arc::new(file);
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    let ino = InodeNr::try_from(file.metadata().unwrap().ino()).unwrap();
    *service.program.lock().unwrap() = Some((file.clone(), ino, jobs));
    set_times(&File::open(dir).unwrap(), &file);
    let asked = service.asked.swap(0, Ordering::SeqCst);
    let shown = file.metadata().unwrap();
    file.sync_all().unwrap();
    let get = Request::GetAttr { file: ino.into() };
    let stored = service.mem.call(&Credentials::default(), get);
    // What is changed after that counts.
    file.write_all_at(b"z", 0).unwrap();
    file.sync_all().unwrap();
    let later = file.metadata().unwrap();
    *service.program.lock().unwrap() = None;
    helper.join().unwrap();
    (asked, shown, stored, later)
}

#[test]
fn older_times_of_the_kernel_undo_nothing() {
    use Comes as C;
    for comes in [C::BeforeItReturns, C::BeforeTheKernelIsTold, C::WhileTheKernelIsTold] {
        let dir = tempfile::tempdir().unwrap();
        let service = Arc::new(Service {
            mem: Mem::new(),
            comes,
            program: Mutex::default(),
            asked: AtomicU32::new(0),
            closes: AtomicBool::new(false),
            late: AtomicBool::new(false),
            arrived: Mutex::default(),
        });
        let options =
            MountOptions { write_cache: WriteCache::Writeback, threads: 4, ..crate::options() };
        let make = || FuseMount::new(service.clone(), dir.path(), &options);
        let mount = crate::mounting(make).unwrap();
        let server = std::thread::spawn(move || mount.serve());
        let (of, at) = (service.clone(), dir.path().to_path_buf());
        let program = std::thread::spawn(move || program(&of, &at));
        let (asked, shown, stored, later) = program.join().unwrap();
        crate::cases::unmount_patiently(dir.path());
        server.join().unwrap().unwrap();
        // A failure while it was mounted would wait for its own mount.
        assert!(!service.late.load(Ordering::SeqCst), "{comes:?}: the kernel sends no times");
        let at_a_question = service.closes.load(Ordering::SeqCst);
        assert_eq!(at_a_question, comes != C::BeforeItReturns, "{comes:?}: no such question");
        assert!(asked > 2, "{comes:?}: the kernel was told after {asked} questions");
        assert_eq!((shown.mtime(), shown.mtime_nsec()), (9, 5), "{comes:?}: shown");
        let Ok(Reply::Attr(stored)) = stored else { panic!("{stored:?}") };
        assert_eq!(stored.mtime, SET, "{comes:?}: stored");
        let change = (stored.ctime.sec, i64::from(stored.ctime.nsec));
        assert_eq!(change, (shown.ctime(), shown.ctime_nsec()), "{comes:?}");
        assert!(later.mtime() > 9, "{comes:?}");
    }
}
