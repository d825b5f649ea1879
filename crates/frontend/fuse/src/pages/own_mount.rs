//! The daemon's own calls on its own mount.
//!
//! Each of them waits for requests that the same process serves. Two things must hold then.
//!
//! **Other threads serve them.** A call is made by a thread of its own, never by one that carries
//! a request out.
//!
//! **The daemon can be killed.** A thread that waits for pages in the kernel cannot be interrupted,
//! nor can one whose request has been read, and a killed process keeps its descriptors until its
//! last thread has gone: with `/dev/fuse` among them the connection would live on, and the thread,
//! and every program on the mount, would wait for ever. So the thread has a table of descriptors of
//! its own, with nothing of the daemon's in it ([`start_apart`]): when the others die, `/dev/fuse`
//! is closed, and the wait ends. Memory must hold no descriptor either: `kernel/ring/uring.rs`.
//!
//! An open file of the mount makes umount(2) fail with EBUSY. So the root is opened through a mount
//! of its own: a detached copy (open_tree(2)), which no other process sees and which ends with the
//! descriptor. A umount(2) meanwhile succeeds, and the session ends when the descriptor is closed.

#![allow(unsafe_code)] // unshare(2) and close_range(2) have no safe wrappers

use crate::mount::mountinfo::{MountEntry, mounts_of};
use crate::pages::handles::{find_node, open_node};
use rustix::fs::{
    AtFlags, Mode, OFlags, StatxFlags, StatxTimestamp, Timespec, Timestamps, openat, statx,
};
use rustix::mount::{OpenTreeFlags, open_tree};
use siftfs_base::Timestamp;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a SETATTR is answered by which a ctime would move that has moved since.
pub(crate) const OVERTAKEN: i32 = libc::EBUSY;

/// How often the kernel is asked for a size that it does not take.
const ASKED: u32 = 8;

