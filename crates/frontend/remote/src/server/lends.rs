//! Sessions that have leases: a program's, which holds them for itself, and those of a mount's
//! process, which grants its leases on to programs of this machine and gives what they write
//! (`docs/design/private-logs.md`, "NICFS's placement"). Only headers come in their messages. The
//! data lie in memory that both processes share, and are copied out of it once, before anything of
//! them is believed (rule R41).

use super::Server;
use super::identity::{BYTES, Channel};
use super::outbox::Outbox;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error, Result, SharedBlock, errno};
use siftfs_calls::{FromServer, ToServer};
use siftfs_proto::{
    Completion, Credentials, FileService, Holder, Identity, LeaseId, Limits, Opening, Owed, Reply,
    Request, WriteData,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sessions with leases at a time, of all clients together: others find a connection all the same.
pub(super) const SESSIONS: usize = 128;
/// How long a server that ends waits until a session has given what its programs wrote.
const PATIENCE: Duration = Duration::from_secs(5);

const NO_MEMORY: &str = "a session for private logs needs memory that both processes share: the data of a log do not \
                         travel in messages. Over TCP, and by a socket without shared memory, programs write by the \
                         mount";

/// The leases of a session, and how it is told to return them.
pub(super) struct Lends {
    outbox: Arc<Outbox>,
    leases: Mutex<Granted>,
    /// How many such sessions there are.
    all: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Granted {
    granted: HashSet<LeaseId>,
    /// Since when all are to be returned, because the server ends.
    ending: Option<Instant>,
}

/// What the Runtime recalls.
struct Recalls(Arc<Lends>);

/// The session's way to the Runtime, on which its leases are noted.
struct Lending {
    service: Arc<dyn FileService>,
    lends: Arc<Lends>,
}

/// Opens such a session for the local kernel at the other end of a channel.
///
/// # Errors
/// The client is not the local kernel's, shares no memory, or also caches; there are too many.
pub(super) fn open(
    server: &Server,
    (channel, shares_memory): (Channel<'_>, bool),
    (opening, caches): (&Opening, bool),
    outbox: &Arc<Outbox>,
) -> Result<(Arc<dyn FileService>, Arc<Lends>)> {
    let refused = |why: &str| Err(Error::Refused(why.into()));
    if !matches!(channel, Channel::Process(_)) || !shares_memory {
        return refused(NO_MEMORY);
    }
    if opening.identity != Identity::Kernel || caches {
        return refused("a session for private logs is the local kernel's, and caches nothing");
    }
    let lends = counted(server, outbox)?;
    let limits = Limits { bytes: BYTES, ..Limits::default() };
    let opening = Opening { limits, administrator: false, ..Opening::kernel() };
    let service = server.volume.lend(opening, Arc::new(Recalls(lends.clone())))?;
    Ok((Arc::new(Lending { service, lends: lends.clone() }), lends))
}

/// What a session needs that holds leases for itself.
///
/// # Errors
/// It also caches, or comes back when its server is lost; there are too many.
pub(super) fn may_hold(
    server: &Server,
    (caches, returns): (bool, bool),
    outbox: &Arc<Outbox>,
) -> Result<Arc<Lends>> {
    if caches || returns {
        let what = "a session that holds leases caches nothing, and ends with its connection";
        return Err(Error::Refused(what.into()));
    }
    counted(server, outbox)
}

/// Opens such a session.
///
/// # Errors
/// There are too many sessions.
pub(super) fn hold(
    server: &Server,
    opening: Opening,
    lends: &Arc<Lends>,
) -> Result<Arc<dyn FileService>> {
    let service = server.volume.hold(opening, Arc::new(Recalls(lends.clone())))?;
    Ok(Arc::new(Lending { service, lends: lends.clone() }))
}

fn counted(server: &Server, outbox: &Arc<Outbox>) -> Result<Arc<Lends>> {
    let all = server.lending.clone();
    if all.fetch_add(1, Ordering::SeqCst) >= SESSIONS {
        all.fetch_sub(1, Ordering::SeqCst);
        return Err(Error::Refused("too many sessions hold leases".into()));
    }
    Ok(Arc::new(Lends { outbox: outbox.clone(), leases: Mutex::default(), all }))
}

impl Drop for Lends {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Lends {
    fn lock(&self) -> MutexGuard<'_, Granted> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server is about to end: has the client return all leases. True while it may still do
    /// so.
    pub fn has_to_return(&self) -> bool {
        let mut leases = self.lock();
        let granted = match leases.ending {
            Some(_) => Vec::new(),
            None => leases.granted.iter().copied().collect(),
        };
        let since = *leases.ending.get_or_insert_with(Instant::now);
        let waits = !leases.granted.is_empty() && since.elapsed() < PATIENCE;
        drop(leases);
        granted.into_iter().for_each(|lease| self.outbox.queue(FromServer::Recall { lease }));
        waits
    }

    fn is_ending(&self) -> bool {
        self.lock().ending.is_some()
    }

    /// What a request about a lease came to.
    fn note(&self, returns: Option<LeaseId>, result: &Result<Reply>) {
        if let Ok(Reply::Leased { lease, .. }) = result {
            self.lock().granted.insert(*lease);
        }
        if let Some(lease) = returns {
            self.lock().granted.remove(&lease);
        }
    }
}

/// Nobody can be asked under the Runtime's lock what a program shows of its file: so a session that
/// asks for attributes has the lease recalled. The order of what a later fsync(2) must not overtake
/// is of no use either, because each fsync(2) is a call.
impl Holder for Recalls {
    fn recall(&self, lease: LeaseId) {
        self.0.outbox.queue(FromServer::Recall { lease });
    }
}

impl FileService for Lending {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.call_owing(cred, req).0
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        if matches!(req, Request::Lease { .. }) && self.lends.is_ending() {
            return (Err(errno(libc::EAGAIN)), Owed::default());
        }
        let returns = match req {
            Request::LeaseReturn { lease } => Some(lease),
            _ => None,
        };
        let (result, owed) = self.service.call_owing(cred, req);
        self.lends.note(returns, &result);
        (result, owed)
    }

    /// Who returns a lease does not wait until others have been told of it: those that want the
    /// file do.
    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        match req {
            Request::Lease { .. } | Request::LeaseReturn { .. } => done(self.call(cred, req)),
            _ => self.service.submit(cred, req, done),
        }
    }
}

/// The call that a message of lent data is; other messages as they are.
///
/// # Errors
/// The blocks are not those that the data touch.
pub(super) fn as_call(message: ToServer) -> std::result::Result<ToServer, String> {
    match message {
        ToServer::Lent { slot, number, credentials, lease, offset, len, time, blocks } => {
            let data = taken((offset, len as usize), &blocks)?;
            let request =
                Box::new(Request::LeaseWrite { lease, offset, data, time, durable: false });
            Ok(ToServer::Call { slot, number, credentials, request, change: None, proofs: None })
        }
        message => Ok(message),
    }
}

/// A copy of its own of data that lie in lent blocks, which go back with that.
fn taken(
    (offset, len): (u64, usize),
    blocks: &[SharedBlock],
) -> std::result::Result<WriteData, String> {
    let mut from = (offset % BLOCK_BYTES) as usize;
    if len == 0 || blocks.len() != (from + len).div_ceil(BLOCK_SIZE) {
        let n = blocks.len();
        return Err(format!("it lends {n} blocks for {len} bytes from byte {offset} on"));
    }
    let mut own = [0; BLOCK_SIZE];
    if from == 0 && len.is_multiple_of(BLOCK_SIZE) {
        let blocks = blocks.iter().map(|block| {
            block.copy_to(&mut own);
            SharedBlock::from(own)
        });
        return Ok(WriteData::Blocks(blocks.collect()));
    }
    let mut bytes = Vec::with_capacity(len);
    for block in blocks {
        block.copy_to(&mut own);
        let to = BLOCK_SIZE.min(from + len - bytes.len());
        bytes.extend_from_slice(own.get(from..to).unwrap_or_default());
        from = 0;
    }
    Ok(WriteData::Bytes(bytes))
}

#[cfg(test)]
#[path = "lends_tests.rs"]
mod tests;
