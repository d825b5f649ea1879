//! Has the kernel write or drop pages of a file, or forget its attributes, and only then goes on
//! with an answer.
//!
//! For pages the kernel waits, all with requests of its own to us. So it is asked by threads of
//! their own, never by one that has a request to read or to carry out (`pages` says how).

use crate::kernel::bounds::HELD_BACK;
use crate::kernel::convert::node;
use crate::kernel::notify::Notifier;
use crate::mount::mountinfo::MountEntry;
use crate::pages::dirty::Part;
use crate::pages::names::{Asked, Forgetter, Names, is_gone};
use crate::pages::opener::{Opener, Pages, Target, Want};
use crate::serve::open_files::OpenFiles;
use siftfs_base::InodeNr;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

pub(crate) use crate::pages::names::Then;

/// A directory and a name in it.
pub(crate) type Name = (InodeNr, Vec<u8>);

/// Directories and names that the kernel is to forget, the files whose attributes it is to forget
/// before, and what follows.
type Stale = (Vec<Names>, Vec<InodeNr>, Then);

/// The threads that ask the kernel; they end with the last reference to this.
#[derive(Default)]
pub(crate) struct Invalidator {
    pages: OnceLock<Sender<(Target, Then)>>,
    attributes: OnceLock<Sender<(InodeNr, Then)>>,
    names: OnceLock<Sender<Stale>>,
    notifier: OnceLock<Notifier>,
    pub(crate) asked: Arc<Asked>,
    opener: Arc<Opener>,
    /// Answers that are held back, [`HELD_BACK`] at most.
    waiting: AtomicUsize,
}

impl Invalidator {
    /// Starts the threads for a mount.
    ///
    /// # Errors
    /// When one cannot be started.
    pub(crate) fn start(
        &self,
        notifier: Notifier,
        entry: MountEntry,
        files: Arc<OpenFiles>,
    ) -> io::Result<()> {
        let (pages, orders) = channel();
        let (attributes, notices) = channel();
        let (names, stale) = channel();
        let own = notifier.clone();
        let worker = Pages::start(entry.clone(), self.opener.clone())?;
        let forgetter = Forgetter::start(entry, notifier.clone(), self.asked.clone())?;
        let way = notifier.clone();
        let body = move || carry_out(&orders, &worker, &way);
        std::thread::Builder::new().name("siftfs-inval".into()).spawn(body)?;
        let way = notifier.clone();
        let body = move || forget_names(stale, &way, &forgetter);
        std::thread::Builder::new().name("siftfs-links".into()).spawn(body)?;
        let body = move || notify(notices, &notifier, &files);
        std::thread::Builder::new().name("siftfs-notify".into()).spawn(body)?;
        let first = self.pages.set(pages).is_ok()
            && self.attributes.set(attributes).is_ok()
            && self.names.set(names).is_ok()
            && self.notifier.set(own).is_ok();
        assert!(first, "a mount is served once");
        Ok(())
    }

    /// Does what `target` says to the kernel's pages, and then calls `then`, on another thread.
    pub(crate) fn pages(&self, target: Target, then: Then) {
        let Some(queue) = self.pages.get() else { return then() };
        if let Err(back) = queue.send((target, then)) {
            (back.0.1)();
        }
    }

    /// Has the kernel ask for the attributes of a file before it uses them again, if it is still
    /// open for writing, and then calls `then`, on another thread. Attributes of a request that is
    /// under way meanwhile count for that request alone.
    pub(crate) fn forget_attributes(&self, ino: InodeNr, then: Then) {
        let Some(queue) = self.attributes.get() else { return then() };
        if let Err(back) = queue.send((ino, then)) {
            (back.0.1)();
        }
    }

    /// Nobody asks for the pages of `ino` so often any more.
    pub(crate) fn let_go(&self, ino: InodeNr) {
        let target = Target { node: node(ino), generation: 0, want: Want::Close };
        self.pages(target, Box::new(|| {}));
    }

