//! Has the kernel look names up again, and read directories again.
//!
//! The kernel does that under the directory's lock, and a user who may read a directory can keep
//! its lock for as long as he likes: getdents(2) copies entries into his memory, which may be a
//! page that a server of his own does not bring. So each directory is waited for by itself.
//!
//! FUSE_NOTIFY_INVAL_ENTRY would be a write(2) on `/dev/fuse` that waits for that lock, which
//! nothing interrupts: a daemon killed meanwhile would keep the connection alive for ever.
//! FUSE_NOTIFY_INC_EPOCH waits for nothing, but every name of the mount is then dropped where a
//! path meets it, and with a directory's name all mounts below it: one publish would take them
//! away.
//!
//! So a thread without the daemon's descriptors (`own_mount`) calls mknod(2) with the name. For
//! that the kernel asks by LOOKUP whatever it knows, because the name must be new, and keeps the
//! answer. The thread uses a copy of the mount that is read-only, so nothing is made if the name is
//! free. Where there are no such copies, the MKNOD that follows is known by the thread's number,
//! and refused ([`Asked`]). The entries that the kernel has of a directory are those of an mtime:
//! that thread has it ask for the directory's attributes.

use crate::kernel::notify::Notifier;
use crate::kernel::request::Operation;
use crate::mount::mountinfo::MountEntry;
use crate::pages::handles::open_node;
use crate::pages::own_mount::{drop_listing, open_root_to_look, start_apart};
use rustix::fs::{AtFlags, FileType, Mode, StatxFlags, mknodat, statx};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What follows when the kernel has done what it was asked for.
pub(crate) type Then = Box<dyn FnOnce() + Send>;

/// Calls what follows when it is dropped, also with a thread that could not be started.
pub(crate) struct Last(Mutex<Option<Then>>);

impl Last {
    pub(crate) fn new(then: Then) -> Self {
        Self(Mutex::new(Some(then)))
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let then = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(then) = then {
            then();
        }
    }
}

/// Threads that are kept while they have nothing to do.
const IDLE: usize = 4;
/// How often the kernel is asked for attributes that it does not take.
const ATTEMPTS: u32 = 8;
/// How often a thread is asked for again that could not be had.
const AGAIN: Duration = Duration::from_millis(100);
/// The node of the mount's root, which has no generation in the kernel.
const ROOT: u64 = 1;

/// Names in one directory.
pub(crate) struct Names {
    pub(crate) node: u64,
    pub(crate) generation: u32,
    pub(crate) names: BTreeSet<Vec<u8>>,
}

/// What the threads of this module have the kernel ask for, as the server sees it.
#[derive(Default)]
pub(crate) struct Asked {
    /// Calls under way: with none of them no request has to be looked at.
    count: AtomicUsize,
    calls: Mutex<HashMap<u32, Call>>,
}

/// A call of one thread.
struct Call {
    node: u64,
    /// None if the directory's attributes are asked for.
    name: Option<Vec<u8>>,
    /// The kernel has asked.
    seen: bool,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The errno of a request by thread `pid` about `node`, if one of these threads causes it and
    /// it is not to be carried out.
    pub(crate) fn refusal(&self, pid: u32, node: u64, op: &Operation<'_>) -> Option<i32> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let (wanted, errno) = match op {
            Operation::Lookup { name } => (Some(*name), None),
            Operation::GetAttr { .. } | Operation::Statx => (None, None),
            // The kernel keeps what it was told of the name before.
            Operation::MakeNode { name, .. } => (Some(*name), Some(libc::EPERM)),
            _ => return None,
        };
        let mut calls = self.lock();
        let call = calls.get_mut(&pid).filter(|c| c.node == node && c.name.as_deref() == wanted)?;
        call.seen = true;
        errno
    }

    /// Calls `act` on the calling thread. Has the kernel asked for it?
    fn during<T>(&self, node: u64, name: Option<&[u8]>, act: impl FnOnce() -> T) -> (T, bool) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let call = Call { node, name: name.map(<[u8]>::to_vec), seen: false };
        self.lock().insert(thread, call);
        self.count.fetch_add(1, Ordering::SeqCst);
        let result = act();
        self.count.fetch_sub(1, Ordering::SeqCst);
        let seen = self.lock().remove(&thread).is_some_and(|call| call.seen);
        (result, seen)
    }
}

