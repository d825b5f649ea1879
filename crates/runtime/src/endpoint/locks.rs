//! Requests for locks on files.

use super::{Call, Endpoint};
use crate::runtime::Runtime;
use crate::session::locks::{Ask, OwnerId};
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Completion, Credentials, Handle, LockAsk, LockKind, LockPlace, LockRange, Reply, Request,
    Target,
};
use std::sync::mpsc;

impl Call<'_> {
    /// The lock that is in the way of another.
    pub(super) fn get_lock(
        &self,
        file: Target,
        owner: u64,
        (range, kind): (LockRange, LockKind),
    ) -> Result<Reply> {
        let Target::Open(handle) = file else { return Err(errno(libc::EBADF)) };
        let (ino, _) = self.lockable(handle)?;
        let owner = OwnerId { session: self.session.id, number: owner };
        Ok(Reply::Lock(self.runtime.file_locks.get(ino, owner, range, kind)))
    }

    /// What the session asks for, if it may.
    fn lock_ask(&self, file: Target, ask: LockAsk) -> Result<Ask> {
        let Target::Open(handle) = file else { return Err(errno(libc::EBADF)) };
        let (ino, access) = self.lockable(handle)?;
        let may = match ask.kind {
            _ if ask.place == LockPlace::Whole => true,
            None => true,
            Some(LockKind::Read) => access.reads(),
            Some(LockKind::Write) => access.writes(),
        };
        match may {
            true => Ok(self.ask(ino, handle, ask)),
            false => Err(errno(libc::EBADF)),
        }
    }

    fn ask(&self, ino: InodeNr, handle: Handle, ask: LockAsk) -> Ask {
        Ask { session: self.session.id, user: self.cred.uid, ino, handle: handle.0, ask }
    }

    /// A descriptor is closed.
    pub(super) fn close_locks(&self, ino: InodeNr, handle: Handle, owner: u64) -> Reply {
        let (place, pid) = (LockPlace::Range(LockRange::ALL), self.cred.pid);
        let ask = LockAsk { owner, pid, place, kind: None, wait: None };
        self.runtime.file_locks.close_descriptor(&self.ask(ino, handle, ask));
        Reply::Done
    }

    /// A wait for a lock is over, if there is one of this number.
    pub(super) fn cancel_lock(&self, number: u64) -> Reply {
        self.runtime.file_locks.cancel(self.session.id, number);
        Reply::Done
    }

    /// The inode of a handle that may be used for more than its name, and for what.
    fn lockable(&self, handle: Handle) -> Result<(InodeNr, Access)> {
        let id = self.session.id;
        let opened = self.runtime.lock().metadata.tree.inodes.references.opened(id, handle.0);
        let opened = opened.and_then(|opened| Some((opened.ino, opened.access?)));
        opened.ok_or_else(|| errno(libc::EBADF))
    }
}

impl Endpoint {
    /// Takes or gives up a lock; the answer may come later, and then no thread waits for it.
    pub(super) fn set_lock(
        &self,
        cred: &Credentials,
        (file, ask): (Target, LockAsk),
        done: Completion,
    ) {
        let req = Request::SetLock { file, ask };
        let ask = match self.carry_out(cred, req, |call, _| call.lock_ask(file, ask)).0 {
            Ok(ask) => ask,
            Err(e) => return done(Err(e)),
        };
        let locks = &self.runtime.file_locks;
        locks.set(&ask, done);
        // A kernel closes no file while it asks for something. Everybody else may: what was taken
        // through a handle that has gone meanwhile goes after it.
        if !self.session.is_kernel() && !is_open(&self.runtime, &ask) {
            locks.close(ask.session, ask.handle, true);
        }
    }

    /// As [`Endpoint::set_lock`], on the caller's thread.
    pub(super) fn set_lock_now(
        &self,
        cred: &Credentials,
        file: Target,
        ask: LockAsk,
    ) -> Result<Reply> {
        let (tell, told) = mpsc::sync_channel(1);
        let done = Box::new(move |result| {
            // Nobody is there to be told if the caller's thread has ended.
            let _ = tell.send(result);
        });
        self.set_lock(cred, (file, ask), done);
        told.recv().unwrap_or_else(|_| Err(errno(libc::EIO)))
    }
}

fn is_open(runtime: &Runtime, ask: &Ask) -> bool {
    let st = runtime.lock();
    st.metadata.tree.inodes.references.opened(ask.session, ask.handle).is_some()
}
