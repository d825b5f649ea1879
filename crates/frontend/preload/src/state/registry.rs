//! The files and mounts of which something is known.

use super::inode::{Entered, Inode, Key, Open, granted};
use super::process::is_own;
use super::section::Owner;
use super::{direct, pace, table};
use crate::below::file::key;
use crate::below::renew::Renewable;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use siftfs_accel::Session;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Devices that are remembered as no mount of ours.
const MOST_OTHERS: usize = 256;
/// What fstatfs(2) says of a file of a FUSE mount.
const FUSE: i64 = 0x6573_5546;
/// Flags of an open file that the library leaves alone.
const LEFT_ALONE: OFlags =
    OFlags::DIRECT.union(OFlags::DSYNC).union(OFlags::SYNC).union(OFlags::PATH);

/// A device.
enum Mount {
    /// None with private logs.
    Other,
    Ours {
        session: Option<Arc<Entered>>,
        /// How often one could not be had, and how many calls pass before the next try.
        failed: u32,
        pass: u32,
    },
}

#[derive(Default)]
pub struct Registry {
    inodes: BTreeMap<Key, Arc<Inode>>,
    mounts: BTreeMap<u64, Mount>,
}

static REGISTRY: Renewable<Mutex<Registry>> = Renewable::new(Mutex::new(Registry::new()));

/// The registry. It is locked before any file's lease is.
fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins anew in the child of a fork.
///
/// # Safety
/// There is no other thread, and this one is not in the library.
pub unsafe fn renew() {
    // SAFETY: the caller's promise.
    unsafe { REGISTRY.renew(Mutex::new(Registry::new())) };
}

/// What the kernel says of an open file, if the library does not leave it alone.
fn described(fd: BorrowedFd<'_>, inode: Arc<Inode>) -> Option<Open> {
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    if flags.intersects(LEFT_ALONE) {
        return None;
    }
    let mode = flags & OFlags::RWMODE;
    Some(Open {
        owner: Owner::default(),
        inode,
        reads: mode != OFlags::WRONLY,
        writes: mode != OFlags::RDONLY,
        appends: flags.contains(OFlags::APPEND),
    })
}

/// The open file of a descriptor, if something is known of it that matters: its file is leased, or
/// may be.
pub fn known(fd: i32) -> Option<Arc<Open>> {
    match table::tag(fd) {
        table::KNOWN => table::slot(fd)?.open(),
        table::READER | table::WRITER => joined(fd),
        _ => None,
    }
}

/// The open file of a descriptor of which nothing is known, if its file is leased by another one.
fn joined(fd: i32) -> Option<Arc<Open>> {
    let (slot, now) = (table::slot(fd)?, granted());
    if slot.seen.load(Ordering::Acquire) == now || !is_own() {
        return None;
    }
    // SAFETY: the caller's call is about this descriptor, so it is open as far as is known; if it
    // is not, the kernel says so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let found = key(borrowed).and_then(|key| {
        let registry = registry();
        let inode = registry.inodes.get(&key).filter(|inode| inode.is_leased())?;
        registry.fill(fd, described(borrowed, inode.clone())?)
    });
    slot.seen.store(now, Ordering::Release);
    found
}

/// The descriptor has called fsync(2), and is one that the program has opened to write: its file is
/// looked at if it has done so often enough.
pub fn considered(fd: i32) -> Option<Arc<Open>> {
    let slot = table::slot(fd)?;
    let syncs = slot.syncs.load(Ordering::Relaxed).saturating_add(1);
    slot.syncs.store(syncs, Ordering::Relaxed);
    if !pace::is_worth_a_look(syncs) || !is_own() {
        return None;
    }
    // SAFETY: as in `joined`.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut registry = registry();
    let found = key(borrowed).filter(|key| registry.is_ours(key.0, borrowed));
    let open = found.and_then(|key| {
        let inode = registry.inodes.get(&key).cloned().unwrap_or_else(|| Arc::new(Inode::new(key)));
        let open = described(borrowed, inode.clone())?;
        let open = registry.fill(fd, open)?;
        registry.inodes.insert(key, inode);
        Some(open)
    });
    if open.is_none() {
        table::forget(fd);
    }
    open
}

/// Asks for the lease of a file by a descriptor, if there is a session.
pub fn ask(fd: i32, inode: &Inode, reads: bool) {
    // SAFETY: as in `joined`.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    if !is_own() || !is_unlimited() || key(borrowed) != Some(inode.key) {
        return;
    }
    let session = registry().session(inode.key.0, borrowed);
    let Some(session) = session else { return inode.pace.refused() };
    if !inode.ask(&session, borrowed, reads) {
        registry().end_session(inode.key.0);
    }
}

