//! Tickets (`docs/design/operations.md`): stage now, learn later that it is durable.

use crate::runtime::Runtime;
use crate::session::Session;
use crate::session::ticket_table::DURABLE;
use crate::staging::fsync::Begun;
use crate::staging::proof::Durable;
use siftfs_base::{InodeNr, Lsn, Result, errno};
use siftfs_device::Origin;
use siftfs_proto::Ticket;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What has been asked for so long is made durable by the thread that asks: the background has
/// something else to do.
const PATIENCE: Duration = Duration::from_millis(5);

impl Runtime {
    /// Stages what an fsync of the inode would make durable.
    pub(crate) fn draw_staged(
        &self,
        session: &Session,
        ino: InodeNr,
        datasync: bool,
    ) -> Result<Ticket> {
        self.draw(session, || match self.stage_for_ticket(ino, datasync)? {
            Begun::Durable(_proof) => Ok(DURABLE),
            Begun::Wait(lsn) => Ok(lsn),
        })
    }

    /// A ticket of everything staged so far.
    pub(crate) fn draw_barrier(&self, session: &Session) -> Result<Ticket> {
        self.draw(session, || self.seq.check().map(|()| self.seq.published()))
    }

    fn draw(&self, session: &Session, stage: impl FnOnce() -> Result<Lsn>) -> Result<Ticket> {
        let (ticket, many) = session.tickets.draw(self.seq.durable(), stage)?;
        // What it stands for has its place in the order of records by now, which a session that
        // begins later finds.
        if self.lenders.load(Ordering::SeqCst) > 0 {
            self.lock().sharing.order.advance();
        }
        if many {
            self.want(self.seq.published());
        }
        Ok(ticket)
    }

    /// Has the background make everything up to `lsn` durable. Returns for how long that, or
    /// something else, has been wanted in vain.
    fn want(&self, lsn: Lsn) -> Duration {
        let waits = self.demand.ask(lsn, self.seq.durable(), self.clock.mono_ns());
        self.wake();
        waits
    }

    /// Is the ticket durable? If not, it soon is.
    ///
    /// # Errors
    /// `EINVAL` if the session did not draw it; a latched failure that keeps it from ever becoming
    /// durable.
    pub(crate) fn poll(&self, session: &Session, ticket: Ticket) -> Result<Option<Durable>> {
        let lsn = session.tickets.position(ticket)?;
        let mut proof = self.seq.proof(lsn)?;
        if proof.is_none() && self.want(lsn) >= PATIENCE {
            let all = self.demand.take().map_or(lsn, |wanted| wanted.max(lsn));
            proof = Some(self.wait_durable(all, Origin::Foreground)?);
        }
        Ok(proof.map(Durable::Staged))
    }

    /// Returns when the ticket is durable.
    ///
    /// # Errors
    /// As [`Runtime::poll`]; `ETIMEDOUT`.
    pub(crate) fn wait(
        &self,
        session: &Session,
        ticket: Ticket,
        timeout: Option<Duration>,
    ) -> Result<Durable> {
        let lsn = session.tickets.position(ticket)?;
        let proof = match timeout {
            None => return self.wait_durable(lsn, Origin::Foreground).map(Durable::Staged),
            Some(Duration::ZERO) => self.poll(session, ticket)?,
            Some(most) => self.wait_durable_for(lsn, most)?.map(Durable::Staged),
        };
        proof.ok_or_else(|| errno(libc::ETIMEDOUT))
    }

    /// As [`Runtime::wait`] without a timeout, for a caller that holds no lock and does not wait.
    pub(crate) fn wait_then(
        &self,
        session: &Session,
        ticket: Ticket,
        done: impl FnOnce(Result<Durable>) + Send + 'static,
    ) {
        match session.tickets.position(ticket) {
            Err(e) => done(Err(e)),
            Ok(lsn) => self.when_durable(lsn, |proof| done(proof.map(Durable::Staged))),
        }
    }

    /// Makes durable what is wanted, and writes what nobody wants yet: part of the background work.
    pub(crate) fn meet_demand(&self) -> Result<()> {
        if let Some(lsn) = self.demand.take() {
            let _proof = self.wait_durable(lsn, Origin::Background)?;
        }
        self.write_out(Lsn(u64::MAX), Origin::Background);
        Ok(())
    }
}