/// The calling thread, which has opened nothing yet, loses the process's descriptors. Only those
/// of standard input, output and error stay: what the thread opens must not take their place.
fn keep_nothing() -> io::Result<()> {
    // SAFETY: unshare(2) with this flag gives the thread a copy of the table, and close_range(2)
    // closes what is in that copy alone. The thread owns no descriptor and uses none it knows of.
    let done = unsafe {
        libc::unshare(libc::CLONE_FILES) == 0 && libc::close_range(3, libc::c_uint::MAX, 0) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Starts a thread that has none of the process's descriptors. `work` must own none: closed there,
/// it would stay open here. It is told if they could not be taken away, and must not call then.
///
/// # Errors
/// No thread can be started.
pub(crate) fn start_apart(
    name: &str,
    work: impl FnOnce(io::Result<()>) + Send + 'static,
) -> io::Result<()> {
    let body = move || {
        let _here = Here::note();
        work(keep_nothing());
    };
    std::thread::Builder::new().name(name.into()).spawn(body).map(drop)
}

/// The threads of [`start_apart`] that are there, as requests name them.
static APART: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// One of them, while it is there.
struct Here(u32);

impl Here {
    fn note() -> Self {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        APART.lock().unwrap_or_else(PoisonError::into_inner).insert(thread);
        Self(thread)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        APART.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Is a request by this thread one of the daemon's own ([`start_apart`])?
pub(crate) fn is_apart(pid: u32) -> bool {
    APART.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)
}

/// Makes a call that may wait for the process's own mount, on a thread that has none of its
/// descriptors (`work` must own none), and waits for it.
///
/// # Errors
/// No such thread can be had, and those of the call.
pub fn apart<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = channel();
    start_apart("siftfs-apart", move |alone| {
        // A daemon that ends does not wait for the result.
        let _ = tell.send(alone.and_then(|()| work()));
    })?;
    told.recv().map_err(|_| io::Error::other("the thread ended without a word"))?
}

/// The root of the mount, for the calling thread; `None` if it is not to be reached any more.
pub(crate) fn open_root(entry: &MountEntry) -> io::Result<Option<OwnedFd>> {
    open_root_by(entry, &|_| {})
}

/// As [`open_root`]; `prepare` is called with what names the root before that is opened.
pub(crate) fn open_root_by(
    entry: &MountEntry,
    prepare: &dyn Fn(&OwnedFd),
) -> io::Result<Option<OwnedFd>> {
    // In most cases it is where it was.
    if let Ok(Some(root)) = open_mount(entry, prepare) {
        return Ok(Some(root));
    }
    let mut mounts = mounts_of(entry)?;
    mounts.sort_by_key(|m| m.id != entry.id);
    let mut result = Ok(None);
    for mount in mounts {
        match open_mount(&mount, prepare) {
            Ok(Some(root)) => return Ok(Some(root)),
            Ok(None) => {}
            Err(e) => result = Err(e),
        }
    }
    result
}

/// As [`open_root`], through a copy on which nothing can be changed: a call that would make a name
/// has the kernel look the name up, and fails with EROFS without a request. Before Linux 5.12 the
/// copy is a plain one.
pub(crate) fn open_root_to_look(entry: &MountEntry) -> io::Result<Option<OwnedFd>> {
    open_root_by(entry, &|tree| {
        if let Err(error) = make_read_only(tree) {
            tracing::debug!(%error, "names that are free cost one more request each");
        }
    })
}

/// Makes a detached copy of a mount read-only.
fn make_read_only(tree: &OwnedFd) -> io::Result<()> {
    let wanted = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is a string, and the kernel reads a structure of this size.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn open_mount(mount: &MountEntry, prepare: &dyn Fn(&OwnedFd)) -> io::Result<Option<OwnedFd>> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(rustix::fs::CWD, &mount.mount_point, flags)?;
    prepare(&tree);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(&tree, ".", flags, Mode::empty())?;
    // Whatever covers the mount point by now is not ours to write back.
    let device = rustix::fs::fstat(&root)?.st_dev;
    let ours = (rustix::fs::major(device), rustix::fs::minor(device)) == (mount.major, mount.minor);
    Ok(ours.then_some(root))
}

/// Has the kernel send the dirty pages and times of every file of the mount. What could not be
/// written is the WRITE requests' to know: syncfs(2) tells it after it has done its work, and tells
/// of losses that are older than the call. That is the value: nobody who opens the mount later is
/// told of it any more.
///
/// # Errors
/// The mount could not be opened, or no thread started.
pub(crate) fn sync(entry: &MountEntry) -> io::Result<Option<i32>> {
    let entry = entry.clone();
    apart(move || {
        let Some(root) = open_root(&entry)? else { return Ok(None) };
        Ok(rustix::fs::syncfs(&root).err().map(|e| e.raw_os_error()))
    })
}

/// A syncfs(2) of the mount that is under way.
pub struct Syncing(Receiver<()>);

impl Syncing {
    /// Begins one. When this returns, the mount is open for it, and can be detached.
    ///
    /// # Errors
    /// The mount could not be opened, or no thread started.
    pub fn start(entry: &MountEntry) -> io::Result<Self> {
        let (opened, is_open) = channel();
        let (end, ended) = channel();
        let entry = entry.clone();
        start_apart("siftfs-sync", move |alone| {
            let root = alone.and_then(|()| open_root(&entry));
            let (root, told) = match root {
                Ok(root) => (root, Ok(())),
                Err(e) => (None, Err(e)),
            };
            let _ = opened.send(told);
            if let Some(root) = root {
                let _ = rustix::fs::syncfs(&root);
            }
            drop(end);
        })?;
        is_open.recv().map_err(|_| io::Error::other("the thread ended without a word"))??;
        Ok(Self(ended))
    }

    /// Has the kernel sent everything, or failed to?
    pub fn is_over(&self) -> bool {
        self.0.try_recv() == Err(TryRecvError::Disconnected)
    }
}

/// A file whose pages have been written back, and that is still open. While a RENAME is carried out
/// the kernel holds the file's lock, which closing it wants: so it is closed after the answer, by
/// the thread that opened it, when this is dropped.
pub(crate) struct Written {
    _close: Sender<()>,
}

/// Has the kernel send the dirty pages of a file, and waits for them. Of what could not be written
/// the WRITE requests know, and an older loss is no error of this call.
///
/// # Errors
/// The file could not be opened, no thread started, or the kernel did not send all of the pages.
pub(crate) fn write_back(entry: &MountEntry, node: u64, generation: u32) -> io::Result<Written> {
    let (close, closed) = channel();
    let (tell, told) = channel();
    let entry = entry.clone();
    start_apart("siftfs-sync", move |alone| {
        wait_written(alone, (&entry, node, generation), &tell, &closed);
    })?;
    let result = told.recv().map_err(|_| io::Error::other("the thread ended without a word"))?;
    result.map(|()| Written { _close: close })
}

fn wait_written(
    alone: io::Result<()>,
    (entry, node, generation): (&MountEntry, u64, u32),
    tell: &Sender<io::Result<()>>,
    closed: &Receiver<()>,
) {
    let file = alone.and_then(|()| match open_root(entry)? {
        Some(root) => open_node(&root, node, generation),
        None => Err(io::Error::from_raw_os_error(libc::ENOENT)),
    });
    let (file, result) = match file {
        Ok(file) => {
            forget_losses(&file);
            let result = write_pages(&file);
            (Some(file), result)
        }
        Err(e) => (None, Err(e)),
    };
    let _ = tell.send(result);
    // Ends when the other end is dropped.
    let _ = closed.recv();
    drop(file);
}

/// The threads that have the kernel drop what it has of a file, by the numbers that the kernel's
/// requests have.
#[derive(Default)]
pub(crate) struct Resetting(Mutex<Vec<Thread>>);

/// One of them.
struct Thread {
    pid: u32,
    /// The ctime that it has the kernel take, and where to ask which one the kernel has.
    ctime: Option<(Timestamp, Sender<Sender<Timestamp>>)>,
}

impl Resetting {
    fn list(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is thread `pid` one of them?
    pub(crate) fn has(&self, pid: u32) -> bool {
        pid != 0 && self.list().iter().any(|thread| thread.pid == pid)
    }

    /// Notes the calling thread while it does this, with the ctime that it has the kernel take.
    fn while_here<T>(
        &self,
        ctime: Option<(Timestamp, Sender<Sender<Timestamp>>)>,
        work: impl FnOnce() -> T,
    ) -> T {
        let pid = own_number();
        self.list().push(Thread { pid, ctime });
        let done = work();
        let mut list = self.list();
        let last = list.iter().rposition(|thread| thread.pid == pid);
        last.map(|at| list.remove(at));
        done
    }

    /// Has the kernel a ctime of its own that is as young as the one that thread `pid` has it take?
    /// While a SETATTR of that thread is unanswered, the kernel holds the file's lock: whatever
    /// moves a ctime waits for that.
    pub(crate) fn is_overtaken(&self, pid: u32) -> bool {
        let of_thread = |thread: &&Thread| thread.pid == pid && thread.ctime.is_some();
        let taken = self.list().iter().find(of_thread).and_then(|thread| thread.ctime.clone());
        taken.is_some_and(|(ctime, ask)| {
            let (tell, told) = channel();
            // No answer: the thread has returned from its call.
            ask.send(tell).is_ok() && told.recv().is_ok_and(|own| own >= ctime)
        })
    }
}

/// The number of the calling thread that the kernel's requests have.
pub(crate) fn own_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// How the kernel gets a file's size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    /// It asks for it.
    Asked,
    /// It owns it: it is made to set it to this.
    Ours(u64),
    /// It keeps the one that it has.
    Own,
}

/// A time of change that a kernel is to take that owns the times.
pub(crate) struct NewTime {
    /// The mtime, too; without it that stays. The ctime becomes the kernel's present.
    pub(crate) mtime: Option<Timestamp>,
    /// Without an mtime, a kernel that has this ctime or a younger one takes none: else it would
    /// move after whatever program moved it last.
    pub(crate) ctime: Timestamp,
    /// Called when it has taken it, and sends no older times any more.
    pub(crate) taken: Box<dyn FnOnce() + Send>,
}

/// What the kernel is to do with a file or directory that another front end changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Take {
    /// Take the attributes from the server.
    Attributes,
    /// The same of a directory, and drop the listing.
    Listing,
    /// The same of a file, and drop all pages. Dirty ones are written first.
    Pages,
}

/// Has the kernel take attributes, and drop what it has of the content, on the calling thread,
/// which has none of the process's descriptors. False if the mount has no place where that could be
/// asked. If the kernel does not know the inode there is nothing to do.
///
/// # Errors
/// Those of the calls.
pub(crate) fn take_back(
    entry: &MountEntry,
    (node, generation): (u64, u32),
    take: Take,
    resetting: &Resetting,
) -> io::Result<bool> {
    let Some(root) = open_root(entry)? else { return Ok(false) };
    let file = match take {
        Take::Attributes => find_node(&root, node, generation),
        Take::Listing => open_node(&root, node, generation),
        Take::Pages => resetting.while_here(None, || open_node(&root, node, generation)),
    };
    let file = match file {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => return Ok(true),
        other => other?,
    };
    take_attributes(&file)?;
    if take == Take::Listing {
        drop_listing(&file);
    }
    Ok(true)
}

/// Has the kernel ask for the attributes of a file until it takes them: an answer that another
/// request's overtook does not count.
fn take_attributes(file: &OwnedFd) -> io::Result<()> {
    let known = |sync| {
        let flags = AtFlags::EMPTY_PATH | sync;
        let stat = statx(file, "", flags, StatxFlags::SIZE | StatxFlags::MTIME)?;
        Ok::<_, io::Error>((stat.stx_size, stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec))
    };
    for _ in 0..ASKED {
        if known(AtFlags::STATX_FORCE_SYNC)? == known(AtFlags::STATX_DONT_SYNC)? {
            break;
        }
    }
    Ok(())
}

/// Has the kernel drop the listing that it keeps of a directory. By the mtime it knows that a
/// listing is old, but two changes within one tick of the clock have the same. Pages of which
/// somebody copies entries now stay, so this waits for nobody.
pub(crate) fn drop_listing(dir: &OwnedFd) {
    if let Err(error) = rustix::fs::fadvise(dir, 0, None, rustix::fs::Advice::DontNeed) {
        tracing::debug!(%error, "the kernel keeps a directory's listing");
    }
}

/// What became of a file that was to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    /// The mount has no place where it could be opened.
    NoPlace,
    /// It is, or the kernel does not know it any more.
    Done,
    /// It is, and after the kernel had taken the time its own times were these.
    Times { mtime: Timestamp, ctime: Timestamp },
}

