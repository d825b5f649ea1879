//! The connections by which programs of a mount have private logs on a volume that another process
//! serves, one per program, and what has crossed them.

use siftfs_base::Result;
use siftfs_proto::{Completion, Credentials, FileService, Owed, Reply, Request};
use siftfs_remote::{Crossed, Lender};
use siftfs_status::Placement;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All of a mount.
#[derive(Default)]
pub struct Lenders {
    all: Mutex<All>,
    /// The log has said why a program got no connection.
    refused: AtomicBool,
}

#[derive(Default)]
struct All {
    live: Vec<Weak<Lender>>,
    /// Of those that have ended.
    before: Crossed,
    opened: u64,
}

/// One of them. What has crossed it is counted when it is dropped.
struct Counted {
    client: Arc<Lender>,
    lenders: Arc<Lenders>,
}

impl Lenders {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of a new connection.
    pub fn session(self: &Arc<Self>, client: Arc<Lender>) -> Arc<dyn FileService> {
        let mut all = self.lock();
        all.live.push(Arc::downgrade(&client));
        all.opened += 1;
        drop(all);
        Arc::new(Counted { client, lenders: self.clone() })
    }

    /// A program gets no connection. The log says the reason once: the mount's other programs have
    /// the same.
    pub fn refused(&self, error: &siftfs_base::Error) {
        if !self.refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "programs have no private logs here, and write by the mount");
        }
    }

    /// What there is of them; none, if there never was one.
    pub fn placement(&self) -> Option<Placement> {
        let all = self.lock();
        let mut crossed = all.before;
        let live = all.live.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        live.iter().for_each(|client| crossed += client.crossed());
        let Crossed { sent, lent, received } = crossed;
        let (connections, opened) = (live.len() as u64, all.opened);
        (opened > 0).then_some(Placement { connections, opened, sent, lent, received })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let own = Arc::downgrade(&self.client);
        let mut all = self.lenders.lock();
        all.live.retain(|other| !other.ptr_eq(&own));
        all.before += self.client.crossed();
    }
}

impl FileService for Counted {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.client.call(cred, req)
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        self.client.call_owing(cred, req)
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        self.client.submit(cred, req, done);
    }
}
