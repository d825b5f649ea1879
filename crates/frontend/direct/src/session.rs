//! A session that may hold leases, and the thread that returns those that are recalled.

use crate::file::DirectFile;
use crate::state::{Opened, Use};
use siftfs_base::{Error, InodeNr, Result};
use siftfs_device_target::{Lines, RequestOrder, TargetPlace};
use siftfs_proto::{Credentials, FileService, Handle, Holder, LeaseId, Reply, Request};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How a program reaches the target that a host names, as `target:ADDRESS/VOLUME`.
pub type Reach = Box<dyn Fn(&str) -> Result<TargetPlace> + Send + Sync>;

/// The connections to the target that a host names so.
pub type Finds = Box<dyn Fn(&str) -> Result<Arc<Lines>> + Send + Sync>;

/// Calls of a file by the host before a patient session asks for it; 64 KiB count as one more.
pub const PATIENCE: u64 = 4;
/// How often the leases in use are kept, until a host says how long one lasts.
const KEEP: Duration = Duration::from_millis(500);

/// A session of the file protocol, for files that are read and written at the target.
pub struct Session {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the files of a session share.
pub(crate) struct Shared {
    service: Arc<dyn FileService>,
    reach: Finds,
    /// The program's connections, by what a host calls their target.
    lines: Mutex<HashMap<String, Arc<Lines>>>,
    /// What is open, by its inode.
    files: Mutex<HashMap<(InodeNr, Use), Weak<Opened>>>,
    leased: Mutex<HashMap<LeaseId, Weak<Opened>>>,
    keep: Mutex<Duration>,
    /// See [`Session::patient`].
    patience: AtomicU64,
    /// What is given is a record, of which an fsync alone tells that it was lost.
    gives_records: bool,
    orders: Mutex<Sender<Order>>,
}

/// What the session's thread is to do.
enum Order {
    Return(LeaseId),
    /// Ask for room for a file that is appended to.
    MakeRoom(Weak<Opened>),
    End,
}

/// Tells the session's thread, and waits for nothing.
struct Recalls(Mutex<Sender<Order>>);

impl Holder for Recalls {
    fn recall(&self, lease: LeaseId) {
        let orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A session that has ended has returned everything.
        let _ = orders.send(Order::Return(lease));
    }
}

impl Session {
    /// Opens a session by `open`, which is given what the host tells of its leases.
    ///
    /// # Errors
    /// Those of `open`; no thread can be started.
    pub fn open(
        reach: Reach,
        open: impl FnOnce(Arc<dyn Holder>) -> Result<Arc<dyn FileService>>,
    ) -> Result<Self> {
        let (tell, told) = channel();
        let service = open(Arc::new(Recalls(Mutex::new(tell.clone()))))?;
        let finds = Box::new(move |target: &str| reach(target).map(Lines::new));
        let shared = Shared::new(finds, service, tell, false);
        let own = shared.clone();
        let thread = thread::Builder::new().name("siftfs-direct".into());
        let thread = thread.spawn(move || own.run(&told));
        let thread = thread.map_err(|e| Error::Refused(format!("no thread: {e}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Has the first calls of each file go by the host, [`PATIENCE`] of them: a lease, a grant and
    /// a queue cost about what these calls gain by them, so a file that is opened for a call or
    /// two never pays for them, and none pays more than twice what the better way would have cost
    /// it. [`DirectFile::is_direct`] and atomic writes ask at once.
    #[must_use]
    pub fn patient(self) -> Self {
        self.shared.patience.store(PATIENCE, Ordering::Relaxed);
        self
    }

    /// A regular file, inode `ino`, that is open in this session to be read and written. The
    /// handle is closed with it, or before, where the program has the file open so already: then
    /// both share one order. Where the target grants nothing of it, it is of use through the host
    /// alone.
    pub fn file(&self, handle: Handle, ino: InodeNr) -> DirectFile {
        self.file_ordered((handle, ino), RequestOrder::default())
    }

    /// As [`Session::file`], with calls ordered in another way, unless the program has the file
    /// open so already.
    pub fn file_ordered(&self, file: (Handle, InodeNr), order: RequestOrder) -> DirectFile {
        DirectFile::new(self.shared.open(file, (Use::Alone, order)))
    }

    /// As [`Session::file`], of one that is open to be read: it is read at the target, by any
    /// number of programs at once, as long as nobody changes it.
    pub fn file_to_read(&self, handle: Handle, ino: InodeNr) -> DirectFile {
        DirectFile::new(self.shared.open((handle, ino), (Use::Reads, RequestOrder::default())))
    }

    /// The session itself.
    pub fn service(&self) -> &Arc<dyn FileService> {
        &self.shared.service
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = lock(&self.shared.orders).send(Order::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn new(
        reach: Finds,
        service: Arc<dyn FileService>,
        tell: Sender<Order>,
        gives_records: bool,
    ) -> Arc<Self> {
        let (lines, files, leased) = Default::default();
        let (keep, orders) = (Mutex::new(KEEP), Mutex::new(tell));
        let patience = AtomicU64::new(0);
        Arc::new(Self {
            service,
            reach,
            lines,
            files,
            leased,
            keep,
            patience,
            gives_records,
            orders,
        })
    }

    /// A session that has no thread of its own: somebody else keeps and returns its leases.
    pub fn lent(finds: Finds, service: Arc<dyn FileService>) -> Arc<Self> {
        Self::new(finds, service, channel().0, true)
    }

    /// May what was given be lost without its writer having been told?
    pub fn gives_records(&self) -> bool {
        self.gives_records
    }

    /// What a file's calls come to before anything is asked for.
    pub fn patience(&self) -> u64 {
        self.patience.load(Ordering::Relaxed)
    }

    /// One request of the session.
    pub fn call(&self, req: Request) -> Result<Reply> {
        self.service.call(&Credentials::default(), req)
    }

    /// What the program has of the file already, open for the same, or this handle's.
    fn open(
        self: &Arc<Self>,
        (handle, ino): (Handle, InodeNr),
        (to, order): (Use, RequestOrder),
    ) -> Arc<Opened> {
        let mut files = lock(&self.files);
        if let Some(opened) = files.get(&(ino, to)).and_then(Weak::upgrade) {
            drop(files);
            // A handle that cannot be closed ends with the session.
            let _ = self.call(Request::Release { handle });
            return opened;
        }
        files.retain(|_, opened| opened.strong_count() > 0);
        let opened = Opened::new(self.clone(), handle, (to, order));
        files.insert((ino, to), Arc::downgrade(&opened));
        opened
    }

    /// The connections to the target that a host names so.
    pub fn lines(&self, target: &str) -> Result<Arc<Lines>> {
        let mut lines = lock(&self.lines);
        if let Some(known) = lines.get(target) {
            return Ok(known.clone());
        }
        let made = (self.reach)(target)?;
        lines.insert(target.to_owned(), made.clone());
        Ok(made)
    }

    /// A lease that lasts for `term` without a use is a file's.
    pub fn note(&self, lease: LeaseId, term: Duration, file: &Arc<Opened>) {
        *lock(&self.keep) = term / 4;
        lock(&self.leased).insert(lease, Arc::downgrade(file));
    }

    /// A lease has ended.
    pub fn forget(&self, lease: LeaseId) {
        lock(&self.leased).remove(&lease);
    }

    /// Has the session's thread ask for room for the file. False if the thread has
    /// ended.
    pub fn make_room_for(&self, file: &Arc<Opened>) -> bool {
        lock(&self.orders).send(Order::MakeRoom(Arc::downgrade(file))).is_ok()
    }

    fn run(&self, told: &Receiver<Order>) {
        let mut kept = Instant::now();
        loop {
            let keep = *lock(&self.keep);
            match told.recv_timeout(keep.saturating_sub(kept.elapsed())) {
                Ok(Order::Return(lease)) => self.give_back(lease),
                Ok(Order::MakeRoom(file)) => {
                    file.upgrade().iter().for_each(|file| file.make_room_ahead());
                }
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if kept.elapsed() >= keep {
                kept = Instant::now();
                self.keep_used();
            }
        }
    }

    fn give_back(&self, lease: LeaseId) {
        let file = lock(&self.leased).get(&lease).and_then(Weak::upgrade);
        match file {
            Some(file) => file.give_back(lease),
            // Its file has not read the answer that grants it, or is gone.
            None => drop(self.call(Request::LeaseReturn { lease })),
        }
    }

    /// Keeps the leases whose files were used since this was done last.
    fn keep_used(&self) {
        let files: Vec<_> =
            lock(&self.leased).iter().map(|(lease, file)| (*lease, file.clone())).collect();
        for (lease, file) in files {
            if file.upgrade().is_some_and(|file| file.was_used()) {
                // One that has ended is found so by its file's next call.
                let _ = self.call(Request::LeaseKeep { lease });
            }
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