/// Has the kernel drop all pages of a file and take its size from the server. The thread that does
/// it is in `resetting` meanwhile: its OPEN is to be answered without FOPEN_KEEP_CACHE, its SETATTR
/// by the attributes as they are. With a time the kernel is made to take that one, and then asked
/// which it has.
///
/// # Errors
/// No such thread can be had, and those of the calls.
pub(crate) fn reset(
    entry: &MountEntry,
    (node, generation): (u64, u32),
    (size, time): (Size, Option<NewTime>),
    resetting: Arc<Resetting>,
) -> io::Result<Reset> {
    let entry = entry.clone();
    apart(move || {
        let reset = || reset_here(&entry, (node, generation), (size, time), &resetting);
        resetting.while_here(None, reset)
    })
}

fn reset_here(
    entry: &MountEntry,
    (node, generation): (u64, u32),
    (size, time): (Size, Option<NewTime>),
    resetting: &Resetting,
) -> io::Result<Reset> {
    let Some(root) = open_root(entry)? else { return Ok(Reset::NoPlace) };
    let file = match open_node(&root, node, generation) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => {
            return Ok(Reset::Done);
        }
        other => other?,
    };
    let known = |sync| -> io::Result<u64> {
        let flags = AtFlags::EMPTY_PATH | sync;
        Ok(statx(&file, "", flags, StatxFlags::SIZE)?.stx_size)
    };
    match size {
        // An answer that another request's overtook does not count.
        Size::Asked => {
            for _ in 0..ASKED {
                if known(AtFlags::STATX_FORCE_SYNC)? == known(AtFlags::STATX_DONT_SYNC)? {
                    break;
                }
            }
        }
        Size::Ours(size) if known(AtFlags::STATX_DONT_SYNC)? != size => truncate(&file, size)?,
        Size::Ours(_) | Size::Own => {}
    }
    match time {
        None => Ok(Reset::Done),
        Some(time) => set_time(&file, time, resetting),
    }
}

