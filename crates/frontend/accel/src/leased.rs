//! A file of which the program has the lease.

use crate::Through;
use crate::cache::{Cache, PAGE};
use crate::medium::{Medium, boot_time};
use crate::session::Shared;
use rustix::time::{ClockId, clock_gettime};
use siftfs_lease::{Answer, Ask, FULL, Held, MOST_DATA, Place, Publish, lasts, log_promises};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A leased file. It may be used by several threads. The lease ends when it is dropped, or before:
/// then every call answers [`Through::Mount`], but for errors of earlier writes, which
/// [`Leased::sync`] tells.
pub struct Leased {
    pub(crate) shared: Arc<Shared>,
    pub(crate) held: Held,
    /// The file's inode, as the mount numbers it.
    pub(crate) ino: u64,
    returned: bool,
    /// Taken before the session's writer, and never while something is asked.
    cache: Mutex<Cache>,
}

/// What made a file durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The session's own log.
    Log,
    /// A flush at the target.
    Target,
    /// The daemon: the session has no log.
    Daemon,
    /// The daemon, which has had the log forget what it had: the log was no way for this, because
    /// others have made an order that an fsync(2) must not overtake, say. It costs more than an
    /// fsync(2) of the mount.
    DaemonBesideLog,
}

impl Leased {
    pub(crate) fn new(shared: Arc<Shared>, held: Held, ino: u64) -> Self {
        Self { shared, held, ino, returned: false, cache: Mutex::default() }
    }

