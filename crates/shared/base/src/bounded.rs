//! Questions that may never be answered: what the kernel says of another process, or of a file on
//! another file system, may have to wait for one that hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Silence after which an item is passed over.
pub const SILENCE: Duration = Duration::from_millis(500);
/// Threads of one query that are left behind before the rest of it is given up.
const LEFT_BEHIND: usize = 3;

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Answers<R> {
    /// The answers, in no certain order.
    pub given: Vec<R>,
    /// Every item was answered.
    pub complete: bool,
}

/// Asks `ask` of each of `items`, in a thread beside the caller's, and returns what it answered.
///
/// After a [`SILENCE`] the item that is not answered is passed over: its thread is left behind, to
/// end when its answer comes, and another one goes on. After three of them the query ends, so that
/// it takes at most four times that silence longer than its answers do. If no thread can be
/// started, there are no answers.
pub fn ask_each<T, R>(items: Vec<T>, ask: impl Fn(&T) -> R + Send + Sync + 'static) -> Answers<R>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
{
    let count = items.len();
    let work = Arc::new((items, AtomicUsize::new(0), ask));
    let (tell, told) = channel();
    let mut given = Vec::new();
    for _ in 0..=LEFT_BEHIND {
        let (work, tell) = (work.clone(), tell.clone());
        let body = move || {
            let (items, next, ask) = &*work;
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                if tell.send(Some(ask(item))).is_err() {
                    return;
                }
            }
            let _ = tell.send(None);
        };
        if thread::Builder::new().name("siftfs-ask".into()).spawn(body).is_err() {
            break;
        }
        // Until nothing is left to be asked, or nothing comes.
        loop {
            match told.recv_timeout(SILENCE) {
                Ok(Some(answer)) => given.push(answer),
                Ok(None) => return Answers { complete: given.len() == count, given },
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
    }
    Answers { complete: given.len() == count, given }
}

#[cfg(test)]
#[path = "bounded_tests.rs"]
mod tests;