/// The kernel is about to append by a descriptor. It takes the end from the size that it knows, and
/// puts the open file's offset behind what it wrote there: the daemon moves the bytes to the true
/// end, but cannot move the offset. So it is asked for the size, if a lease may have changed that.
pub fn freshen(fd: i32) {
    if !matches!(table::tag(fd), table::KNOWN | table::WRITER) || !is_own() {
        return;
    }
    // SAFETY: as in `joined`.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    if !rustix::fs::fcntl_getfl(borrowed).is_ok_and(|flags| flags.contains(OFlags::APPEND)) {
        return;
    }
    let inode = key(borrowed).and_then(|key| registry().inodes.get(&key).cloned());
    if inode.is_some_and(|inode| inode.is_longer()) {
        ask_size(borrowed);
    }
}

/// May a file be as long as it likes? A limit is the kernel's to keep.
pub fn is_unlimited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_none()
}

/// Is it still the file that was opened? The program may have closed it by a way that the library
/// does not see.
pub fn is_same(fd: i32, open: &Open) -> bool {
    // SAFETY: as in `joined`.
    let now = key(unsafe { BorrowedFd::borrow_raw(fd) });
    let same = now == Some(open.inode.key);
    if !same {
        release(fd);
    }
    same
}

/// The descriptor is the kernel's from now on. An error of what was written before, if it was the
/// last one of its file.
pub fn release(fd: i32) -> Option<i32> {
    if table::forget(fd) || !is_own() {
        return None;
    }
    let mut registry = registry();
    let open = table::empty(fd)?;
    let untold = registry.left(&open.inode);
    if open.inode.descriptors.load(Ordering::Acquire) == 0 && open.inode.is_longer() {
        // Nothing more is known of it when it is opened again.
        // SAFETY: as in `joined`.
        ask_size(unsafe { BorrowedFd::borrow_raw(fd) });
    }
    untold
}

/// Has the kernel take a file's size from the daemon.
fn ask_size(fd: BorrowedFd<'_>) {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let _ = rustix::fs::statx(fd, c"", flags, StatxFlags::SIZE);
}

/// A new descriptor has the same open file as another.
pub fn copied(from: i32, to: i32) {
    if let table::READER | table::WRITER = table::tag(from) {
        table::set(to, table::tag(from));
        if table::is_shared(from) {
            table::share(to);
        }
        return;
    }
    let registry = registry();
    let Some(open) = table::slot(from).and_then(table::Slot::open) else { return };
    table::set(to, table::WRITER);
    if table::is_shared(from) {
        table::share(to);
    }
    if table::fill(to, open.clone()) {
        open.inode.descriptors.fetch_add(1, Ordering::AcqRel);
    }
    drop(registry);
}

/// The file of a descriptor stays with the kernel, as far as this program has it open now.
pub fn pin(fd: i32) {
    // No file was ever leased: the descriptor alone is not to be the first.
    if granted() == 0 && table::forget(fd) {
        return;
    }
    // SAFETY: as in `joined`.
    let key = key(unsafe { BorrowedFd::borrow_raw(fd) });
    let inode = key.and_then(|key| registry().inodes.get(&key).cloned());
    release(fd);
    if let Some(inode) = inode.filter(|_| is_own()) {
        inode.pin();
    }
}

/// The program is about to close the descriptor: the atomic section of its file ends, as the
/// mount's does with any close(2) by its process.
pub fn end_section(fd: i32) {
    // SAFETY: as in `joined`.
    let key = key(unsafe { BorrowedFd::borrow_raw(fd) });
    let inode = key.and_then(|key| registry().inodes.get(&key).cloned());
    if let Some(inode) = inode.filter(|_| is_own()) {
        inode.section.end();
    }
}

/// All atomic sections of the library become the mount's.
pub fn move_sections() {
    let all: Vec<_> = registry().inodes.values().cloned().collect();
    all.iter().filter(|inode| inode.section.is_any()).for_each(|inode| inode.give_back());
}

/// Gives all leases back.
pub fn give_all_back() {
    let all: Vec<_> = registry().inodes.values().cloned().collect();
    all.iter().for_each(|inode| inode.give_back());
    table::tagged().for_each(shared);
    registry().disconnect();
}

/// Others are to have the open file: its lease goes back, and they append where it ends.
pub fn shared(fd: i32) {
    let known = table::slot(fd).filter(|_| table::tag(fd) == table::KNOWN);
    let Some(open) = known.and_then(table::Slot::open) else { return };
    open.inode.give_back();
    if open.appends && open.inode.is_longer() {
        // SAFETY: as in `joined`.
        ask_size(unsafe { BorrowedFd::borrow_raw(fd) });
    }
}

