//! Changes of times that the kernel owns, beside the times that it sends.
//!
//! With its writeback cache the kernel has times of its own for each file in memory. It sends them
//! by SETATTR when it writes the inode back: with fsync(2), with close(2) and by age. Such a
//! request says nothing of when it was made, so it may be older than a time that the daemon has set
//! by itself meanwhile (a compound does), and must not undo it. Three rules see to that:
//!
//! * While the daemon changes files by itself, times that the kernel sends for them wait
//!   ([`Turn`]).
//! * From then on they are left out, because they may be older, until the kernel has taken the
//!   daemon's times and has no request from before under way ([`Untold`]). If the daemon changed
//!   the ctime alone, that is left out alone: the mtime is as young as the daemon's.
//! * Then the daemon asks the kernel for its times and takes those, because what was left out may
//!   have been younger. It asks when no utimensat(2) that was left out is under way any more. If
//!   the kernel sends times before the answer is used, those count: they are at least as young.
//!
//! So whatever the order is, both have the same times in the end, and they are the younger ones.

use siftfs_base::InodeNr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What becomes of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// They count, and the file's turn is taken to carry them out.
    Count,
    /// The same of the mtime; the ctime does not.
    Mtime,
    /// They do not.
    LeftOut,
    /// Something else has the file's turn.
    Wait,
}

/// What the daemon changed of a file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    All,
    Ctime,
}

/// What becomes of times that the kernel sends.
pub(crate) enum Sent {
    /// They count, and are to be carried out in this turn.
    All(Turn),
    /// The mtime does, and the ctime may be older than the daemon's.
    Mtime(Turn),
    /// They may be older.
    LeftOut,
}

/// Where a file's times are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Times {
    /// They are being changed, by whom ever.
    busy: bool,
    /// Changes of the daemon's that the kernel has not taken.
    untold: u32,
    /// Those of the ctime alone.
    ctimes: u32,
    /// The kernel is being told of one.
    telling: bool,
    /// The kernel has sent times since it took the last change.
    sent: bool,
}

impl Times {
    /// The daemon is about to change the file. False if it has to wait.
    fn take_turn(&mut self) -> bool {
        !std::mem::replace(&mut self.busy, true)
    }

    fn end_turn(&mut self) {
        self.busy = false;
    }

    /// The daemon changed the file, while it has the turn.
    fn changed(&mut self, what: What) {
        *self.count(what) += 1;
    }

    fn count(&mut self, what: What) -> &mut u32 {
        match what {
            What::All => &mut self.untold,
            What::Ctime => &mut self.ctimes,
        }
    }

    /// The kernel sends its times.
    fn sent(&mut self) -> Fate {
        match self {
            Self { untold: 1.., .. } => Fate::LeftOut,
            Self { busy: true, .. } => Fate::Wait,
            _ => {
                (self.busy, self.sent) = (true, true);
                if self.ctimes > 0 { Fate::Mtime } else { Fate::Count }
            }
        }
    }

    /// The kernel is about to be told of a change. False if that has to wait.
    fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.telling, true)
    }

    /// It has taken the change, or cannot be told; no older times are on their way.
    fn taken(&mut self, what: What) {
        *self.count(what) -= 1;
        self.sent = false;
    }

    /// The kernel was asked for its times after it had taken a change.
    fn answered(&mut self) -> Fate {
        match self {
            Self { untold: 1.., .. } | Self { ctimes: 1.., .. } | Self { sent: true, .. } => {
                Fate::LeftOut
            }
            Self { busy: true, .. } => Fate::Wait,
            _ => {
                self.busy = true;
                Fate::Count
            }
        }
    }

    fn told(&mut self) {
        self.telling = false;
    }

    fn is_quiet(&self) -> bool {
        !self.busy && self.untold == 0 && self.ctimes == 0 && !self.telling
    }
}

/// The files whose times are on their way from or to the kernel.
#[derive(Default)]
pub(crate) struct KernelTimes {
    files: Mutex<HashMap<InodeNr, Times>>,
    /// A turn has ended, or a telling.
    ended: Condvar,
}