/// What the thread that hands the work out is told.
enum Word {
    Stale {
        dirs: Vec<Names>,
        then: Arc<Last>,
    },
    /// A directory is done, but for the names in `left`.
    Done {
        node: u64,
        left: BTreeSet<Vec<u8>>,
    },
    End,
}

/// The threads that ask the kernel; they end when this is dropped and they have nothing to do.
pub(crate) struct Forgetter(Sender<Word>);

impl Drop for Forgetter {
    fn drop(&mut self) {
        let _ = self.0.send(Word::End);
    }
}

impl Forgetter {
    /// Starts the thread that hands the work out, for a mount.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(
        entry: MountEntry,
        notifier: Notifier,
        asked: Arc<Asked>,
    ) -> io::Result<Self> {
        let (tell, told) = channel();
        let own = tell.clone();
        let (dirs, idle, pending) = (HashMap::new(), Vec::new(), Vec::new());
        let desk = Desk { entry, notifier, asked, tell: own, dirs, idle, pending };
        std::thread::Builder::new().name("siftfs-names".into()).spawn(move || desk.run(&told))?;
        Ok(Self(tell))
    }

    /// Has the kernel look up all names in `dirs`, and read these directories, again before it uses
    /// what it knows; then follows `then`. A directory whose lock is held delays its own names.
    pub(crate) fn forget(&self, dirs: Vec<Names>, then: Then) {
        let then = Arc::new(Last::new(then));
        // A mount that has ended has nothing to forget: what follows is called here then.
        let _ = self.0.send(Word::Stale { dirs, then });
    }
}

/// A directory that a thread is at work on.
struct Dir {
    worker: Sender<Names>,
    /// What follows the work under way.
    under_way: Vec<Arc<Last>>,
    /// Names that came since.
    next: BTreeSet<Vec<u8>>,
    then: Vec<Arc<Last>>,
    generation: u32,
}

/// What the thread has that hands the work out. No worker has any of it: a worker has none of the
/// descriptors that are needed to answer.
struct Desk {
    entry: MountEntry,
    notifier: Notifier,
    asked: Arc<Asked>,
    tell: Sender<Word>,
    dirs: HashMap<u64, Dir>,
    idle: Vec<Sender<Names>>,
    /// What no thread could be had for, and what follows it.
    pending: Vec<(Names, Arc<Last>)>,
}

