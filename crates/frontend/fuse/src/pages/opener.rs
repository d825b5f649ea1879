//! Has the kernel write or drop its pages of files, by opening them.
//!
//! FUSE_NOTIFY_INVAL_INODE does it as well, but is a write(2) on `/dev/fuse` that waits in the
//! kernel for pages, which nothing interrupts: a daemon killed meanwhile would keep the connection
//! alive for ever. A thread with descriptors of its own (`own_mount`) opens the file instead: an
//! OPEN that is answered without FOPEN_KEEP_CACHE makes the kernel drop all pages of the file,
//! dirty ones written first, and takes no lock that a request holds. sync_file_range(2) writes
//! pages and leaves them.
//!
//! Opening by handle costs the program that works with the file more than the OPEN: the kernel
//! looks the file's name up again. A file that is asked about before each of many short operations
//! stays open in between ([`Want::Keep`]), and then it can be seen whether it has such pages at all
//! (`dirty`). It lies on a mount of its own (`own_mount`), so umount(2) does not find it in use;
//! but the session ends only when it is closed.

use crate::mount::mountinfo::MountEntry;
use crate::pages::dirty::{Kept, Looker, Part};
use crate::pages::handles::open_node;
use crate::pages::own_mount::{open_root, start_apart, write_pages};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// What is wanted of the kernel's pages of a file. Of two things that are wanted of one file the
/// first in this order is enough, but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// They are written and dropped.
    Drop,
    /// They are written, and will be again soon: the file stays open.
    Keep,
    /// They are written.
    Write,
    /// Nothing, and the file need not stay open any more.
    Close,
}

/// A file, and what is wanted of the kernel's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) node: u64,
    pub(crate) generation: u32,
    pub(crate) want: Want,
}

/// The thread that opens files, as the server sees it.
#[derive(Default)]
pub(crate) struct Opener {
    /// The thread's number in the kernel's requests; 0 before it runs.
    thread: AtomicU32,
    dropping: AtomicBool,
    looker: Looker,
}

impl Opener {
    /// Is it certain that the kernel has sent all pages of this part of a file? It can only be of a
    /// file that stays open. This waits for no request.
    pub(crate) fn is_sent(&self, (node, generation): (u64, u32), part: Part) -> bool {
        self.looker.is_sent((node, generation), part)
    }

    /// Is an OPEN by thread `pid` to be answered so that the kernel drops what it has of the file?
    pub(crate) fn drops(&self, pid: u32) -> bool {
        pid != 0
            && self.thread.load(Ordering::SeqCst) == pid
            && self.dropping.load(Ordering::SeqCst)
    }
}

/// The way to that thread, which ends with it.
pub(crate) struct Pages {
    orders: Sender<Vec<Target>>,
    done: Receiver<Vec<Target>>,
}

impl Pages {
    /// Starts the thread for a mount.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(entry: MountEntry, opener: Arc<Opener>) -> io::Result<Self> {
        let (orders, ordered) = channel();
        let (tell, done) = channel();
        start_apart("siftfs-pages", move |alone| {
            if alone.is_ok() {
                Worker { entry, opener, kept: Arc::default() }.run(&ordered, &tell);
            }
        })?;
        Ok(Self { orders, done })
    }

    /// Waits until the kernel has done what is wanted of each target. Returns the targets that
    /// could not be processed; deleted files count as done.
    pub(crate) fn carry_out(&self, targets: Vec<Target>) -> Vec<Target> {
        match self.orders.send(targets.clone()) {
            Ok(()) => self.done.recv().unwrap_or(targets),
            Err(_) => targets,
        }
    }
}

struct Worker {
    entry: MountEntry,
    opener: Arc<Opener>,
    kept: Arc<Kept>,
}

impl Worker {
    fn run(self, orders: &Receiver<Vec<Target>>, tell: &Sender<Vec<Target>>) {
        let (close, closed) = channel::<Arc<OwnedFd>>();
        // close(2) writes pages, and before Linux 6.16 wants the lock of the file, whose holder may
        // wait for the next order. That thread has the same descriptors as this one, which starts
        // it.
        let closer = move || closed.into_iter().for_each(drop);
        if std::thread::Builder::new().name("siftfs-close".into()).spawn(closer).is_err() {
            return;
        }
        if let Err(error) = self.opener.looker.start(self.kept.clone(), close.clone()) {
            tracing::error!(%error, "no thread: each SEEK has the kernel write a file's pages");
        }
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        self.opener.thread.store(thread, Ordering::SeqCst);
        for targets in orders {
            if tell.send(self.carry_out(targets, &close)).is_err() {
                return;
            }
        }
    }

    fn carry_out(&self, mut targets: Vec<Target>, close: &Sender<Arc<OwnedFd>>) -> Vec<Target> {
        let end = |file| close.send(file).expect("the other thread runs as long as this one");
        let end_new = |file| end(Arc::new(file));
        targets.retain(|target| !self.has_open(target, end));
        if targets.is_empty() {
            return targets;
        }
        let Ok(Some(root)) = open_root(&self.entry) else { return targets };
        targets.retain(|target| match self.one(&root, target) {
            Ok(file) if target.want == Want::Keep => {
                let before = self.kept.insert((target.node, target.generation), file);
                before.into_iter().for_each(end);
                false
            }
            Ok(file) => {
                end_new(file);
                false
            }
            // The kernel does not know it any more.
            Err(e) => !matches!(e.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)),
        });
        end_new(root);
        targets
    }

    /// Is it done with what is open?
    fn has_open(&self, target: &Target, end: impl Fn(Arc<OwnedFd>)) -> bool {
        match target.want {
            Want::Drop => false,
            Want::Close => {
                self.kept.remove(target.node).into_iter().for_each(end);
                true
            }
            Want::Keep | Want::Write => match self.kept.get(target.node, target.generation) {
                Some(file) => {
                    let _ = write_pages(&file);
                    true
                }
                None => false,
            },
        }
    }

    fn one(&self, root: &OwnedFd, target: &Target) -> io::Result<OwnedFd> {
        let drops = target.want == Want::Drop;
        self.opener.dropping.store(drops, Ordering::SeqCst);
        let file = open_node(root, target.node, target.generation)?;
        if !drops {
            // What could not be written is the WRITE requests' to know.
            let _ = write_pages(&file);
        }
        Ok(file)
    }
}