    /// Writes all of `bytes` at `offset`. It survives the end of this program when it returns, and
    /// is durable after [`Leased::sync`]. By the mount: what is too long for a record, beyond the
    /// largest file, or not to be had otherwise.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Through<usize> {
        match self.write(Place::At(offset), bytes) {
            Through::Lease(_) => Through::Lease(bytes.len()),
            Through::Mount => Through::Mount,
        }
    }

    /// Writes all of `bytes` at the file's end; answers where that was.
    pub fn append(&self, bytes: &[u8]) -> Through<u64> {
        self.write(Place::End, bytes)
    }

    fn write(&self, place: Place, bytes: &[u8]) -> Through<u64> {
        // A second try is after an ingestion, which others may have filled up meanwhile.
        for _ in 0..2 {
            if !self.shared.is_usable() {
                return Through::Mount;
            }
            let publish = self.publish(place, bytes);
            if let Publish::Published(published) = publish {
                let done = self.shared.settle(&published);
                return done.map_or(Through::Mount, Through::Lease);
            }
            if !self.shared.after(&publish) {
                return Through::Mount;
            }
        }
        Through::Mount
    }

    /// Publishes a write. The cache has it in the order of all writes.
    fn publish(&self, place: Place, bytes: &[u8]) -> Publish {
        let mut cache = self.cache();
        let mut writer = self.shared.writer();
        let size = writer.size(self.held).unwrap_or(0);
        let publish = writer.publish(self.held, place, bytes, now());
        drop(writer);
        if let Publish::Published(published) = &publish {
            cache.wrote(published.offset, bytes, size, &self.shared.cached);
        }
        publish
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads into `bytes`, and answers how many there were: fewer at the file's end. What was read
    /// or written before needs no question to the daemon, within bounds.
    ///
    /// # Errors
    /// Those of read(2); `EBADF` if the program may not read the file by the descriptor that the
    /// lease was taken with.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<Through<usize>> {
        if !self.shared.is_usable() {
            return Ok(Through::Mount);
        }
        let (known, state) = {
            let cache = self.cache();
            let Some(size) = self.shared.writer().size(self.held) else {
                return Ok(Through::Mount);
            };
            let there = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let there = there.min(bytes.len());
            let known = bytes.get_mut(..there).is_some_and(|into| cache.read(offset, into));
            (known.then_some(there), cache.state())
        };
        match known {
            Some(read) if lasts(&*self.shared.view, &FULL, self.held) => Ok(Through::Lease(read)),
            Some(_) => Ok(Through::Mount),
            None => self.ask_for(offset, bytes, state),
        }
    }

    /// Asks the daemon for bytes, by whole pages, and keeps what it gets, if nothing was written
    /// since this state.
    fn ask_for(&self, offset: u64, bytes: &mut [u8], state: u64) -> io::Result<Through<usize>> {
        let begin = offset - offset % PAGE as u64;
        let Some(end) = offset.checked_add(bytes.len() as u64) else { return Ok(Through::Mount) };
        let (mut at, mut read) = (begin, 0);
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(MOST_DATA).min(MOST_DATA);
            let len = len.next_multiple_of(PAGE).min(MOST_DATA);
            let asked = u32::try_from(len).expect("a packet is short");
            let ask = Ask::Read { held: self.held, offset: at, len: asked };
            let data = match self.shared.ask(ask, len) {
                Some(Answer::Data(data)) if data.len() <= len => data,
                Some(Answer::Failed(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                Some(Answer::Ended) | None => return Ok(Through::Mount),
                Some(_) => return Ok(self.odd()),
            };
            // The first page may begin before what is wanted.
            let skip = usize::try_from(offset.saturating_sub(at)).unwrap_or(usize::MAX);
            let wanted = data.get(skip..).unwrap_or_default();
            let into = bytes.get_mut(read..).unwrap_or_default();
            let part = wanted.len().min(into.len());
            into.iter_mut().zip(wanted).for_each(|(to, from)| *to = *from);
            read += part;
            self.cache().insert(state, at, &data, &self.shared.cached);
            if data.len() < len {
                break;
            }
            at += len as u64;
        }
        Ok(Through::Lease(read))
    }

    /// The file's size in bytes.
    pub fn len(&self) -> Through<u64> {
        if !self.shared.is_usable() {
            return Through::Mount;
        }
        let size = self.shared.writer().size(self.held);
        match size {
            Some(size) if lasts(&*self.shared.view, &FULL, self.held) => Through::Lease(size),
            _ => Through::Mount,
        }
    }

    /// Is the file empty? As [`Leased::len`].
    pub fn is_empty(&self) -> Through<bool> {
        match self.len() {
            Through::Lease(len) => Through::Lease(len == 0),
            Through::Mount => Through::Mount,
        }
    }

    /// fsync(2), or fdatasync(2) for `datasync`.
    ///
    /// # Errors
    /// Those of fsync(2), once: what was written could not be taken in, also of a lease that has
    /// ended since.
    pub fn sync(&self, datasync: bool) -> io::Result<Through<()>> {
        self.sync_by(datasync).map(|through| match through {
            Through::Lease(_) => Through::Lease(()),
            Through::Mount => Through::Mount,
        })
    }

    /// As [`Leased::sync`]; answers what made it durable.
    ///
    /// # Errors
    /// As there.
    pub fn sync_by(&self, datasync: bool) -> io::Result<Through<By>> {
        if !self.shared.is_usable() {
            return Ok(Through::Mount);
        }
        let published = self.shared.writer().published();
        let mut medium = self.shared.medium();
        if self.log(&mut medium, published) {
            return Ok(Through::Lease(By::Log));
        }
        let fsync = Ask::Fsync { held: self.held, datasync, log: medium.end() };
        match self.shared.ask(fsync, 0) {
            Some(Answer::Done) => {
                let Medium::Own(log) = &mut *medium else { return Ok(Through::Lease(By::Daemon)) };
                // It made all files durable that the log is a way for.
                log.durable = log.durable.max(published);
                self.shared.writer().promised(published);
                Ok(Through::Lease(By::DaemonBesideLog))
            }
            Some(Answer::Failed(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Answer::Ended) | None => Ok(Through::Mount),
            Some(_) => Ok(self.odd()),
        }
    }

    /// Makes the records below `published` durable by the session's own log. False: that is no way
    /// for them.
    fn log(&self, medium: &mut Medium, published: u64) -> bool {
        let promises = || log_promises(&*self.shared.view, &FULL, self.held, boot_time());
        let Medium::Own(log) = medium else { return false };
        if !promises() {
            return false;
        }
        // Another thread's batch may have had them.
        if log.durable < published {
            let Some(records) = self.shared.writer().batch(&mut log.batches) else { return false };
            match log.write(&self.shared.view) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => {
                    *medium = Medium::Daemon(log.batches.position());
                    return false;
                }
            }
            log.durable = records;
            self.shared.writer().logged(records);
            if let Some(end) = log.half(&self.shared.view) {
                self.shared.say(Ask::Forget(end));
            }
        }
        // What it promised before the batch was persistent may have changed since.
        promises()
    }

    /// Gives the lease back. What was written is the file's then.
    ///
    /// # Errors
    /// What was written could not be taken in, and no [`Leased::sync`] has told.
    pub fn close(mut self) -> io::Result<()> {
        self.give_back()
    }

    fn give_back(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.returned, true) {
            return Ok(());
        }
        match self.shared.ask(Ask::Return(self.held), 0) {
            Some(Answer::Failed(errno)) => Err(io::Error::from_raw_os_error(errno)),
            // A session that is over has given everything back.
            _ => Ok(()),
        }
    }

    /// The daemon does not do what it should: the session is of no use.
    fn odd<T>(&self) -> Through<T> {
        self.shared.abandon();
        Through::Mount
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.cache().clear(&self.shared.cached);
        let _ = self.give_back();
    }
}

/// Nanoseconds since 1970, by the clock that the kernel stamps files with. A finer one is ahead of
/// that by a tick: the daemon would cut such a time off when it takes the write in, but others may
/// have been shown it.
pub(crate) fn now() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

#[cfg(test)]
#[path = "leased_tests.rs"]
mod tests;
