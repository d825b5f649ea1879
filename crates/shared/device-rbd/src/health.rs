//! What is known of a cluster's health, and of the calls that wait for it.

use crate::cluster::Cluster;
use siftfs_status::ClusterInfo;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer of the cluster is good.
const FRESH: Duration = Duration::from_secs(2);
/// How long a report waits for a newer one.
const PATIENCE: Duration = Duration::from_millis(300);

/// The health, asked for by a thread of its own, so that no report waits for a cluster that does
/// not answer.
#[derive(Default)]
pub(crate) struct Health {
    state: Arc<(Mutex<State>, Condvar)>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct State {
    said: String,
    when: Option<Instant>,
    asking: bool,
}

/// The calls that have not returned, by number.
#[derive(Default)]
struct Calls {
    next: u64,
    begun: BTreeMap<u64, Instant>,
}

/// A call that has not returned.
pub(crate) struct Call<'a>(&'a Health, u64);

impl Health {
    /// Counts a call until the guard is dropped.
    pub fn call(&self) -> Call<'_> {
        let mut calls = locked(&self.calls);
        let number = calls.next;
        calls.next += 1;
        calls.begun.insert(number, Instant::now());
        Call(self, number)
    }

    /// What there is to say of the cluster now.
    pub fn report(&self, cluster: &Arc<Cluster>, pool: &str, object_size: u64) -> ClusterInfo {
        let health = self.health(cluster);
        let calls = locked(&self.calls);
        // Numbers grow with time: the first has waited for the longest.
        let longest = calls.begun.values().next().map_or(Duration::ZERO, Instant::elapsed);
        ClusterInfo {
            fsid: cluster.fsid.clone(),
            pool: pool.to_owned(),
            object_bytes: object_size,
            health,
            waiting: calls.begun.len() as u64,
            longest_ms: u64::try_from(longest.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn health(&self, cluster: &Arc<Cluster>) -> String {
        let (state, changed) = &*self.state;
        let mut now = locked(state);
        let fresh = now.when.is_some_and(|when| when.elapsed() < FRESH);
        if !fresh && !now.asking {
            now.asking = true;
            let (shared, cluster) = (self.state.clone(), cluster.clone());
            let ask = move || {
                let said = cluster.health().unwrap_or_else(|_| "unreachable".into());
                let mut state = locked(&shared.0);
                *state = State { said, when: Some(Instant::now()), asking: false };
                shared.1.notify_all();
            };
            if std::thread::Builder::new().name("siftfs-health".into()).spawn(ask).is_err() {
                now.asking = false;
            }
        }
        let waited = changed.wait_timeout_while(now, PATIENCE, |state| state.asking);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.asking {
            true => "does not answer".into(),
            false => state.said.clone(),
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        locked(&self.0.calls).begun.remove(&self.1);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
