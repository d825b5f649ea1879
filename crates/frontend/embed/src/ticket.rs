//! Durability that a program learns of later.

use crate::{Result, Shared};
use siftfs_proto::{Reply, Request};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A position in the order of what is staged: it is durable once everything up to there is. What is
/// durable stays so. Dropped, it is forgotten, and becomes durable all the same, with the next
/// sync, ticket or commit.
///
/// From [`File::stage`](crate::File::stage) and [`Volume::barrier`](crate::Volume::barrier). It
/// means nothing after its volume's `close`, and keeps the volume in use like a
/// [`File`](crate::File).
#[derive(Clone)]
pub struct Ticket {
    shared: Arc<Shared>,
    ticket: siftfs_proto::Ticket,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ticket.fmt(f)
    }
}

impl Ticket {
    pub(crate) fn drawn(shared: &Arc<Shared>, req: Request) -> Result<Self> {
        let ticket = shared.call(req)?.ticket()?;
        Ok(Self { shared: shared.clone(), ticket })
    }

    /// Its number, by which [`Volume::ticket`](crate::Volume::ticket) gives it again: for what
    /// crosses to another language, or to another part of a program.
    pub fn number(&self) -> u64 {
        self.ticket.0
    }

    pub(crate) fn numbered(shared: &Arc<Shared>, number: u64) -> Self {
        Self { shared: shared.clone(), ticket: siftfs_proto::Ticket(number) }
    }

    /// Is it durable? If not, it is within milliseconds, as fast as the storage takes it: a program
    /// may ask again and again.
    ///
    /// ```no_run
    /// # fn main() -> siftfs::Result<()> {
    /// # let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
    /// let ticket = volume.open_file("/orders/today")?.stage()?;
    /// while !ticket.is_durable()? {
    ///     // ... something else ...
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// It never will be durable.
    pub fn is_durable(&self) -> Result<bool> {
        self.shared.call(Request::Poll { ticket: self.ticket })?.durable()
    }

    /// Returns when it is durable.
    ///
    /// # Errors
    /// It never will be.
    pub fn wait(&self) -> Result<()> {
        self.wait_at_most(None)
    }

    /// As [`Ticket::wait`], for `timeout` at most. A flush that this thread has begun by then is
    /// waited for.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn main() -> siftfs::Result<()> {
    /// # let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
    /// # let ticket = volume.barrier()?;
    /// match ticket.wait_timeout(Duration::from_millis(5)) {
    ///     Err(e) if e.errno() == libc::ETIMEDOUT => println!("not yet"),
    ///     other => other?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ETIMEDOUT`; it never will be durable.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        self.wait_at_most(Some(timeout))
    }

    fn wait_at_most(&self, timeout: Option<Duration>) -> Result<()> {
        self.shared.call(Request::Wait { ticket: self.ticket, timeout })?.done()
    }

    /// Calls `then` once when it is durable, or never will be, on the thread that saw to it: a
    /// thread that is flushing, or else this one, which flushes first. `then` may ask for more, and
    /// must not wait for another call of this kind.
    pub fn when_durable(&self, then: impl FnOnce(Result<()>) + Send + 'static) {
        let told = |answer: Result<Reply>| then(answer.and_then(Reply::done));
        self.shared.submit(Request::Wait { ticket: self.ticket, timeout: None }, told);
    }
}