/// Has a kernel that owns the times take one, and asks it for those that it has then.
fn set_time(
    file: &OwnedFd,
    NewTime { mtime, ctime, taken }: NewTime,
    resetting: &Resetting,
) -> io::Result<Reset> {
    let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    match mtime {
        Some(Timestamp { sec, nsec }) => {
            let last_modification = Timespec { tv_sec: sec, tv_nsec: nsec.into() };
            rustix::fs::futimens(file, &Timestamps { last_access, last_modification })?;
        }
        None => move_ctime(file, ctime, resetting)?,
    }
    // close(2) waits until older times that the kernel was sending have come, and then takes the
    // file's lock, which a utimensat(2) holds until its times are here and there.
    drop(file.try_clone()?);
    taken();
    drop(file.try_clone()?);
    let (mtime, ctime) = own_times(file)?;
    Ok(Reset::Times { mtime, ctime })
}

/// Has the kernel move the ctime to its present, if it has none as young as this one. Another
/// thread with this one's descriptors says which it has, while the call's SETATTR is unanswered.
fn move_ctime(file: &OwnedFd, ctime: Timestamp, resetting: &Resetting) -> io::Result<()> {
    let (ask, asked) = channel::<Sender<Timestamp>>();
    // A kernel changes no ctime alone. The atime is the server's: it answers this thread with the
    // one that it has, and the kernel takes that.
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let left = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: now, last_modification: left };
    let moved: io::Result<()> = std::thread::scope(|scope| {
        let says = move || {
            for tell in asked {
                // An error is no answer.
                let _ = own_times(file).map(|(_, own)| tell.send(own));
            }
        };
        let thread = std::thread::Builder::new().name("siftfs-times".into());
        thread.spawn_scoped(scope, says)?;
        resetting.while_here(Some((ctime, ask)), || Ok(rustix::fs::futimens(file, &times)?))
    });
    match moved {
        Err(e) if e.raw_os_error() == Some(OVERTAKEN) => Ok(()),
        moved => moved,
    }
}

/// The mtime and ctime that a kernel has which owns them.
fn own_times(file: &OwnedFd) -> io::Result<(Timestamp, Timestamp)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, "", flags, StatxFlags::MTIME | StatxFlags::CTIME)?;
    let time = |t: StatxTimestamp| Timestamp { sec: t.tv_sec, nsec: t.tv_nsec };
    Ok((time(stat.stx_mtime), time(stat.stx_ctime)))
}

/// Sets the size of a file that is open for reading.
fn truncate(file: &OwnedFd, size: u64) -> io::Result<()> {
    let path = CString::new(format!("/proc/thread-self/fd/{}", file.as_raw_fd()))?;
    let size = libc::off_t::try_from(size).map_err(io::Error::other)?;
    // SAFETY: the path ends with NUL and lives as long as the call.
    match unsafe { libc::truncate(path.as_ptr(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// After this the open file is told of losses that are newer than this call, and of no others: a
/// file that is opened is told of one that no program has been told of, however old.
fn forget_losses(file: &OwnedFd) {
    // SAFETY: no memory is passed.
    let _ =
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
}

/// Has the kernel send the dirty pages of an open file, and waits for them.
pub(crate) fn write_pages(file: &OwnedFd) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no memory is passed.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
