//! Until when notices are held of clients whose connection is lost.

use super::Notices;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The clients of a server that are away, and until when their kernels may show what they know.
#[derive(Default)]
pub(in crate::server) struct Terms {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    held: Vec<(Instant, Arc<Notices>)>,
    /// A thread looks at them.
    runs: bool,
}

impl Terms {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the notices of a connection that is lost held until then.
    pub fn hold(self: &Arc<Self>, until: Instant, notices: Arc<Notices>) {
        let mut state = self.lock();
        state.held.push((until, notices));
        self.changed.notify_all();
        if std::mem::replace(&mut state.runs, true) {
            return;
        }
        drop(state);
        let own = self.clone();
        let thread = std::thread::Builder::new().name("siftfs-terms".into());
        if let Err(error) = thread.spawn(move || own.run()) {
            tracing::warn!(%error, "no thread: the end of a session takes longer");
            self.run();
        }
    }

    /// Waits until no term of a client that is away is to come to its end.
    pub fn wait(&self) {
        let state = self.lock();
        let runs = |state: &mut State| state.runs;
        drop(self.changed.wait_while(state, runs).unwrap_or_else(PoisonError::into_inner));
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let over: Vec<_> = state.held.extract_if(.., |(until, _)| *until <= now).collect();
            if !over.is_empty() {
                drop(state);
                over.iter().for_each(|(_, notices)| notices.runs_out());
                state = self.lock();
                continue;
            }
            let Some(next) = state.held.iter().map(|(until, _)| *until).min() else {
                state.runs = false;
                self.changed.notify_all();
                return;
            };
            let left = next.saturating_duration_since(now);
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
