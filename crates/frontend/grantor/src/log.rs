//! The log of one session: its leases, and how what is published of them becomes the files'. One
//! thread at a time has it, and it may wait for storage, but not for a program or another file.

use crate::Redeems;
use crate::counters::Counters;
use crate::file_log::FileLog;
use crate::holder::{Told, believable};
use siftfs_base::{InodeNr, Result, Timestamp};
use siftfs_lease::{Held, Memory, Reader, Record, View};
use siftfs_proto::{Credentials, FileService, Handle, LeaseId, Request, WriteData};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What a session works with, and never changes.
pub(crate) struct Means {
    pub service: Arc<dyn FileService>,
    pub redeems: Arc<dyn Redeems>,
    pub counters: Arc<Counters>,
    pub told: Arc<Told>,
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
}

pub(crate) struct Log {
    pub(crate) reader: Reader<Memory, View>,
    pub(crate) slots: Vec<Option<Leased>>,
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
        Self { reader, slots, file: None, waits: None, behind: None, over: false }
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

    /// Takes in what is published. A file that could not be written is no longer leased afterwards.
    ///
    /// # Errors
    /// The holder broke a rule, or the session is over.
    pub fn ingest(&mut self, means: &Means) -> Result<()> {
        if self.over {
            return Err(over());
        }
        let (failed, taken) = self.take_in(means);
        self.end(means, failed).and(taken)
    }

    /// Takes in what is published; answers of which files it could not be written.
    pub(crate) fn take_in(&mut self, means: &Means) -> (Vec<Held>, Result<()>) {
        let Self { reader, slots, .. } = self;
        let mut failed = Vec::new();
        let taken = reader.ingest(&mut |record, bytes| {
            take_in(means, slots, record, bytes, &mut failed);
        });
        (failed, taken)
    }

    /// Ends leases, with all that is published of them.
    ///
    /// # Errors
    /// The holder broke a rule. They have ended all the same.
    pub fn end(&mut self, means: &Means, mut leases: Vec<Held>) -> Result<()> {
        let mut result = Ok(());
        while !leases.is_empty() {
            leases.retain(|held| self.reader.is_granted(*held));
            let Self { reader, slots, .. } = self;
            let mut failed = Vec::new();
            let mut sink = |record: &Record, bytes: Vec<u8>| {
                take_in(means, slots, record, bytes, &mut failed);
            };
            let taken = reader.end(&leases, &mut sink, Memory::wake);
            result = result.and(taken);
            self.unlog(means, &leases);
            leases.drain(..).for_each(|held| self.give_back(means, held));
            leases = failed;
        }
        result
    }

    /// The lease has ended for its holder, and ends for everybody else.
    fn give_back(&mut self, means: &Means, held: Held) {
        let Some(leased) = self.of(held) else { return };
        let Leased { lease, handle, ino, process, credentials, .. } = leased;
        let cred = credentials.clone();
        means.told.lock().all.remove(lease);
        // What other kernels are told of it, nobody waits for here: those that want the file do.
        let (returned, _owed) =
            means.service.call_owing(&cred, Request::LeaseReturn { lease: *lease });
        if let Err(error) = returned {
            tracing::warn!(ino = *ino, %error, "a lease was over before it was given back");
        }
        let _ = means.call(&cred, Request::Release { handle: *handle });
        means.redeems.returned(*ino, *process);
        means.counters.leases.fetch_sub(1, Relaxed);
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

/// A record becomes its file's. What cannot be written is kept for the file.
fn take_in(
    means: &Means,
    slots: &mut [Option<Leased>],
    record: &Record,
    bytes: Vec<u8>,
    failed: &mut Vec<Held>,
) {
    let leased = slots.get_mut(record.held.slot as usize).and_then(Option::as_mut);
    let leased = leased.filter(|leased| leased.held == record.held);
    let leased = leased.expect("a lease that lasts has its slot");
    let (offset, len) = (record.offset, bytes.len() as u64);
    let data = match offset.is_multiple_of(siftfs_base::BLOCK_BYTES) {
        true => WriteData::copy_of(offset, &bytes),
        false => WriteData::Bytes(bytes),
    };
    let time = Some(believable(record.time, leased.mtime));
    let request = Request::LeaseWrite { lease: leased.lease, offset, data, time };
    let written = means.call(&leased.credentials, request).and_then(|reply| reply.written());
    Counters::add(&means.counters.records, 1);
    Counters::add(&means.counters.bytes, len);
    leased.used = Instant::now();
    leased.written = true;
    match written {
        Ok(all) if u64::from(all) == len => {}
        other => {
            let errno = other.map_or_else(|e| e.errno(), |_| libc::ENOSPC);
            if leased.error.is_none() {
                // A lease that is over in the Runtime, which this side did not end.
                Counters::add(&means.counters.lost, u64::from(errno == libc::ESTALE));
                let (ino, pid) = (leased.ino, leased.process);
                tracing::warn!(ino, pid, errno, "what a program wrote cannot be taken in");
                failed.push(leased.held);
            }
            let errno = if errno == libc::ENOSPC { errno } else { libc::EIO };
            leased.error.get_or_insert(errno);
        }
    }
}
