//! ioctl(2): SiftFS's own operations (`docs/design/operations.md`, "Bytes of the ioctls"), and who
//! carries out all others.

use crate::ioctl::sections;
use crate::logs;
use crate::serve::server::Server;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::commands::{BARRIER, GRANT, NO_TIMEOUT, POLL, STAGE, WAIT};
use siftfs_proto::{Completion, Credentials, Handle, Reply, Request, Ticket};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What WAIT is given.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WaitIn {
    ticket: U64,
    /// In nanoseconds; [`NO_TIMEOUT`]: none.
    timeout: U64,
}

/// `FITRIM` of <linux/fs.h>: `_IOWR('X', 121, struct fstrim_range)`.
const FITRIM: u32 = 0xC018_5879;

/// What is given to an operation, all of it.
fn argument<T: FromBytes>(input: &[u8]) -> Result<T> {
    T::read_from_bytes(input).map_err(|_| errno(libc::ENOTTY))
}

fn ticket(input: &[u8]) -> Result<Ticket> {
    argument::<U64>(input).map(|number| Ticket(number.get()))
}

fn wait(input: &[u8]) -> Result<(Ticket, Option<Duration>)> {
    let WaitIn { ticket, timeout } = argument(input)?;
    let timeout = timeout.get();
    let limit = (timeout != NO_TIMEOUT).then(|| Duration::from_nanos(timeout));
    Ok((Ticket(ticket.get()), limit))
}

/// The answer to an operation that gives back a number.
fn number(reply: Reply) -> Result<Reply> {
    let number = match reply {
        Reply::Ticket(Ticket(number)) => number,
        other => u64::from(other.durable()?),
    };
    Ok(Reply::Data(U64::new(number).as_bytes().to_vec()))
}

/// The answer to one that gives back nothing.
fn nothing(reply: Reply) -> Result<Reply> {
    reply.done().map(|()| Reply::Data(Vec::new()))
}

impl Server {
    /// ioctl(2) on a file or directory. A size that an operation does not have makes another
    /// number of it, which nobody knows.
    pub(crate) fn ioctl(
        self: &Arc<Self>,
        cred: &Credentials,
        (ino, handle): (InodeNr, Handle),
        (command, input): (u32, &[u8]),
        answer: Completion,
    ) {
        match command {
            _ if !self.operations.is_on() => self.flags_ioctl(cred, ino, (command, input), answer),
            _ if sections::is_ours(command) => {
                self.section_ioctl(cred, (ino, handle), command, answer);
            }
            STAGE => self.stage(cred, ino, answer),
            POLL => {
                let polled = ticket(input)
                    .and_then(|ticket| self.call(cred, Request::Poll { ticket }).and_then(number));
                answer(polled);
            }
            WAIT => match wait(input) {
                Ok((ticket, timeout)) => self.wait(cred, ticket, timeout, answer),
                Err(e) => answer(Err(e)),
            },
            BARRIER => answer(self.call(cred, Request::Barrier).and_then(number)),
            GRANT => answer(logs::grant(self, cred, (ino, handle))),
            FITRIM => answer(self.trim(cred, input)),
            _ => self.flags_ioctl(cred, ino, (command, input), answer),
        }
    }

    /// With the writeback cache the kernel sends what it holds of the file first: by requests of
    /// its own, for which this thread must be free.
    fn stage(self: &Arc<Self>, cred: &Credentials, ino: InodeNr, answer: Completion) {
        let (server, caller) = (self.clone(), cred.clone());
        let stage = move |written: bool| {
            answer(match (written, server.open_files.tell(ino)) {
                (false, _) => Err(errno(libc::EAGAIN)),
                // As fsync(2): what could not be written is not there to be staged.
                (true, Some(error)) => Err(error),
                (true, None) => {
                    let req = Request::Stage { file: ino.into(), datasync: false };
                    server.call(&caller, req).and_then(number)
                }
            });
        };
        self.when_written(ino, Box::new(stage));
    }

    /// No thread is kept while the ticket is not durable, but one that flushes for it; and that one
    /// does not keep the caller for longer than it asked for.
    fn wait(
        &self,
        cred: &Credentials,
        ticket: Ticket,
        timeout: Option<Duration>,
        answer: Completion,
    ) {
        let answer: Completion = Box::new(move |reply| answer(reply.and_then(nothing)));
        let answer = match timeout {
            None => answer,
            Some(timeout) => {
                // What is durable, or is no ticket, is told however short the time is.
                let now = Request::Wait { ticket, timeout: Some(Duration::ZERO) };
                match self.call(cred, now) {
                    Err(Error::Posix(libc::ETIMEDOUT)) if !timeout.is_zero() => {}
                    told => return answer(told),
                }
                match self.timers.limit(timeout, answer) {
                    Some(limited) => limited,
                    None => return,
                }
            }
        };
        self.submit(cred, Request::Wait { ticket, timeout: None }, answer);
    }
}

#[cfg(test)]
#[path = "operations_tests.rs"]
mod tests;
