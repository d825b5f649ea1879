//! A session whose server checks what callers may do: it knows nothing of them but what each call
//! brings. The kernel brings a user, a group and a thread; groups and capabilities of that thread
//! are read here, in this machine's /proc (rule R52; "A machine's mount" in
//! `docs/design/keys.md`).

use crate::serve::caller;
use siftfs_base::{InodeNr, Result};
use siftfs_proto::{Completion, Credentials, FileService, Owed, Reply, Request};
use std::borrow::Cow;
use std::sync::Arc;

/// A session that sends the callers' rights along.
struct Vouching(Arc<dyn FileService>);

/// The session `inner`, whose server checks callers one by one: each call on which something is
/// decided carries its caller's rights.
pub fn vouching(inner: Arc<dyn FileService>) -> Arc<dyn FileService> {
    Arc::new(Vouching(inner))
}

/// Does the answer depend on what the caller may do? All that is not listed is decided by what a
/// user had a file open for, or by nothing.
fn is_decided(req: &Request) -> bool {
    use Request as R;
    match req {
        R::Forget { .. }
        | R::GetAttr { .. }
        | R::ReadLink { .. }
        | R::Hold { .. }
        | R::Release { .. }
        | R::Read { .. }
        | R::WriteBack { .. }
        | R::Fsync { .. }
        | R::Stage { .. }
        | R::Barrier
        | R::Poll { .. }
        | R::Wait { .. }
        | R::EndSession
        | R::Seek { .. }
        | R::GetFlags { .. }
        | R::GetLock { .. }
        | R::SetLock { .. }
        | R::CloseLocks { .. }
        | R::CancelLock { .. }
        | R::SectionStart { .. }
        | R::SectionWrite { .. }
        | R::SectionRead { .. }
        | R::SectionAbort { .. }
        | R::Lease { .. }
        | R::LeaseWrite { .. }
        | R::LeaseLocate { .. }
        | R::LeaseKeep { .. }
        | R::LeaseReturn { .. }
        | R::LeaseDirect { .. }
        | R::LeaseExtend { .. }
        | R::ReadDirect { .. }
        | R::HoldMany { .. }
        | R::StatFs
        | R::SyncAll
        | R::Checkpoint
        | R::Trim { .. }
        | R::Status => false,
        R::Lookup { .. }
        | R::SetAttr { .. }
        | R::MakeNode { .. }
        | R::MakeDir { .. }
        | R::Symlink { .. }
        | R::Link { .. }
        | R::Unlink { .. }
        | R::RemoveDir { .. }
        | R::Rename { .. }
        | R::Create { .. }
        | R::TmpFile { .. }
        | R::Open { .. }
        | R::OpenDir { .. }
        | R::ReadDir { .. }
        | R::Write { .. }
        | R::Append { .. }
        | R::Allocate { .. }
        | R::GetXattr { .. }
        | R::ListXattr { .. }
        | R::SetXattr { .. }
        | R::RemoveXattr { .. }
        | R::SetFlags { .. }
        | R::SectionCommit { .. }
        | R::Publish { .. }
        | R::Compound(_) => true,
    }
}

/// The caller with its rights, if they count.
fn vouched<'a>(cred: &'a Credentials, req: &Request) -> Cow<'a, Credentials> {
    // What has no thread is nobody's, or the daemon's own: it has no rights that a server believes.
    if cred.pid == 0 || !is_decided(req) {
        return Cow::Borrowed(cred);
    }
    let rights = caller::vouched(cred);
    Cow::Owned(Credentials { rights: Some(Box::new(rights)), ..cred.clone() })
}

impl FileService for Vouching {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.0.call(&vouched(cred, &req), req)
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        self.0.call_owing(&vouched(cred, &req), req)
    }

    fn has_looked_up(&self, ino: InodeNr) -> bool {
        self.0.has_looked_up(ino)
    }

    fn give_up(&self) {
        self.0.give_up();
    }

    fn enter(&self, path: &[u8]) -> Result<InodeNr> {
        self.0.enter(path)
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        self.0.submit(&vouched(cred, &req), req, done);
    }
}

#[cfg(test)]
#[path = "rights_tests.rs"]
mod tests;