impl KernelTimes {
    fn files(&self) -> MutexGuard<'_, HashMap<InodeNr, Times>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `step` on `ino`, again and again until it says something.
    fn until<T>(&self, ino: InodeNr, mut step: impl FnMut(&mut Times) -> Option<T>) -> T {
        let mut files = self.files();
        loop {
            if let Some(done) = step(files.entry(ino).or_default()) {
                if files.get(&ino).is_some_and(Times::is_quiet) {
                    files.remove(&ino);
                }
                self.ended.notify_all();
                return done;
            }
            files = self.ended.wait(files).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn at_once(&self, ino: InodeNr, step: impl FnOnce(&mut Times)) {
        let mut step = Some(step);
        self.until(ino, |times| step.take().map(|step| step(times)));
    }

    /// The kernel sends times of `ino`.
    pub(crate) fn sent(self: &Arc<Self>, ino: InodeNr) -> Sent {
        let turn = || Turn { times: self.clone(), files: vec![ino] };
        match self.fate(ino, Times::sent) {
            Fate::Count => Sent::All(turn()),
            Fate::Mtime => Sent::Mtime(turn()),
            Fate::LeftOut | Fate::Wait => Sent::LeftOut,
        }
    }

    fn fate(&self, ino: InodeNr, step: fn(&mut Times) -> Fate) -> Fate {
        self.until(ino, |times| match step(times) {
            Fate::Wait => None,
            fate => Some(fate),
        })
    }

    /// The daemon is about to change these files. Two that want the same ones get them in the order
    /// of their numbers, so neither waits for what the other has while that one waits for it.
    pub(crate) fn turn(self: &Arc<Self>, files: impl IntoIterator<Item = InodeNr>) -> Turn {
        let mut wanted: Vec<_> = files.into_iter().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut turn = Turn { times: self.clone(), files: Vec::new() };
        for ino in wanted {
            self.until(ino, |times| times.take_turn().then_some(()));
            turn.files.push(ino);
        }
        turn
    }
}

/// Files whose times nobody else changes until this is dropped.
pub(crate) struct Turn {
    times: Arc<KernelTimes>,
    files: Vec<InodeNr>,
}

impl Turn {
    /// The daemon has changed `ino`. (One that is not of this turn was found by another name than
    /// before: times that the kernel sent for it in between may count.)
    pub(crate) fn changed(&self, ino: InodeNr) -> Untold {
        self.untold(ino, What::All)
    }

    /// The daemon has changed the ctime of `ino`, and neither its mtime nor its size.
    pub(crate) fn changed_ctime(&self, ino: InodeNr) -> Untold {
        self.untold(ino, What::Ctime)
    }

    fn untold(&self, ino: InodeNr, what: What) -> Untold {
        self.times.at_once(ino, |times| times.changed(what));
        Untold { times: self.times.clone(), ino, what, taken: AtomicBool::new(false) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.files.iter().for_each(|ino| self.times.at_once(*ino, Times::end_turn));
    }
}

/// A change of a file's times by the daemon that the kernel has not taken. Dropped, it counts as
/// taken: times that the kernel sends count again.
pub(crate) struct Untold {
    times: Arc<KernelTimes>,
    pub(crate) ino: InodeNr,
    what: What,
    taken: AtomicBool,
}

impl Untold {
    /// Nobody else tells the kernel of this file until what is returned is dropped. The times to
    /// tell are to be read then: they may be younger than this change.
    pub(crate) fn tell(self) -> Telling {
        self.times.until(self.ino, |times| times.tell().then_some(()));
        Telling(Arc::new(self))
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if !self.taken.swap(true, Ordering::SeqCst) {
            self.times.at_once(self.ino, |times| times.taken(self.what));
        }
    }
}

/// The kernel is being told of a change.
pub(crate) struct Telling(Arc<Untold>);

impl Telling {
    /// What is to be called when the kernel has taken the times, and sends no older ones any more:
    /// by the thread that sees to that, before it asks the kernel for its times.
    pub(crate) fn taken(&self) -> Box<dyn FnOnce() + Send> {
        let untold = self.0.clone();
        Box::new(move || {
            if !untold.taken.swap(true, Ordering::SeqCst) {
                untold.times.at_once(untold.ino, |times| times.taken(untold.what));
            }
        })
    }

    /// The kernel was asked after that. Are its times to be taken, in this turn?
    pub(crate) fn answered(&self) -> Option<Turn> {
        let (times, ino) = (&self.0.times, self.0.ino);
        let counts = times.fate(ino, Times::answered) == Fate::Count;
        counts.then(|| Turn { times: times.clone(), files: vec![ino] })
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.times.at_once(self.0.ino, Times::told);
    }
}

#[cfg(test)]
#[path = "kernel_times_tests.rs"]
mod tests;
