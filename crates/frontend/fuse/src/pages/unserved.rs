//! Has the kernel drop what it has of files while the session may be lost, so that no request
//! waits for it.
//!
//! A thread without the daemon's descriptors (`own_mount`) opens each file by its number. What the
//! kernel asks for that is answered here: it gets back the attributes that it has, which count for
//! no time, and a handle that no session knows. Clean pages that nobody maps and no request has
//! locked are dropped by posix_fadvise(2), which waits for nothing. Files of which pages are left
//! are opened once more, so that the kernel drops all: it waits for requests of theirs, and has
//! mappings look again.

use crate::kernel::convert::{inode, node};
use crate::kernel::reply::{Answer, Flush};
use crate::kernel::request::{Message, Operation};
use crate::mount::mountinfo::MountEntry;
use crate::pages::dirty::has_pages;
use crate::pages::handles::{find_node, open_node};
use crate::pages::own_mount::{drop_listing, open_root_by, own_number, start_apart};
use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp, statx};
use siftfs_base::{Result, Timestamp, errno};
use siftfs_proto::{Attr, FileKind, Handle, ROOT_INO};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What such a thread has open.
const HANDLE: Handle = Handle(u64::MAX - 0x51F7);
/// Threads at most that drop pages without waiting, and such that may have to wait.
const THREADS: usize = 4;

/// A file that the kernel may have pages of: its node and its generation.
pub(crate) type File = (u64, u32);

/// The threads that ask while nobody serves.
#[derive(Default)]
pub(crate) struct Unserved {
    threads: Mutex<Vec<Thread>>,
    /// How many there are.
    count: AtomicUsize,
}

struct Thread {
    pid: u32,
    /// The kernel is to drop what it has of what is opened.
    anew: bool,
    root: Option<Attr>,
    file: Option<Attr>,
}

/// The calling thread is one of them until this is dropped.
struct Asking<'a> {
    all: &'a Unserved,
    pid: u32,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.all.list().retain(|thread| thread.pid != self.pid);
        self.all.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Asking<'_> {
    fn root(&self, attr: Attr) {
        self.all.change(self.pid, |thread| thread.root = Some(attr));
    }

    fn file(&self, attr: Attr) {
        self.all.change(self.pid, |thread| thread.file = Some(attr));
    }
}

impl Unserved {
    fn list(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, pid: u32, change: impl FnOnce(&mut Thread)) {
        self.list().iter_mut().find(|thread| thread.pid == pid).map(change);
    }

