//! The log of one session and its leases. One thread at a time has it, and it may wait for storage,
//! but not for a program or another file.

use crate::Redeems;
use crate::counters::Counters;
use crate::file_log::FileLog;
use crate::holder::Told;
use siftfs_base::{InodeNr, Result, Timestamp};
use siftfs_ingest::{BackEnd, How, Pipelines};
use siftfs_lease::{Held, Memory, Reader, View};
use siftfs_proto::{Credentials, FileService, Handle, LeaseId, Request};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What a session works with, and never changes.
pub(crate) struct Means {
    pub service: Arc<dyn FileService>,
    pub redeems: Arc<dyn Redeems>,
    pub counters: Arc<Counters>,
    pub told: Arc<Told>,
    /// How records are taken in, and by which threads.
    pub how: How,
    pub pipelines: Arc<Pipelines>,
}

impl Means {
    pub fn call(&self, credentials: &Credentials, request: Request) -> Result<siftfs_proto::Reply> {
        self.service.call(credentials, request)
    }
}

/// The lease of a slot, which may have ended.
pub(crate) struct Leased {
    pub held: Held,
    pub lease: LeaseId,
    pub handle: Handle,
    pub ino: InodeNr,
    pub process: u32,
    pub credentials: Credentials,
    /// May the program read the file?
    pub reads: bool,
    /// The file's mtime when it was granted.
    pub mtime: Timestamp,
    /// When a record of it was taken in, or it was granted.
    pub used: Instant,
    /// What could not be written, and was not told yet.
    pub error: Option<i32>,
    /// The inode's generation.
    pub generation: u32,
    /// The file log's records of it count.
    pub logged: bool,
    /// It was written since it was made durable last.
    pub written: bool,
    /// Blocks of it were granted, so that it may be written at the target: the file log never
    /// counts for it.
    pub direct: bool,
    /// The lease was lost, and not given back: what its holder has written at the target for the
    /// first time, and nobody has heard of, may be lost. Told by the next fsync alone, which only a
    /// holder asks for that has written so.
    pub in_doubt: bool,
    /// The mtime that its holder said when that was looked at last.
    pub said: i64,
}

pub(crate) struct Log {
    pub(crate) reader: Reader<Memory, View>,
    pub(crate) slots: Vec<Option<Leased>>,
    /// What takes the records in.
    pub(crate) back: BackEnd,
    /// The file log, once the program has asked for it.
    pub file: Option<FileLog>,
    /// A record that waited when this was looked at last, and since when.
    waits: Option<(u64, Instant)>,
    /// Records that were taken in and the file log did not have when this was looked at last, and
    /// since when.
    pub(crate) behind: Option<(u64, Instant)>,
    /// The session is over.
    pub(crate) over: bool,
}

/// Every use of a session that is over.
pub(crate) fn over() -> siftfs_base::Error {
    siftfs_base::errno(libc::ESHUTDOWN)
}

impl Log {
    pub fn new(reader: Reader<Memory, View>) -> Self {
        let slots = (0..siftfs_lease::SLOTS).map(|_| None).collect();
        let back = BackEnd::default();
        Self { reader, slots, back, file: None, waits: None, behind: None, over: false }
    }

    /// A slot that no lease has.
    pub fn free_slot(&self) -> Option<u32> {
        let free = self.slots.iter().position(Option::is_none)?;
        u32::try_from(free).ok()
    }

    /// The lease of a slot is granted.
    ///
    /// # Errors
    /// The session is over.
    pub fn grant(&mut self, slot: u32, leased: impl FnOnce(Held) -> Leased) -> Result<Held> {
        if self.over {
            return Err(over());
        }
        let held = self.reader.grant(slot);
        let place = self.slots.get_mut(slot as usize).expect("it was free");
        assert!(place.is_none(), "it was free");
        *place = Some(leased(held));
        Ok(held)
    }

    /// The lease, which may have ended.
    pub fn of(&mut self, held: Held) -> Option<&mut Leased> {
        let leased = self.slots.get_mut(held.slot as usize)?.as_mut();
        leased.filter(|leased| leased.held == held)
    }

    /// Does the lease last?
    pub fn lasts(&self, held: Held) -> bool {
        self.reader.is_granted(held)
    }

    /// The slot may be used again.
    pub fn free(&mut self, held: Held) {
        if let Some(place) = self.slots.get_mut(held.slot as usize) {
            *place = None;
        }
    }

    /// All leases that last.
    pub fn lasting(&self) -> Vec<Held> {
        let held = self.slots.iter().flatten().map(|leased| leased.held);
        held.filter(|held| self.reader.is_granted(*held)).collect()
    }

    /// Ends all leases with what is published, and then the log.
    ///
    /// # Errors
    /// The holder broke a rule. All is over nonetheless.
    pub fn finish(&mut self, means: &Means) -> Result<()> {
        if self.over {
            return Ok(());
        }
        let ended = self.end(means, self.lasting());
        self.over = true;
        if let Some(file) = self.file.take() {
            means.counters.file_logs.fetch_sub(1, Relaxed);
            if let Err(error) = file.remove() {
                tracing::error!(%error, "a file log of private logs cannot be removed");
            }
        }
        self.reader.close();
        for leased in self.slots.drain(..).flatten() {
            if let Some(errno) = leased.error {
                let (ino, pid) = (leased.ino, leased.process);
                tracing::error!(ino, pid, errno, "what a program wrote to a file is lost, untold");
            }
        }
        ended
    }

    /// Takes in what has waited for so long, and ends leases that were not written for a while.
    ///
    /// # Errors
    /// As of [`Log::ingest`].
    pub fn age(&mut self, means: &Means, (commit, unused): (Duration, Duration)) -> Result<()> {
        if self.over {
            return Ok(());
        }
        let now = Instant::now();
        self.catch_up(means, (now, commit))?;
        self.note_direct(means, now);
        if self.reader.waiting() == 0 {
            self.waits = None;
            let idle = |leased: &&Leased| now.saturating_duration_since(leased.used) >= unused;
            let idle = self.slots.iter().flatten().filter(idle).map(|leased| leased.held);
            let idle = idle.filter(|held| self.reader.is_granted(*held)).collect();
            return self.end(means, idle);
        }
        match self.waits {
            Some((passed, since)) if passed == self.reader.passed() => {
                match now.saturating_duration_since(since) >= commit {
                    true => self.ingest(means),
                    false => Ok(()),
                }
            }
            _ => {
                self.waits = Some((self.reader.passed(), now));
                Ok(())
            }
        }
    }
}
