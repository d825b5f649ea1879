//! Makes durable what clients keep, every now and then and when they ask for it.

use super::{Clients, Over};
use siftfs_base::Result;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a client keeps a change at most that nobody syncs.
const EVERY: Duration = Duration::from_secs(2);

/// When it is time.
#[derive(Default)]
pub(in crate::server) struct Keeper {
    state: Mutex<Asked>,
    wake: Condvar,
}

#[derive(Default)]
struct Asked {
    now: bool,
    over: bool,
}

impl Keeper {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client keeps as much as it may.
    pub fn ask(&self) {
        self.lock().now = true;
        self.wake.notify_all();
    }

    /// No client is left.
    pub fn end(&self) {
        self.lock().over = true;
        self.wake.notify_all();
    }

    /// Syncs by `sync` until the end, as long as clients keep anything, has clients forgotten that
    /// have gone, and has sessions ended whose clients do not come back. While `is_held` nobody
    /// can.
    pub fn run(
        &self,
        clients: &Clients,
        is_held: impl Fn() -> bool,
        sync: impl Fn() -> Result<()>,
        forget: impl Fn(u64),
        end: impl Fn(Over),
    ) {
        let mut looked = Instant::now();
        loop {
            let asked = self.lock();
            let rests = |asked: &mut Asked| !asked.now && !asked.over;
            let waited = self.wake.wait_timeout_while(asked, EVERY, rests);
            let (mut asked, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if asked.over {
                return;
            }
            asked.now = false;
            drop(asked);
            let passed = std::mem::replace(&mut looked, Instant::now());
            if is_held() {
                clients.excuse(passed.elapsed());
            }
            end(clients.take_late());
            clients.take_gone().into_iter().for_each(&forget);
            if clients.wants_durable()
                && let Err(error) = make_durable(clients, &sync)
            {
                tracing::warn!(%error, "what clients keep is not durable");
            }
        }
    }
}

/// Makes all durable that clients have changed so far, and tells them.
///
/// # Errors
/// Those of the sync; those of the book. Nobody is told anything then.
pub(in crate::server) fn make_durable(
    clients: &Clients,
    sync: impl Fn() -> Result<()>,
) -> Result<()> {
    let order = clients.newest();
    sync()?;
    clients.all_durable(order)
}
