//! Has the kernel drop pages of a file, and only then goes on with an answer.
//!
//! The kernel waits for pages that are being read or written and writes dirty ones first, all with
//! requests of its own to us. So it is asked by a thread of its own, never by one that has
//! a request to read or to carry out.

use crate::kernel::notify::Notifier;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

struct Job {
    node: u64,
    /// Byte range; to the end of the file if the end is `u64::MAX`.
    range: (u64, u64),
    then: Box<dyn FnOnce() + Send>,
}

/// The thread that asks the kernel; it ends with the last reference to this.
#[derive(Default)]
pub(crate) struct Invalidator {
    queue: OnceLock<Sender<Job>>,
    /// Answers that may be held back at a time. They take places that requests of the kernel have, and
    /// those that it needs to drop a page must find some.
    most: AtomicUsize,
    waiting: AtomicUsize,
}

impl Invalidator {
    /// Starts the thread. At most `most` answers are held back at a time.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(&self, notifier: Notifier, most: usize) -> io::Result<()> {
        self.most.store(most, Ordering::SeqCst);
        let (sender, jobs) = channel();
        let body = move || run(&jobs, &notifier);
        std::thread::Builder::new().name("siftfs-inval".into()).spawn(body)?;
        let started = self.queue.set(sender);
        assert!(started.is_ok(), "a mount is served once");
        Ok(())
    }

    /// Drops the kernel's pages of a byte range, dirty ones written first, and then calls `then`, on
    /// another thread.
    pub(crate) fn drop_pages(&self, node: u64, range: (u64, u64), then: Box<dyn FnOnce() + Send>) {
        let Some(queue) = self.queue.get() else { return then() };
        if let Err(back) = queue.send(Job { node, range, then }) {
            (back.0.then)();
        }
    }

    /// May one more answer be held back? The caller gives the place back with
    /// [`Invalidator::answered`].
    pub(crate) fn hold_back(&self) -> bool {
        let more = |n: usize| (n < self.most.load(Ordering::SeqCst)).then_some(n + 1);
        self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// An answer that was held back is sent.
    pub(crate) fn answered(&self) {
        let before = self.waiting.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "what is answered was held back");
    }
}

fn run(jobs: &Receiver<Job>, notifier: &Notifier) {
    for Job { node, range: (start, end), then } in jobs {
        let len = if end == u64::MAX { 0 } else { end - start };
        match notifier.drop_pages(node, start, len) {
            // The kernel does not know the file any more, or is gone itself: nothing is stale.
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ENOENT | libc::ENODEV | libc::ENOTCONN)
                ) => {}
            Err(error) => tracing::error!(%error, node, "the kernel does not drop its pages"),
            Ok(()) => {}
        }
        then();
    }
}
