//! What is published becomes the files': how the back end knows them, and how leases end.

use crate::counters::Counters;
use crate::holder::believable;
use crate::log::{Leased, Log, Means, over};
use siftfs_base::{Error, Result, errno};
use siftfs_ingest::{BackEnd, Files, Index, ingest};
use siftfs_lease::{FULL, Held, MOST_BYTES, Memory, Reader, View, recall};
use siftfs_proto::{
    Credentials, LENT_BYTES, LENT_WRITE_BYTES, LENT_WRITES, Reply, Request, WriteData,
};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// There is space for what waits in a ring, whatever it is.
const _: () = {
    assert!(FULL.records as u64 <= LENT_WRITES && FULL.data as u64 <= LENT_BYTES);
    assert!(MOST_BYTES as u64 <= LENT_WRITE_BYTES);
};

impl Log {
    /// Takes in what is published. A file that could not be written is no longer leased afterwards,
    /// and none is if there was no space but what the session has set aside.
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
        self.taking_in(means, ingest)
    }

    /// Ends leases, with all that is published of them.
    ///
    /// # Errors
    /// The holder broke a rule. They have ended all the same.
    pub fn end(&mut self, means: &Means, mut leases: Vec<Held>) -> Result<()> {
        let mut result = Ok(());
        while !leases.is_empty() {
            leases.retain(|held| self.reader.is_granted(*held));
            let (failed, taken) = self.taking_in(means, |reader, back, with| {
                reader.end(&leases, |reader| ingest(reader, back, with), Memory::wake)
            });
            result = result.and(taken);
            self.unlog(means, &leases);
            self.miss(means, &leases);
            leases.drain(..).for_each(|held| self.give_back(means, held));
            leases = failed;
        }
        result
    }

    /// Leases end. If the Runtime is gone, so is what it took in of them and had not synced: their
    /// programs are told.
    fn miss(&mut self, means: &Means, ended: &[Held]) {
        if !means.told.lost.load(SeqCst) {
            return;
        }
        for held in ended {
            if let Some(leased) = self.of(*held).filter(|leased| leased.written) {
                leased.error.get_or_insert(libc::EIO);
            }
        }
    }

    /// The lease has ended for its holder, and ends for everybody else.
    fn give_back(&mut self, means: &Means, held: Held) {
        self.back.forget(held);
        let Some(leased) = self.of(held) else { return };
        let Leased { lease, handle, ino, process, credentials, direct, .. } = &*leased;
        let (cred, direct) = (credentials.clone(), u64::from(*direct));
        means.told.lock().all.remove(lease);
        // What other kernels are told of it, nobody waits for here: those that want the file do.
        let (returned, _owed) =
            means.service.call_owing(&cred, Request::LeaseReturn { lease: *lease });
        let _ = means.call(&cred, Request::Release { handle: *handle });
        means.redeems.returned(*ino, *process);
        means.counters.leases.fetch_sub(1, Relaxed);
        means.counters.direct.fetch_sub(direct, Relaxed);
        if let Err(error) = returned {
            tracing::warn!(ino = *ino, %error, "a lease was over before it was given back");
            // A lease that the Runtime has ended by itself was ended in order.
            leased.in_doubt = leased.direct && error.errno() != libc::ESTALE;
        }
    }

    /// Has the back end take something in; answers of which files it could not be written, and
    /// which leases are to end with them.
    fn taking_in(
        &mut self,
        means: &Means,
        take: impl FnOnce(
            &mut Reader<Memory, View>,
            &mut BackEnd,
            siftfs_ingest::Means<'_>,
        ) -> Result<()>,
    ) -> (Vec<Held>, Result<()>) {
        let Self { reader, slots, back, .. } = self;
        let taking = TakingIn { means, slots, came: Mutex::default() };
        let with = siftfs_ingest::Means {
            index: &taking,
            files: &taking,
            counters: &means.counters.ingested,
            pipelines: &means.pipelines,
            how: means.how,
        };
        let taken = take(reader, back, with);
        let came = taking.came.into_inner().unwrap_or_else(PoisonError::into_inner);
        (came.apply(slots), taken)
    }
}