    /// The calling thread asks from now on.
    fn ask(&self, anew: bool) -> Asking<'_> {
        let pid = own_number();
        self.count.fetch_add(1, Ordering::SeqCst);
        self.list().push(Thread { pid, anew, root: None, file: None });
        Asking { all: self, pid }
    }

    /// The answer to a request, if it is of such a thread.
    pub(crate) fn answer(&self, message: &Message<'_>) -> Option<Result<Answer>> {
        use Operation as O;
        match message.op {
            O::Release { handle } | O::ReleaseDir { handle } | O::Flush { handle, .. }
                if handle == HANDLE.0 =>
            {
                return Some(Ok(Answer::Done));
            }
            _ if self.count.load(Ordering::SeqCst) == 0 => return None,
            _ => {}
        }
        let list = self.list();
        let thread = list.iter().find(|thread| thread.pid == message.cred.pid)?;
        let ino = inode(message.node).ok();
        let known = [thread.root.as_ref(), thread.file.as_ref()].into_iter().flatten();
        let attr = known.into_iter().find(|attr| Some(attr.ino) == ino);
        Some(match (&message.op, attr) {
            (O::GetAttr { .. }, Some(attr)) => Ok(Answer::Attr(attr.clone())),
            (O::Statx, Some(attr)) => Ok(Answer::Statx(attr.clone())),
            (O::Open { .. }, Some(_)) if thread.anew => Ok(Answer::OpenedAnew(HANDLE)),
            (O::Open { .. }, Some(_)) => Ok(Answer::Opened(HANDLE, Flush::Left)),
            (O::OpenDir, Some(_)) => Ok(Answer::OpenedDir(HANDLE)),
            _ => Err(errno(libc::ESTALE)),
        })
    }

    /// Has the kernel drop its pages of files. `dropped` is called with the place of each of which
    /// it has none any more, by threads that may have to wait for requests of the file. Returns
    /// when all is dropped that is not waited for.
    pub(crate) fn drop_pages(
        self: &Arc<Self>,
        entry: &MountEntry,
        files: Vec<File>,
        dropped: &Arc<dyn Fn(usize) + Send + Sync>,
    ) {
        let numbered: Vec<_> = files.into_iter().enumerate().collect();
        let (tell, left) = channel();
        for part in parts(numbered) {
            let (own, entry) = (self.clone(), entry.clone());
            let (dropped, tell) = (dropped.clone(), tell.clone());
            start("siftfs-drops", move || own.drop_free(&entry, &part, &*dropped, &tell));
        }
        drop(tell);
        let left: Vec<_> = left.into_iter().collect();
        for part in parts(left) {
            let (own, entry, dropped) = (self.clone(), entry.clone(), dropped.clone());
            start("siftfs-waits", move || own.drop_all(&entry, &part, &*dropped));
        }
    }

    /// Drops what nobody has to be waited for; what has pages left is told.
    fn drop_free(
        &self,
        entry: &MountEntry,
        files: &[(usize, File)],
        dropped: &dyn Fn(usize),
        left: &Sender<(usize, File)>,
    ) {
        self.each(entry, files, false, |at, file, opened| match opened {
            Some(opened) => {
                drop_listing(&opened);
                match has_pages(&opened) {
                    true => drop(left.send((at, file))),
                    false => dropped(at),
                }
            }
            // The kernel does not know it any more.
            None => dropped(at),
        });
    }

    fn drop_all(&self, entry: &MountEntry, files: &[(usize, File)], dropped: &dyn Fn(usize)) {
        self.each(entry, files, true, |at, _, opened| {
            if opened.as_ref().is_none_or(|opened| !has_pages(opened)) {
                dropped(at);
            }
        });
    }

    /// Opens each file, on the calling thread, which has no descriptors of the daemon's.
    fn each(
        &self,
        entry: &MountEntry,
        files: &[(usize, File)],
        anew: bool,
        mut then: impl FnMut(usize, File, Option<OwnedFd>),
    ) {
        let asking = self.ask(anew);
        let known = |tree: &OwnedFd| match kernels(tree, ROOT_INO) {
            Ok(attr) => asking.root(attr),
            Err(error) => tracing::debug!(%error, "the root of a mount"),
        };
        let root = match open_root_by(entry, &known) {
            Ok(Some(root)) => root,
            // Nobody reaches it but by what is open already.
            Ok(None) => return tracing::warn!("a mount without a place keeps its pages"),
            Err(error) => return tracing::error!(%error, "the kernel may show files as they were"),
        };
        for (at, file @ (number, generation)) in files {
            let opened = find_node(&root, *number, *generation).and_then(|found| {
                let ino = inode(*number).map_err(|_| io::Error::from_raw_os_error(libc::ESTALE))?;
                asking.file(kernels(&found, ino)?);
                open_node(&root, *number, *generation)
            });
            match opened {
                Ok(opened) => then(*at, *file, Some(opened)),
                Err(e) if matches!(e.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => {
                    then(*at, *file, None);
                }
                Err(error) => {
                    tracing::error!(%error, number, "the kernel may show a file as it was");
                }
            }
        }
    }
}

/// Parts, at most one for each thread that there may be.
fn parts<T>(mut all: Vec<T>) -> Vec<Vec<T>> {
    let size = all.len().div_ceil(THREADS).max(1);
    let mut parts = Vec::new();
    while !all.is_empty() {
        parts.push(all.split_off(all.len().saturating_sub(size)));
    }
    parts
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) {
    let started = start_apart(name, move |alone| match alone {
        Ok(()) => work(),
        Err(error) => tracing::error!(%error, "the kernel may show files as they were"),
    });
    if let Err(error) = started {
        tracing::error!(%error, "no thread: the kernel may show files as they were");
    }
}

/// The attributes that the kernel has of what a descriptor names.
fn kernels(named: &OwnedFd, ino: u32) -> io::Result<Attr> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(named, "", flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let time = |t: StatxTimestamp| Timestamp { sec: t.tv_sec, nsec: t.tv_nsec };
    let mode = u32::from(found.stx_mode);
    let kind = match mode & libc::S_IFMT {
        libc::S_IFREG => FileKind::Regular,
        libc::S_IFDIR => FileKind::Directory,
        _ => return Err(io::Error::from_raw_os_error(libc::ESTALE)),
    };
    Ok(Attr {
        ino,
        generation: 0,
        kind,
        perm: crate::kernel::convert::perm_of_mode(mode),
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        rdev: 0,
        size: found.stx_size,
        blocks: found.stx_blocks,
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        crtime: time(found.stx_btime),
        held: true,
    })
}

/// As the kernel names a file with this number.
pub(crate) fn file((ino, generation): (u32, u32)) -> File {
    let number = node(ino);
    (number, if ino == ROOT_INO { 0 } else { generation })
}
