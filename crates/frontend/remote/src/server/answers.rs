//! Answers of a session's calls, also by threads that may not wait for its client.

use super::identity::BYTES;
use super::outbox::Outbox;
use super::proofs::Prover;
use super::slots::Slots;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_calls::{Done, FromServer, Proof};
use siftfs_proto::{Handle, LeaseId, Owed, Reply, Request, Target};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Changes of a session that may be answered before other sessions have taken note of them.
const OWING: usize = 1024;
/// Bytes of data in the calls of a session whose answers have not left. What the client may have
/// under way is half of that: it sends the next call when it has the answer, which the thread that
/// has sent it may learn later.
const OWN_BYTES: u64 = 2 * BYTES;
/// Bytes of data in the calls of all sessions whose answers have not left.
const ALL_BYTES: u64 = 1 << 30;

/// What threads of the Runtime need to answer a call.
pub(super) struct Answers {
    pub outbox: Arc<Outbox>,
    pub slots: Slots,
    /// Bytes of data in calls whose answers have not left: of this session, and of all.
    data: AtomicU64,
    all_data: Arc<AtomicU64>,
    /// What the session has open.
    handles: Mutex<HashMap<Handle, InodeNr>>,
    /// What is leased to a session that lends.
    leases: Mutex<HashMap<LeaseId, InodeNr>>,
    /// Changes that are answered and that other sessions have not taken note of.
    owing: AtomicUsize,
    /// Of a client that comes back and whose callers are checked.
    prover: Option<Arc<Prover>>,
}

/// What a call came to, as its client is told it.
pub(super) struct Answer {
    pub result: Result<Reply>,
    pub done: Option<Done>,
    pub proofs: Option<Vec<Proof>>,
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        Self { result: Err(error), done: None, proofs: None }
    }
}

/// Data of a call, until its answer has left.
pub(super) struct Data {
    answers: Arc<Answers>,
    bytes: u64,
}

impl Data {
    /// # Errors
    /// `EAGAIN`: the session, or all of them together, have as much as they may have.
    pub fn take(answers: &Arc<Answers>, bytes: u64) -> Result<Self> {
        let own = answers.data.fetch_add(bytes, Ordering::Relaxed);
        let all = answers.all_data.fetch_add(bytes, Ordering::Relaxed);
        let taken = Self { answers: answers.clone(), bytes };
        match own.saturating_add(bytes) <= OWN_BYTES && all.saturating_add(bytes) <= ALL_BYTES {
            true => Ok(taken),
            false => Err(errno(libc::EAGAIN)),
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        self.answers.data.fetch_sub(self.bytes, Ordering::Relaxed);
        self.answers.all_data.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Answers {
    /// Those of a new session; `all_data` counts for all of them.
    pub fn new(outbox: Arc<Outbox>, all_data: Arc<AtomicU64>, prover: Option<Arc<Prover>>) -> Self {
        let (slots, data, handles, leases, owing) = Default::default();
        Self { outbox, slots, data, all_data, handles, leases, owing, prover }
    }

    /// May one more change be answered before other sessions have taken note of it?
    pub fn may_owe(&self) -> bool {
        self.owing.load(Ordering::SeqCst) < OWING
    }

    /// The inode that is open there.
    pub fn opened(&self, handle: Handle) -> Option<InodeNr> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).copied()
    }

    /// The file of the lease by which a request writes.
    pub fn leased(&self, request: &Request) -> Option<InodeNr> {
        let Request::LeaseWrite { lease, .. } = request else { return None };
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).get(lease).copied()
    }

    /// The answer with this result. What the call has opened or closed is noted.
    pub fn answer(&self, request: &Request, result: Result<Reply>, done: Option<Done>) -> Answer {
        self.note_opened(request, &result);
        let proofs = match (&self.prover, &result) {
            (Some(prover), Ok(reply)) => Some(prover.of(request, reply)),
            _ => None,
        };
        let proofs = proofs.filter(|proofs| !proofs.is_empty());
        Answer { result, done, proofs }
    }

    fn note_opened(&self, request: &Request, result: &Result<Reply>) {
        let note = |handle, ino| {
            let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
            handles.insert(handle, ino);
        };
        match (request, result) {
            (_, Ok(Reply::Created { attr, handle })) => note(*handle, attr.ino),
            (
                Request::Open { ino, .. } | Request::Hold { ino } | Request::OpenDir { ino },
                Ok(Reply::Opened { handle }),
            ) => note(*handle, *ino),
            (_, Ok(Reply::Compounded(done))) => {
                done.opened().iter().for_each(|it| note(it.handle, it.ino));
            }
            (
                Request::Lease { file: Target::Open(handle), .. },
                Ok(Reply::Leased { lease, .. }),
            ) => {
                let ino = self.opened(*handle);
                let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
                leases.extend(ino.map(|ino| (*lease, ino)));
            }
            (Request::LeaseReturn { lease }, _) => {
                self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
            }
            (Request::Release { handle }, _) => {
                self.handles.lock().unwrap_or_else(PoisonError::into_inner).remove(handle);
            }
            _ => {}
        }
    }

    /// Answers a change, and says when other sessions have taken note of it. No thread waits for
    /// these.
    pub fn give_owing(self: &Arc<Self>, call: (u32, u64), answer: Answer, owed: Owed) {
        if owed.is_settled() {
            return self.give(call, answer, true);
        }
        let (slot, number) = call;
        let Answer { result, done, proofs } = answer;
        let result = result.map(Box::new);
        self.slots.end(slot);
        self.owing.fetch_add(1, Ordering::SeqCst);
        self.outbox.send(FromServer::Owing { slot, number, result, done, proofs });
        let answers = self.clone();
        owed.then(Box::new(move || {
            answers.owing.fetch_sub(1, Ordering::SeqCst);
            answers.outbox.post(FromServer::Settled { slot, number });
        }));
    }

    pub fn give(&self, (slot, number): (u32, u64), answer: impl Into<Answer>, may_wait: bool) {
        self.slots.end(slot);
        let Answer { result, done, proofs } = answer.into();
        let result = result.map(Box::new);
        let answer = FromServer::Answer { slot, number, result, done, proofs };
        match may_wait {
            true => self.outbox.send(answer),
            false => self.outbox.post(answer),
        }
    }
}

/// Of a request what is needed to know what its answer opened.
pub(super) fn request_of_handles(request: &Request) -> Request {
    match request {
        Request::Open { ino, access, .. } => Request::open(*ino, *access),
        Request::Hold { ino } => Request::Hold { ino: *ino },
        Request::OpenDir { ino } => Request::OpenDir { ino: *ino },
        Request::Release { handle } => Request::Release { handle: *handle },
        Request::Lease { file, writers, direct } => {
            Request::Lease { file: *file, writers: *writers, direct: *direct }
        }
        Request::LeaseReturn { lease } => Request::LeaseReturn { lease: *lease },
        _ => Request::StatFs,
    }
}
