//! A file that is open in this program, and its lease, which all of its descriptors share.

use super::pace::Pace;
use super::section::{Owner, Sections};
use super::{direct, table};
use siftfs_accel::{Hold, Session, Through};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Device and inode number.
pub type Key = (u64, u64);

/// Leases that this program has had. While none was granted, no descriptor is looked at.
static GRANTED: AtomicU32 = AtomicU32::new(0);

/// Changes whenever a lease is granted; zero: none ever was.
pub fn granted() -> u32 {
    GRANTED.load(Ordering::Acquire)
}

/// The session with a mount's daemon. It may be taken away at any time, and is locked while a lease
/// is asked for.
pub struct Entered {
    session: Mutex<Option<Session>>,
    /// The descriptors that it keeps, and what they are.
    own: Vec<(i32, Option<Key>)>,
}

impl Entered {
    /// A session that has begun.
    pub fn new(session: Session) -> Self {
        let own = session.descriptors().into_iter().map(|fd| (fd, identity(fd))).collect();
        Self { session: Mutex::new(Some(session)), own }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody asks by the session any more.
    pub fn take(&self) -> Option<Session> {
        self.lock().take()
    }

    /// The session ends, which has no leases any more.
    pub fn end(&self, session: Session) {
        // The program may have closed a descriptor by a way that the library does not see: then
        // what has that number is the program's.
        match self.own().all(|fd| self.keeps(fd)) {
            true => drop(session),
            false => std::mem::forget(session),
        }
    }

    /// Closes the connections to targets, which no lease uses any more.
    pub fn disconnect(&self) {
        if let Some(session) = self.lock().as_ref() {
            session.disconnect();
        }
    }

    /// Is this one of the descriptors that the session keeps, and still what it was?
    pub fn keeps(&self, fd: i32) -> bool {
        self.own.iter().any(|(own, was)| *own == fd && was.is_some() && identity(fd) == *was)
    }

    /// Notes the descriptors that the session keeps.
    pub fn note(&self) {
        for (fd, identity) in &self.own {
            table::set_own(*fd, identity.map_or(0, mark));
        }
    }

    /// The descriptors that the session keeps.
    pub fn own(&self) -> impl Iterator<Item = i32> {
        self.own.iter().map(|(fd, _)| *fd)
    }
}

/// Few other files of a process have the same.
pub fn mark((dev, ino): Key) -> u32 {
    let mixed = (dev.rotate_left(32) ^ ino).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32 | 1
}

/// Is a descriptor still the one that had this mark?
pub fn is_marked(fd: i32, as_noted: u32) -> bool {
    identity(fd).map(mark) == Some(as_noted)
}

/// What a descriptor is.
pub fn identity(fd: i32) -> Option<Key> {
    // SAFETY: the kernel says whether it is open.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// A file.
pub struct Inode {
    pub key: Key,
    pub pace: Pace,
    /// How many descriptors of the table are of it. Changes under the registry's lock.
    pub descriptors: AtomicUsize,
    /// Stays with the kernel as long as it is open: it is mapped, or flags of a descriptor changed.
    pub is_kernels: AtomicBool,
    /// Held for reading while something is done by the lease.
    lease: RwLock<Option<Hold>>,
    /// The atomic section that the library has. Locked behind the lease.
    pub section: Sections,
    is_leased: AtomicBool,
    is_direct: AtomicBool,
    /// A lease has ended since the kernel was asked for the size.
    grew: AtomicBool,
    /// An errno that the next fsync(2) tells.
    untold: AtomicI32,
}

/// A descriptor, or several that share one open file.
pub struct Open {
    /// Whose an atomic section of the file is.
    pub owner: Owner,
    pub inode: Arc<Inode>,
    pub reads: bool,
    pub writes: bool,
    pub appends: bool,
}

impl Inode {
    /// Without a lease.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            pace: Pace::of(key.1),
            descriptors: AtomicUsize::new(0),
            is_kernels: AtomicBool::new(false),
            lease: RwLock::new(None),
            section: Sections::default(),
            is_leased: AtomicBool::new(false),
            is_direct: AtomicBool::new(false),
            grew: AtomicBool::new(false),
            untold: AtomicI32::new(0),
        }
    }

    /// Is there a lease, or may there be one in a moment, as far as can be said without a lock?
    pub fn is_leased(&self) -> bool {
        self.is_leased.load(Ordering::Acquire)
    }

    /// May a call of the program be the library's to do?
    pub fn matters(&self) -> bool {
        self.is_leased() || self.section.is_any()
    }

    /// Is the lease that there is of the kind that reads and writes at a target?
    pub fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    /// The lease, which is not given back before the guard is dropped.
    pub fn lease(&self) -> Option<RwLockReadGuard<'_, Option<Hold>>> {
        let lease = self.lease.read().unwrap_or_else(PoisonError::into_inner);
        lease.is_some().then_some(lease)
    }

    fn lease_mut(&self) -> RwLockWriteGuard<'_, Option<Hold>> {
        self.lease.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the lease by a descriptor that is open to be written, and to be read if it `reads`.
    /// False: the session is over.
    pub fn ask(&self, entered: &Entered, fd: BorrowedFd<'_>, reads: bool) -> bool {
        let mut lease = self.lease_mut();
        let session = entered.lock();
        let Some(session) = session.as_ref() else { return true };
        let not_now = lease.is_some() || self.section.is_any();
        if not_now || self.is_kernels.load(Ordering::Acquire) {
            return true;
        }
        // Calls of other threads wait from now on: a request of theirs would recall it at once.
        self.is_leased.store(true, Ordering::Release);
        match direct::lease(session, fd, reads) {
            Ok(leased) => {
                self.is_direct.store(leased.is_direct(), Ordering::Relaxed);
                *lease = Some(leased);
                self.pace.granted();
                GRANTED.fetch_add(1, Ordering::AcqRel);
                true
            }
            Err(e) => {
                self.is_leased.store(false, Ordering::Release);
                self.pace.refused();
                e.raw_os_error() != Some(libc::ENOTCONN)
            }
        }
    }

    fn take(&self, lease: &mut Option<Hold>) {
        let Some(leased) = lease.take() else { return };
        self.section.to_kernel(self.key, &leased);
        self.is_leased.store(false, Ordering::Release);
        self.grew.store(true, Ordering::Release);
        self.pace.ended();
        if let Err(e) = leased.close() {
            self.untold.store(e.raw_os_error().unwrap_or(libc::EIO), Ordering::Release);
        }
    }

    /// May the file be longer than the kernel knows? It is asked for the size then.
    pub fn is_longer(&self) -> bool {
        self.is_leased() || self.grew.swap(false, Ordering::AcqRel)
    }

    /// Gives the lease back.
    pub fn give_back(&self) {
        self.take(&mut self.lease_mut());
    }

    /// A call found that the lease has ended.
    pub fn ended(&self) {
        let mut lease = self.lease_mut();
        // Another thread may have got a new one.
        if lease.as_ref().is_some_and(|leased| leased.size() == Through::Mount) {
            self.take(&mut lease);
        }
    }

    /// The file stays with the kernel from now on.
    pub fn pin(&self) {
        self.is_kernels.store(true, Ordering::Release);
        self.give_back();
    }

    /// An error of earlier writes, once.
    pub fn untold(&self) -> Option<i32> {
        Some(self.untold.swap(0, Ordering::AcqRel)).filter(|errno| *errno != 0)
    }
}
