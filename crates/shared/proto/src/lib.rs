//! The file protocol: what a Frontend may ask of a Runtime, as messages.
//!
//! FUSE, the embedded API and tests speak nothing else. Names are byte strings without `/` or
//! NUL; inode 2 is the root directory. Calls may come from many threads and sessions. A session is
//! opened with an identity and limits ([`Opening`]), and all that it has ends with it.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod builder;
pub mod commands;
pub mod compound;
mod data;
pub mod flags;
pub mod ioctl;
mod locks;
mod names;
mod notice;
mod origin;
mod reply;
mod request;
mod session;
pub mod steps;
mod types;
/// The tests of every order of the threads (`testing/interleave`) have others in their place.
mod sync {
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
}
pub use data::*;
pub use locks::*;
pub use names::*;
pub use notice::*;
pub use origin::*;
pub use reply::*;
pub use request::*;
pub use session::*;
pub use types::*;

use siftfs_base::{Error, InodeNr};

/// One session's end of the file protocol.
pub trait FileService: Send + Sync {
    /// Carries out one request on the caller's thread; returns when it is done (for `Fsync`,
    /// when it is durable).
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply, Error>;

    /// As [`FileService::call`], but other sessions that cache may still show what was before: the
    /// caller answers for the change when nothing is owed any more. `call` waits for that.
    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply, Error>, Owed) {
        (self.call(cred, req), Owed::default())
    }

    /// Does the session refer to the inode by a lookup? For what does not count lookups, yes.
    fn has_looked_up(&self, ino: InodeNr) -> bool {
        let _ = ino;
        true
    }

    /// Nobody wants to wait any more for a server that is lost: calls that do so, and later ones
    /// that would, are errors.
    fn give_up(&self) {}

    /// Finds the directory that `path` names from the volume's root, whatever the session's caller
    /// may search, and counts one reference to it for [`Request::Forget`]. The path has names with
    /// `/` between; no symbolic link in it is followed. For the process that opened the session,
    /// before others use it: there is no request for this.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP` for a symbolic link; `EOPNOTSUPP` for a service that is no
    /// Runtime's.
    fn enter(&self, path: &[u8]) -> Result<InodeNr, Error> {
        let _ = path;
        Err(siftfs_base::errno(libc::EOPNOTSUPP))
    }

    /// As [`FileService::call`], with the answer delivered to `done`, possibly on another
    /// thread and later. A `Wait` with a timeout keeps the caller's thread: one without may not.
    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        done(self.call(cred, req));
    }
}

/// Writes that a session which lends may have answered before it gives them by `LeaseWrite`, at
/// most, of all its leases together: there will be space for them ([`Reply::WrittenLast`]).
pub const LENT_WRITES: u64 = 1024;
/// ... and their bytes.
pub const LENT_BYTES: u64 = 4 << 20;
/// ... and the bytes of one of them.
pub const LENT_WRITE_BYTES: u64 = 1 << 20;

/// A session that may hold write leases.
pub trait Holder: Send + Sync {
    /// Another session wants the file: the lease is to be returned, and before it everything that
    /// the holder has for the file. Returns at once: it is called by the thread that waits for the
    /// lease's end, which has no lock. The call may come before the holder has read the answer that
    /// grants the lease, and after it has returned the lease.
    fn recall(&self, lease: LeaseId);

    /// What other sessions are shown of the file while the lease lasts, so that to look at its
    /// attributes does not recall it; nothing if it is to be recalled for that. Called under the
    /// Runtime's lock: it reads words in memory, and waits for nothing.
    fn attributes(&self, lease: LeaseId) -> Option<Shown> {
        let _ = lease;
        None
    }

    /// Something that a later fsync(2) must not overtake was done, or the session begins: `order`
    /// counts such things on this volume, from 1 on. What was done is answered after this returns.
    /// Only a session that lends is told; no number comes after a larger one. Called under the
    /// Runtime's lock: it writes a word, and waits for nothing.
    fn ordered(&self, order: u64) {
        let _ = order;
    }

    /// The session is lost, and with it every lease: nothing more can be given or returned. Waits
    /// for nothing.
    fn lost(&self) {}
}

/// Where a submitted request's answer goes.
pub type Completion = Box<dyn FnOnce(Result<Reply, Error>) + Send>;
