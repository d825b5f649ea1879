//! Leases whose files are read and written at the target, too (`docs/design/target.md`, "Programs
//! that are not changed"). What a program does there the grantor does not see: it hears of it by
//! the words in which the program says size and time, and by the Runtime's fsync. The end of the
//! lease takes back what was granted, and waits for no program.

use crate::counters::Counters;
use crate::log::{Leased, Log, Means};
use crate::session::{Session, answered};
use siftfs_base::{Result, errno};
use siftfs_lease::{Answer, FULL, Granted, GrantedRun, Held, MOST_RUNS, shown};
use siftfs_proto::{Credentials, Direct, DirectRun, Handle, LeaseId, Request};
use std::time::Instant;

impl Session {
    /// Blocks of a leased file, with room for that number of bytes behind its end, in place of
    /// those that were granted before. What is published is taken in before. `EBUSY` for a lease
    /// that the file log counts for: recovery would write what that has over what is newer at the
    /// target.
    ///
    /// # Errors
    /// The holder broke a rule, or the session is over.
    pub fn direct(&self, held: Held, room: u64) -> Result<Answer> {
        let (lease, handle, cred) = match self.grantee(held)? {
            Ok(grantee) => grantee,
            Err(answer) => return Ok(answer),
        };
        // Others may have the log meanwhile: the lease may end, which the Runtime knows.
        let asked = Request::LeaseDirect { lease, file: handle.into(), room };
        let granted = self.means.call(&cred, asked).and_then(|reply| passed(reply.direct()?));
        if granted.is_ok() {
            Counters::add(&self.means.counters.grants, 1);
            self.is_direct(held);
        }
        Ok(answered(granted.map(Answer::Granted)))
    }

    /// Blocks of a leased file besides those that are granted, from its block `first` on, with room
    /// up to byte `end`. What is published is taken in before, as for [`Session::direct`]: a record
    /// that was taken in behind the grant would come over newer bytes.
    ///
    /// # Errors
    /// As of [`Session::direct`].
    pub fn extend(&self, held: Held, (first, end): (u64, u64)) -> Result<Answer> {
        let (lease, handle, cred) = match self.grantee(held)? {
            Ok(grantee) => grantee,
            Err(answer) => return Ok(answer),
        };
        let asked = Request::LeaseExtend { lease, file: handle.into(), first, end };
        let extended = self.means.call(&cred, asked).and_then(siftfs_proto::Reply::extended);
        match extended {
            // Nothing is granted by the lease, which lasts as far as this says.
            Err(error) if error.errno() == libc::ESTALE && self.lock().lasts(held) => {
                Ok(Answer::Failed(libc::EAGAIN))
            }
            Ok(runs) if runs.len() > MOST_RUNS => Ok(Answer::Failed(libc::EOPNOTSUPP)),
            extended => Ok(answered(extended.map(|runs| Answer::Extended(told(runs))))),
        }
    }

    /// The lease by which blocks may be granted, and for whom; else what is to be answered. What is
    /// published is taken in.
    fn grantee(
        &self,
        held: Held,
    ) -> Result<std::result::Result<(LeaseId, Handle, Credentials), Answer>> {
        let mut log = self.lock();
        log.ingest(&self.means)?;
        let leased = match Self::lasting(&mut log, held) {
            Ok(Leased { reads: false, .. }) => return Ok(Err(Answer::Failed(libc::EBADF))),
            Ok(Leased { logged: true, .. }) => return Ok(Err(Answer::Failed(libc::EBUSY))),
            Ok(leased) => leased,
            Err(answer) => return Ok(Err(answer)),
        };
        leased.used = Instant::now();
        Ok(Ok((leased.lease, leased.handle, leased.credentials.clone())))
    }

    /// Blocks of the file of this lease were granted. No other thread asks for the session, so the
    /// file log has not come to count for it meanwhile.
    fn is_direct(&self, held: Held) {
        let mut log = self.lock();
        // What was granted to a lease that has ended has ended, too.
        if let Ok(leased) = Self::lasting(&mut log, held)
            && !std::mem::replace(&mut leased.direct, true)
        {
            Counters::add(&self.means.counters.direct, 1);
        }
    }
}

/// A grant as the program is told it.
fn passed(Direct { token, target, runs }: Direct) -> Result<Granted> {
    let granted = Granted { token, target, runs: told(runs) };
    // What was granted is of no use then, and ends with the lease.
    if granted.fits() { Ok(granted) } else { Err(errno(libc::EOPNOTSUPP)) }
}

fn told(runs: Vec<DirectRun>) -> Vec<GrantedRun> {
    let run = |DirectRun { first, block, count, fresh }| GrantedRun { first, block, count, fresh };
    runs.into_iter().map(run).collect()
}

impl Log {
    /// A direct lease is used while its holder says new times of writes.
    pub(crate) fn note_direct(&mut self, means: &Means, now: Instant) {
        let (grantor, holder) = &means.told.memories;
        for leased in self.slots.iter_mut().flatten().filter(|leased| leased.direct) {
            let said = shown((&**grantor, &**holder), &FULL, leased.held).map(|shown| shown.mtime);
            if let Some(said) = said.filter(|said| *said != leased.said) {
                (leased.said, leased.used) = (said, now);
            }
        }
    }

    /// All is durable for the file of a direct lease as of this order: what its holder makes
    /// durable at the target overtakes nothing, as long as the order is the same (rule R46).
    pub(crate) fn covers(&mut self, held: Held, order: u64) {
        if self.lasts(held) {
            self.reader.covered(held, order);
        }
    }
}
