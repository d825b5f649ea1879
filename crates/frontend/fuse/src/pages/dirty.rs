//! Whether the kernel has pages of a file that it has not sent, without a wait for any.
//!
//! cachestat(2) counts pages that are dirty or on their way. It reads the kernel's own marks, takes
//! no lock and waits for nothing. But it wants the file open, and the daemon must not have files of
//! its own mount open (`own_mount`). So a thread beside the one that opens files for their pages
//! (`pages`), with the same table of descriptors, does nothing else: a caller waits for two
//! wake-ups, and never for the kernel.

#![allow(unsafe_code)] // cachestat(2) has no wrapper

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// cachestat(2)'s number, which is the same everywhere, and which libc does not have everywhere.
const CACHESTAT: libc::c_long = 451;

/// Files that stay open at most. With more, one is closed that may have to be opened again.
const MOST: usize = 256;

/// Files of the own mount that stay open, by node, with their generations. The descriptors are
/// those of the thread that opens files and of those that it starts: no other may drop one.
#[derive(Default)]
pub(crate) struct Kept(Mutex<HashMap<u64, (u32, Arc<OwnedFd>)>>);

impl Kept {
    fn files(&self) -> MutexGuard<'_, HashMap<u64, (u32, Arc<OwnedFd>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, node: u64, generation: u32) -> Option<Arc<OwnedFd>> {
        let files = self.files();
        files.get(&node).filter(|(of, _)| *of == generation).map(|(_, file)| file.clone())
    }

    /// Keeps a file; what is returned is to be closed.
    pub(crate) fn insert(
        &self,
        (node, generation): (u64, u32),
        file: OwnedFd,
    ) -> Option<Arc<OwnedFd>> {
        let mut files = self.files();
        let other = files.keys().find(|other| **other != node).copied();
        let full = files.len() >= MOST && !files.contains_key(&node);
        let closed = other.filter(|_| full).and_then(|other| files.remove(&other));
        let before = match files.entry(node) {
            Entry::Occupied(mut entry) => Some(entry.insert((generation, Arc::new(file)))),
            Entry::Vacant(entry) => {
                entry.insert((generation, Arc::new(file)));
                None
            }
        };
        before.or(closed).map(|(_, file)| file)
    }

    pub(crate) fn remove(&self, node: u64) -> Option<Arc<OwnedFd>> {
        self.files().remove(&node).map(|(_, file)| file)
    }
}

/// A part of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    /// 0: to the end.
    pub(crate) len: u64,
}

struct Question {
    file: (u64, u32),
    part: Part,
    tell: Sender<bool>,
}

/// The way to the thread that looks.
#[derive(Default)]
pub(crate) struct Looker(OnceLock<Sender<Question>>);

impl Looker {
    /// Starts the thread; for the thread that opens files. It ends with the last reference to this.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(&self, kept: Arc<Kept>, close: Sender<Arc<OwnedFd>>) -> io::Result<()> {
        let (ask, asked) = channel();
        let body = move || answer(&asked, &kept, &close);
        std::thread::Builder::new().name("siftfs-look".into()).spawn(body)?;
        assert!(self.0.set(ask).is_ok(), "a mount is served once");
        Ok(())
    }

    /// Is it certain that the kernel has sent all pages of this part of a file? Not if the file is
    /// not open ([`Kept`]).
    pub(crate) fn is_sent(&self, file: (u64, u32), part: Part) -> bool {
        let Some(ask) = self.0.get() else { return false };
        let (tell, told) = channel();
        ask.send(Question { file, part, tell }).is_ok() && told.recv().unwrap_or(false)
    }
}

fn answer(asked: &Receiver<Question>, kept: &Kept, close: &Sender<Arc<OwnedFd>>) {
    for Question { file: (node, generation), part, tell } in asked {
        let file = kept.get(node, generation);
        let _ = tell.send(file.as_ref().is_some_and(|file| unsent(file, part) == Some(0)));
        // It may be the last one by now, and closing it may wait.
        if let Some(file) = file.and_then(Arc::into_inner) {
            let _ = close.send(Arc::new(file));
        }
    }
}

/// How many pages of an open file's part are dirty or on their way; `None` if the kernel does not
/// tell (before Linux 6.5, or none of ours).
fn unsent(file: &OwnedFd, part: Part) -> Option<u64> {
    pages(file, part).map(|pages| pages.dirty + pages.on_their_way)
}

/// Has the kernel any page of an open file? It may have, if it does not tell.
pub(crate) fn has_pages(file: &OwnedFd) -> bool {
    pages(file, Part { offset: 0, len: 0 }).is_none_or(|pages| pages.cached > 0)
}

/// Pages, of each kind.
#[derive(Default)]
#[repr(C)]
struct Pages {
    cached: u64,
    dirty: u64,
    on_their_way: u64,
    evicted: u64,
    recently_evicted: u64,
}

fn pages(file: &OwnedFd, part: Part) -> Option<Pages> {
    let (range, mut pages) = ([part.offset, part.len], Pages::default());
    // SAFETY: both arguments are as the call has them, live as long as it, and it keeps none.
    let done =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut pages, 0) };
    (done == 0).then_some(pages)
}

#[cfg(test)]
#[path = "dirty_tests.rs"]
mod tests;
