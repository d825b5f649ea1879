//! What a process says of itself to those who watch it: its metrics, and whether it is ready.

use siftfs_status::{State, StateCell, Status};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long a volume may take to say how it is: less than a connection to this process may last.
const LIMIT: Duration = Duration::from_secs(3);
/// How often it is looked whether another question has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Asks for the present status.
type Source = Box<dyn Fn() -> Result<Status, String> + Send + Sync>;

/// Where a process notes its state, and where it is asked for that and for its status. It begins
/// before the volume is open, as one that recovers.
#[derive(Default)]
pub struct Board {
    state: StateCell,
    status: OnceLock<Source>,
    /// One question is under way at most, so that a volume that does not answer costs one thread.
    asking: AtomicBool,
}

impl Board {
    /// Where the process notes its state.
    pub fn state(&self) -> &StateCell {
        &self.state
    }

    /// The volume is open, and is asked by `status` from now on.
    pub fn show(&self, status: impl Fn() -> Result<Status, String> + Send + Sync + 'static) {
        let first = self.status.set(Box::new(status)).is_ok();
        assert!(first, "a process has one volume");
    }

    /// The present status. Waits for no longer than [`LIMIT`].
    ///
    /// # Errors
    /// A message: the volume is not open, or does not answer.
    pub fn status(self: &Arc<Self>) -> Result<Status, String> {
        if self.status.get().is_none() {
            return Err(format!("{}: the volume is not open yet", self.state.get().name()));
        }
        let end = Instant::now() + LIMIT;
        while self.asking.swap(true, Ordering::AcqRel) {
            if Instant::now() >= end {
                return Err(silent());
            }
            thread::sleep(LOOK);
        }
        let (tell, told) = channel();
        let board = self.clone();
        let asks = move || {
            let said = board.status.get().map(|status| status());
            board.asking.store(false, Ordering::Release);
            // Nobody listens any more if it took too long.
            said.into_iter().for_each(|said| drop(tell.send(said)));
        };
        if let Err(error) = thread::Builder::new().name("siftfs-asks".into()).spawn(asks) {
            self.asking.store(false, Ordering::Release);
            return Err(format!("no thread to ask the volume: {error}"));
        }
        told.recv_timeout(end.saturating_duration_since(Instant::now())).unwrap_or(Err(silent()))
    }

    /// Does the volume serve?
    ///
    /// # Errors
    /// The reason why it does not, in one line.
    pub fn ready(self: &Arc<Self>) -> Result<(), String> {
        match self.state.get() {
            State::Serving => {}
            state => return Err(state.line()),
        }
        self.status()?.unhealthy().map_or(Ok(()), Err)
    }
}

fn silent() -> String {
    format!("the volume does not answer within {} s", LIMIT.as_secs())
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
