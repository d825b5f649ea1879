//! What a program says on its connection, carried out one by one.

use crate::counters::Counters;
use crate::session::{Common, Passed, Session, is_over};
use crate::table::Table;
use crate::{Bounds, Peer};
use siftfs_base::{Error, Result, errno};
use siftfs_lease::{Answer, Ask, HEADER, Packets};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why a connection ends.
pub(crate) enum End {
    /// The program closed it, or died, or the mount ends.
    Over,
    /// It did not become a session, for this reason.
    Refused(Error),
    /// It broke a rule.
    Broken(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        if is_over(&error) { Self::Over } else { Self::Broken(error) }
    }
}

/// A connection, and what it works with.
pub(crate) struct Connection<'a> {
    pub common: &'a Common,
    pub table: &'a Mutex<Table>,
    pub bounds: &'a Bounds,
    pub number: u64,
    pub peer: Peer,
    pub socket: Arc<Packets>,
}

impl Connection<'_> {
    /// Serves the connection until it ends, and all that it had.
    pub fn serve(self) {
        let (mut session, Peer { pid, uid }) = (None, self.peer);
        let end = self.run(&mut session).err().unwrap_or(End::Over);
        let finished = session.map_or(Ok(()), |session: Arc<Session>| session.finish());
        let end = match (end, finished) {
            (End::Over, Err(error)) => End::Broken(error),
            (end, _) => end,
        };
        match end {
            End::Over => {}
            End::Refused(error) => {
                Counters::add(&self.common.counters.refused, 1);
                tracing::debug!(pid, uid, %error, "a program got no session");
            }
            End::Broken(error) => {
                Counters::add(&self.common.counters.ended, 1);
                tracing::warn!(pid, uid, %error, "the session of a program was ended");
            }
        }
        self.socket.cut();
    }

    fn run(&self, session: &mut Option<Arc<Session>>) -> std::result::Result<(), End> {
        let entered = self.enter()?;
        let session = session.insert(entered.clone());
        while let Some(ask) = self.next()? {
            match ask {
                Ask::Nudge => drop(session.ingest()?),
                Ask::Forget(end) => session.forget(end)?,
                Ask::Log => match session.file_log(self.common.logs.as_deref())? {
                    Some(Passed { answer, descriptors: [log] }) => {
                        self.send_with(&answer, &[log.as_fd()])?;
                    }
                    None => self.send(&Answer::Failed(libc::EOPNOTSUPP))?,
                },
                ask => self.send(&self.answer(session, ask)?)?,
            }
        }
        Ok(())
    }

    /// What is asked next; none, if the program has gone.
    fn next(&self) -> std::result::Result<Option<Ask>, End> {
        let packet = match self.socket.receive(HEADER, false) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(broken(&e).into()),
            Err(_) => return Ok(None),
        };
        Ok(Some(Ask::decode(&packet.bytes)?))
    }

    /// Makes a session of the connection, if its first packet has a token.
    fn enter(&self) -> std::result::Result<Arc<Session>, End> {
        let refused = |errno| End::Refused(Error::Posix(errno));
        let until = Instant::now() + self.bounds.patience;
        while !self.socket.wait(left(until)).map_err(|_| refused(libc::ENOMEM))? {
            if left(until).is_zero() {
                return Err(refused(libc::ETIMEDOUT));
            }
        }
        let ask = match self.next() {
            Ok(Some(ask)) => ask,
            Ok(None) => return Err(End::Over),
            Err(End::Broken(error)) => return Err(End::Refused(error)),
            Err(end) => return Err(end),
        };
        let Ask::Enter(token) = ask else { return Err(refused(libc::EPROTO)) };
        let redeemed = self.common.redeems.redeem(&token, self.peer);
        let entered =
            redeemed.and_then(|who| Session::new(self.common, who.process, self.socket.clone()));
        let (session, Passed { answer, descriptors: [grantor, holder] }) = match entered {
            Ok(entered) => entered,
            Err(error) => {
                self.send(&Answer::Failed(error.errno()))?;
                return Err(End::Refused(error));
            }
        };
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = table.enter(self.number, &session);
        drop(table);
        if !entered {
            return Err(End::Over);
        }
        self.send_with(&answer, &[grantor.as_fd(), holder.as_fd()])?;
        Ok(session)
    }

    fn answer(&self, session: &Arc<Session>, ask: Ask) -> Result<Answer> {
        match ask {
            Ask::Enter(_) => Err(siftfs_base::corrupt("private log", "it enters twice")),
            Ask::Lease(token) => {
                let redeemed = self.common.redeems.redeem(&token, self.peer);
                Ok(redeemed.and_then(|redeemed| session.lease(redeemed)).unwrap_or_else(|error| {
                    Counters::add(&self.common.counters.refused, 1);
                    Answer::Failed(error.errno())
                }))
            }
            Ask::Read { held, offset, len } => session.read(held, offset, len),
            Ask::Fsync { held, datasync, log } => session.fsync(held, datasync, log),
            Ask::Direct { held, room } => session.direct(held, room),
            Ask::Extend { held, first, end } => session.extend(held, (first, end)),
            Ask::Ingest => session.ingest(),
            Ask::Nudge | Ask::Forget(_) | Ask::Log => {
                unreachable!("they are not answered here")
            }
            Ask::Return(held) => session.give_back(held),
        }
    }

    /// Answers. A program that does not take its answers has no use for a session.
    fn send(&self, answer: &Answer) -> std::result::Result<(), End> {
        self.send_with(answer, &[])
    }

    fn send_with(
        &self,
        answer: &Answer,
        descriptors: &[BorrowedFd<'_>],
    ) -> std::result::Result<(), End> {
        match self.socket.send(&answer.encode(), descriptors) {
            Ok(()) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Err(End::Broken(broken(&e))),
            Err(_) => Err(End::Over),
        }
    }
}

fn broken(e: &io::Error) -> Error {
    e.raw_os_error().map_or_else(|| siftfs_base::corrupt("private log", e.to_string()), errno)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