/// Is the descriptor, which was one of the library's own, still what it was? Else it is the
/// program's, or nobody's.
pub fn is_kept(fd: i32) -> bool {
    let registry = registry();
    let keeps = |mount: &Mount| match mount {
        Mount::Ours { session: Some(session), .. } => session.keeps(fd),
        _ => false,
    };
    let kept = registry.mounts.values().any(keeps) || direct::keeps(fd);
    if !kept {
        table::forget(fd);
    }
    kept
}

/// The program is to have a descriptor of the library's own: its session ends.
pub fn give_up(fd: i32) {
    let mut registry = registry();
    let of = |(dev, mount): (&u64, &Mount)| match mount {
        Mount::Ours { session: Some(session), .. } if session.keeps(fd) => Some(*dev),
        _ => None,
    };
    if let Some(dev) = registry.mounts.iter().find_map(of) {
        registry.end_session(dev);
    } else if direct::keeps(fd) {
        registry.give_all_back();
        registry.disconnect();
    }
}

impl Registry {
    const fn new() -> Self {
        Self { inodes: BTreeMap::new(), mounts: BTreeMap::new() }
    }

    fn fill(&self, fd: i32, open: Open) -> Option<Arc<Open>> {
        let open = Arc::new(open);
        if !table::fill(fd, open.clone()) {
            return None;
        }
        open.inode.descriptors.fetch_add(1, Ordering::AcqRel);
        Some(open)
    }

    fn give_all_back(&self) {
        self.inodes.values().for_each(|inode| inode.give_back());
    }

    /// Closes all connections to targets.
    fn disconnect(&self) {
        for mount in self.mounts.values() {
            if let Mount::Ours { session: Some(session), .. } = mount {
                session.disconnect();
            }
        }
        direct::forget_closed();
    }

    /// A descriptor of the file has gone.
    fn left(&mut self, inode: &Arc<Inode>) -> Option<i32> {
        if inode.descriptors.fetch_sub(1, Ordering::AcqRel) > 1 {
            return None;
        }
        if self.inodes.get(&inode.key).is_some_and(|known| Arc::ptr_eq(known, inode)) {
            self.inodes.remove(&inode.key);
        }
        inode.give_back();
        inode.untold()
    }

    /// Is the device a FUSE mount, as far as is known?
    fn is_ours(&mut self, dev: u64, fd: BorrowedFd<'_>) -> bool {
        if self.mounts.len() > MOST_OTHERS {
            self.mounts.retain(|_, mount| matches!(mount, Mount::Ours { .. }));
        }
        let mount = self.mounts.entry(dev).or_insert_with(|| {
            match rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type == FUSE) {
                true => Mount::Ours { session: None, failed: 0, pass: 0 },
                false => Mount::Other,
            }
        });
        matches!(mount, Mount::Ours { .. })
    }

    /// The session with a mount.
    fn session(&mut self, dev: u64, fd: BorrowedFd<'_>) -> Option<Arc<Entered>> {
        let Some(Mount::Ours { session, failed, pass }) = self.mounts.get_mut(&dev) else {
            return None;
        };
        if let Some(session) = session {
            return Some(session.clone());
        }
        if *pass > 0 || !standard_are_open() {
            *pass = pass.saturating_sub(1);
            return None;
        }
        match Session::enter(fd) {
            Ok(entered) => {
                let entered = Arc::new(Entered::new(entered));
                entered.note();
                *failed = 0;
                Some(session.insert(entered).clone())
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => {
                self.mounts.insert(dev, Mount::Other);
                None
            }
            Err(_) => {
                *failed = failed.saturating_add(1);
                *pass = 1 << (*failed).min(12);
                None
            }
        }
    }

    /// Ends the session with a mount.
    fn end_session(&mut self, dev: u64) {
        let Some(Mount::Ours { session, failed, pass }) = self.mounts.get_mut(&dev) else { return };
        *failed = failed.saturating_add(1);
        *pass = 1 << (*failed).min(12);
        let Some(entered) = session.take() else { return };
        let Some(session) = entered.take() else { return };
        self.inodes.values().filter(|i| i.key.0 == dev).for_each(|inode| inode.give_back());
        // Nobody has it any more, so its descriptors are closed before the table forgets them.
        entered.end(session);
        for fd in entered.own() {
            table::forget(fd);
        }
    }
}

/// Are the first three descriptors open? Else one of the library's own would be a program's input
/// or output.
fn standard_are_open() -> bool {
    // SAFETY: whether they are open is the question.
    (0..3).all(|fd| rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok())
}