/// What came of an ingestion.
#[derive(Default)]
struct Came {
    written: Vec<Held>,
    /// The first error of each file.
    errors: Vec<(Held, i32)>,
    /// Leases that are to end: that of a file which could not be written, and all when the space
    /// that is set aside is used.
    failed: Vec<Held>,
}

impl Came {
    fn apply(self, slots: &mut [Option<Leased>]) -> Vec<Held> {
        let mut of = |held: Held, change: &mut dyn FnMut(&mut Leased)| {
            let leased = slots.get_mut(held.slot as usize).and_then(Option::as_mut);
            leased.filter(|leased| leased.held == held).into_iter().for_each(change);
        };
        let now = Instant::now();
        for held in self.written {
            of(held, &mut |leased| (leased.used, leased.written) = (now, true));
        }
        for (held, errno) in self.errors {
            of(held, &mut |leased| {
                leased.error.get_or_insert(errno);
            });
        }
        self.failed
    }
}

/// The files of a session, as the back end has them.
struct TakingIn<'a> {
    means: &'a Means,
    slots: &'a [Option<Leased>],
    came: Mutex<Came>,
}

impl TakingIn<'_> {
    fn leased(&self, held: Held) -> &Leased {
        let leased = self.slots.get(held.slot as usize).and_then(Option::as_ref);
        let leased = leased.filter(|leased| leased.held == held);
        leased.expect("a lease that lasts has its slot")
    }

    fn came(&self) -> MutexGuard<'_, Came> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only what was set aside is left: all leases are to end.
    fn recall_all(&self) {
        // Before the ring has room for one more: there is space for what it has by now.
        let all = self.slots.iter().flatten().map(|leased| leased.held);
        let recalled = recall(&*self.means.told.memories.0, &FULL, all);
        let failed = &mut self.came().failed;
        let others: Vec<_> = recalled.into_iter().filter(|held| !failed.contains(held)).collect();
        failed.extend(others);
    }
}

impl Index for TakingIn<'_> {
    fn cold(&self, held: Held, (first, count): (u64, u32), bring: u64) -> Result<u64> {
        let lease = self.leased(held).lease;
        let locate = Request::LeaseLocate { lease, first, count, bring };
        self.means.call(&Credentials::default(), locate)?.located()
    }
}

impl Files for TakingIn<'_> {
    fn write(&self, held: Held, offset: u64, data: WriteData, time: i64) -> Result<()> {
        let leased = self.leased(held);
        let len = data.len() as u64;
        let time = Some(believable(time, leased.mtime));
        let lease = leased.lease;
        let request = Request::LeaseWrite { lease, offset, data, time, durable: false };
        let answer = self.means.call(&leased.credentials, request);
        if matches!(answer, Ok(Reply::WrittenLast { .. })) {
            self.recall_all();
        }
        let written = answer.and_then(Reply::written);
        let mut came = self.came();
        if came.written.last() != Some(&held) {
            came.written.push(held);
        }
        match written? {
            all if u64::from(all) == len => Ok(()),
            _ => Err(errno(libc::ENOSPC)),
        }
    }

    fn lose(&self, held: Held, error: &Error) {
        let (leased, errno) = (self.leased(held), error.errno());
        let mut came = self.came();
        if leased.error.is_some() || came.errors.iter().any(|(of, _)| *of == held) {
            return;
        }
        // A lease that is over in the Runtime, which this side did not end; or the Runtime is gone.
        let lost = errno == libc::ESTALE || matches!(error, Error::Link(_));
        Counters::add(&self.means.counters.lost, u64::from(lost));
        let (ino, pid) = (leased.ino, leased.process);
        tracing::warn!(ino, pid, errno, "what a program wrote cannot be taken in");
        came.failed.push(held);
        let errno = if errno == libc::ENOSPC { errno } else { libc::EIO };
        came.errors.push((held, errno));
    }
}