    /// Has the kernel ask for the attributes of a file before it uses them again, before this
    /// returns. Only while a request about the file is not answered: an inode that the kernel is
    /// just freeing it would wait for. It takes no lock that an operation holds and looks at no
    /// page, so the thread that carries that request out can say it, and no caller can make another
    /// wait.
    pub(crate) fn forget_now(&self, ino: InodeNr) {
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.forget_attributes(node(ino))
            && !is_gone(&error)
        {
            tracing::error!(ino, %error, "the kernel may show a file's attributes as they were");
        }
    }

    /// Has the kernel ask for the attributes of `files`, some of which have fewer names now, and
    /// look up all names in `dirs` again before it uses them; then calls `then`, on another thread.
    pub(crate) fn forget_names(&self, dirs: Vec<Names>, files: Vec<InodeNr>, then: Then) {
        let Some(queue) = self.names.get() else { return then() };
        if let Err(back) = queue.send((dirs, files, then)) {
            (back.0.2)();
        }
    }

    /// Is an OPEN by thread `pid` to be answered so that the kernel drops what it has of the file?
    pub(crate) fn drops(&self, pid: u32) -> bool {
        self.opener.drops(pid)
    }

    /// Is it certain that the kernel has sent all pages of this part of a file?
    pub(crate) fn is_sent(&self, (ino, generation): (InodeNr, u32), part: Part) -> bool {
        self.opener.is_sent((node(ino), generation), part)
    }

    /// May one more answer be held back? The caller gives the place back with
    /// [`Invalidator::answered`].
    pub(crate) fn hold_back(&self) -> bool {
        let more = |n: usize| (n < HELD_BACK).then_some(n + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// An answer that was held back is sent.
    pub(crate) fn answered(&self) {
        let before = self.waiting.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "what is answered was held back");
    }
}

/// What is ordered while the kernel is at work is done at one go.
fn carry_out(orders: &Receiver<(Target, Then)>, pages: &Pages, notifier: &Notifier) {
    while let Ok(first) = orders.recv() {
        let (targets, then): (Vec<_>, Vec<_>) =
            std::iter::once(first).chain(orders.try_iter()).unzip();
        for Target { node, .. } in pages.carry_out(merged(targets)) {
            // A mount without a place (detached, with files still open) can be asked only like
            // this.
            match notifier.drop_pages(node, 0, 0) {
                Err(error) if !is_gone(&error) => {
                    tracing::error!(%error, node, "the kernel does not drop its pages");
                }
                _ => {}
            }
        }
        then.into_iter().for_each(|then| then());
    }
}

/// Each file once, and once more if it need not stay open any more: that comes last, whatever the
/// order was in which it was said.
fn merged(mut targets: Vec<Target>) -> Vec<Target> {
    targets.sort_unstable_by_key(|t| (t.node, t.want));
    targets.dedup_by_key(|t| (t.node, t.want == Want::Close));
    targets
}

fn forget_names(stale: Receiver<Stale>, notifier: &Notifier, forgetter: &Forgetter) {
    for (dirs, files, then) in stale {
        for ino in files {
            if let Err(error) = notifier.forget_attributes(node(ino))
                && !is_gone(&error)
            {
                tracing::error!(ino, %error, "the kernel may show a file's links as they were");
            }
        }
        forgetter.forget(dirs, then);
    }
}

fn notify(notices: Receiver<(InodeNr, Then)>, notifier: &Notifier, files: &OpenFiles) {
    for (ino, then) in notices {
        if files.is_written(ino)
            && let Err(error) = notifier.forget_attributes(node(ino))
            && !is_gone(&error)
        {
            tracing::warn!(ino, %error, "the next write may not hear that it is refused");
        }
        then();
    }
}

#[cfg(test)]
#[path = "invalidator_tests.rs"]
mod tests;