impl Desk {
    fn run(mut self, told: &Receiver<Word>) {
        let mut ended = false;
        while !ended || !self.dirs.is_empty() {
            let word = match self.pending.is_empty() {
                true => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => told.recv_timeout(AGAIN),
            };
            for (names, then) in std::mem::take(&mut self.pending) {
                self.add(names, then);
            }
            match word {
                Ok(Word::Stale { dirs, then }) => {
                    dirs.into_iter().for_each(|names| self.add(names, then.clone()));
                }
                Ok(Word::Done { node, left }) => self.done(node, left),
                Ok(Word::End) => ended = true,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn add(&mut self, order: Names, then: Arc<Last>) {
        if let Some(dir) = self.dirs.get_mut(&order.node) {
            dir.next.extend(order.names);
            dir.then.push(then);
            return;
        }
        let worker = match self.idle.pop().map_or_else(|| self.worker(), Ok) {
            Ok(worker) => worker,
            Err(error) => {
                tracing::warn!(%error, "no thread: a call waits until its names can be told");
                self.pending.push((order, then));
                return;
            }
        };
        let (node, generation, next) = (order.node, order.generation, BTreeSet::new());
        let _ = worker.send(order);
        let dir = Dir { worker, under_way: vec![then], next, then: Vec::new(), generation };
        self.dirs.insert(node, dir);
    }

    fn worker(&self) -> io::Result<Sender<Names>> {
        let (give, given) = channel();
        let (entry, asked, tell) = (self.entry.clone(), self.asked.clone(), self.tell.clone());
        start_apart("siftfs-dir", move |alone| work(&alone, (&entry, &asked), &given, &tell))?;
        Ok(give)
    }

    fn done(&mut self, node: u64, left: BTreeSet<Vec<u8>>) {
        let Some(mut dir) = self.dirs.remove(&node) else { return };
        let follows = std::mem::take(&mut dir.under_way);
        if !left.is_empty() {
            self.notice(node, left, follows);
        }
        if dir.then.is_empty() {
            if self.idle.len() < IDLE {
                self.idle.push(dir.worker);
            }
            return;
        }
        dir.under_way = std::mem::take(&mut dir.then);
        let (names, generation) = (std::mem::take(&mut dir.next), dir.generation);
        let _ = dir.worker.send(Names { node, generation, names });
        self.dirs.insert(node, dir);
    }

    /// A mount without a place (detached, with files still open) can be told of names like this
    /// only. It waits for the directory's lock, so it has a thread of its own.
    fn notice(&self, node: u64, names: BTreeSet<Vec<u8>>, follows: Vec<Arc<Last>>) {
        let notifier = self.notifier.clone();
        let body = move || {
            for name in names {
                if let Err(error) = notifier.forget_name(node, &name)
                    && !is_gone(&error)
                {
                    tracing::error!(node, %error, "the kernel may show a name as it was");
                }
            }
            drop(follows);
        };
        if let Err(error) = std::thread::Builder::new().name("siftfs-notice".into()).spawn(body) {
            tracing::error!(%error, "no thread: the kernel may show names as they were");
        }
    }
}

/// The kernel does not know the file any more, or is gone itself: nothing is stale.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ENOTCONN))
}

/// A thread that has none of the daemon's descriptors.
fn work(
    alone: &io::Result<()>,
    (entry, asked): (&MountEntry, &Asked),
    given: &Receiver<Names>,
    tell: &Sender<Word>,
) {
    for order in given {
        let node = order.node;
        let left = match alone {
            Ok(()) => forget(entry, asked, order),
            Err(_) => order.names,
        };
        if tell.send(Word::Done { node, left }).is_err() {
            return;
        }
    }
}

/// Returns the names for which the kernel could not be made to ask.
fn forget(entry: &MountEntry, asked: &Asked, order: Names) -> BTreeSet<Vec<u8>> {
    let Names { node, generation, mut names } = order;
    let generation = if node == ROOT { 0 } else { generation };
    let dir = match open_root_to_look(entry) {
        Ok(Some(root)) => open_node(&root, node, generation),
        _ => return names,
    };
    let dir = match dir {
        Ok(dir) => dir,
        // The kernel does not know it any more.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => {
            return BTreeSet::new();
        }
        Err(_) => return names,
    };
    // Where the thread's requests are not known for its own, no name is made.
    if !refresh(asked, &dir, node) {
        return names;
    }
    drop_listing(&dir);
    names.retain(|name| {
        let make = || mknodat(&dir, name.as_slice(), FileType::RegularFile, Mode::RUSR, 0);
        let (result, seen) = asked.during(node, Some(name), make);
        // Nothing is looked up in a directory that was removed.
        !seen && !result.is_err_and(|e| is_gone(&e.into()))
    });
    names
}

/// Has the kernel take the directory's attributes, and with them the mtime by which it knows that
/// entries are old. False if the request was not known.
fn refresh(asked: &Asked, dir: &OwnedFd, node: u64) -> bool {
    let known = |sync| {
        let changed = statx(dir, "", AtFlags::EMPTY_PATH | sync, StatxFlags::MTIME).ok()?;
        Some((changed.stx_mtime.tv_sec, changed.stx_mtime.tv_nsec))
    };
    let mut all = true;
    for _ in 0..ATTEMPTS {
        let (told, seen) = asked.during(node, None, || known(AtFlags::STATX_FORCE_SYNC));
        all &= seen || told.is_none();
        // An answer that another request's overtook does not count.
        if told == known(AtFlags::STATX_DONT_SYNC) {
            break;
        }
    }
    all
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
