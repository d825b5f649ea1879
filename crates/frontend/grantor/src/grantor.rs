//! The threads.

use crate::counters::{Counters, Counts};
use crate::holder::Recalls;
use crate::serve::Connection;
use crate::session::{Common, Session};
use crate::table::Table;
use crate::vouched::vouched;
use crate::{Bounds, Logs, Opens, Peer, Redeems};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use siftfs_lease::Packets;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often leases are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// Threads that carry out recalls.
const RECALLERS: usize = 2;
/// After an accept(2) that failed: descriptors are missing, most likely.
const RETRY: Duration = Duration::from_millis(100);

struct Shared {
    common: Common,
    bounds: Bounds,
    table: Mutex<Table>,
    changed: Condvar,
    listener: OwnedFd,
}

/// Grants leases to the programs of a mount until it is stopped.
pub struct Grantor {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Grantor {
    /// Serves those that connect to `listener`, a unix socket of packets.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        listener: OwnedFd,
        opens: Arc<dyn Opens>,
        redeems: Arc<dyn Redeems>,
        logs: Option<Arc<dyn Logs>>,
        bounds: Bounds,
    ) -> io::Result<Self> {
        let counters = Arc::new(Counters::default());
        let (recalls, how, pipelines) = (Arc::default(), bounds.ingest, Arc::default());
        let common = Common { opens, redeems, counters, recalls, logs, how, pipelines };
        let (table, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { common, bounds, table, changed, listener });
        let grantor = Self { shared, threads: Mutex::default() };
        let shared = &grantor.shared;
        let mut threads = Vec::new();
        let start = |name: &str, run: fn(&Arc<Shared>)| {
            let shared = shared.clone();
            thread::Builder::new().name(name.into()).spawn(move || run(&shared))
        };
        for _ in 0..RECALLERS {
            threads.push(start("siftfs-recall", |shared| recall(&shared.common.recalls))?);
        }
        threads.push(start("siftfs-keep", |shared| shared.keep())?);
        threads.push(start("siftfs-age", |shared| shared.age())?);
        threads.push(start("siftfs-enter", Shared::accept)?);
        *grantor.threads() = threads;
        Ok(grantor)
    }

    /// What there is, and was.
    pub fn counts(&self) -> Counts {
        let sessions = self.shared.lock().len();
        self.shared.common.counters.counts(sessions)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what all programs have published so far. No file log undoes what is made durable
    /// after that.
    pub fn ingest(&self) {
        let sessions = self.shared.lock().sessions();
        sessions.iter().for_each(|session| session.take_in());
        sessions.iter().for_each(|session| session.end_logged());
    }

    /// Takes in what all programs have published, and ends their sessions. Waits for that at most
    /// so long; false, if something is left, which goes on and ends by itself.
    pub fn stop(&self, most: Duration) -> bool {
        self.close();
        let until = Instant::now() + most;
        let mut table = self.shared.lock();
        while table.len() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.changed.wait_timeout(table, left);
            table = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(table);
        self.shared.common.recalls.close();
        let threads = std::mem::take(&mut *self.threads());
        threads.into_iter().all(|thread| thread.join().is_ok())
    }

    fn close(&self) {
        self.shared.lock().close();
        self.shared.changed.notify_all();
        // Fails only where it is shut already.
        let _ = shutdown(&self.shared.listener, Shutdown::Both);
    }
}

impl Drop for Grantor {
    fn drop(&mut self) {
        self.close();
        self.shared.common.recalls.close();
    }
}

/// Ends what other sessions wait for.
fn recall(recalls: &Recalls) {
    while let Some((session, lease)) = recalls.next() {
        if let Some(session) = session.upgrade() {
            session.recall(lease);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `look` with every session, again and again, until the end.
    fn each(&self, look: impl Fn(&Arc<Session>)) {
        loop {
            let table = self.lock();
            if table.is_closed() {
                return;
            }
            let woken = self.changed.wait_timeout(table, LOOK);
            let table = woken.unwrap_or_else(PoisonError::into_inner).0;
            let sessions = table.sessions();
            drop(table);
            sessions.iter().for_each(&look);
        }
    }

    fn keep(&self) {
        self.each(|session| {
            session.vouch(vouched());
            session.keep();
        });
    }

    fn age(&self) {
        let Bounds { commit, unused, .. } = self.bounds;
        self.each(|session| session.age((commit, unused)));
    }

    fn accept(self: &Arc<Self>) {
        while !self.lock().is_closed() {
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.begin(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => {
                    let table = self.lock();
                    if !table.is_closed() {
                        drop(self.changed.wait_timeout(table, RETRY));
                    }
                }
            }
        }
    }

    fn begin(self: &Arc<Self>, socket: OwnedFd) {
        let Ok(peer) = getsockopt(&socket, PeerCredentials) else { return };
        let pid = u32::try_from(peer.pid()).unwrap_or(0);
        let peer = Peer { pid, uid: peer.uid() };
        let socket = Arc::new(Packets::from(socket));
        let Some(number) = self.lock().admit(peer.uid, &socket, self.bounds.sessions) else {
            Counters::add(&self.common.counters.refused, 1);
            return;
        };
        let shared = self.clone();
        let started = thread::Builder::new().name("siftfs-lease".into()).spawn(move || {
            let Shared { common, table, bounds, .. } = &*shared;
            Connection { common, table, bounds, number, peer, socket }.serve();
            shared.leave(number);
        });
        if started.is_err() {
            self.leave(number);
        }
    }

    fn leave(&self, number: u64) {
        self.lock().leave(number);
        self.changed.notify_all();
    }
}
