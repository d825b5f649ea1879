//! The thread that tends a connection.

use crate::link::{Link, RecvPipe, SendPipe};
use siftfs_base::{Error, Result};
use siftfs_codec::Message;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Tends a connection until somebody else does, and ends it when the last half is dropped.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
    finish: Box<dyn Fn() + Send + Sync>,
}

impl Watch {
    pub fn start<In: Message, S: SendPipe, R: RecvPipe>(link: Arc<Link<In, S, R>>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        // Twice per heartbeat and often enough for the stall.
        let pause = link.tick / 2;
        let ends = link.clone();
        let run = move || {
            // A connection that has just begun has nothing to tend.
            std::thread::park_timeout(pause);
            while !stopped.load(Ordering::Acquire) {
                link.tend();
                std::thread::park_timeout(pause);
            }
        };
        let thread = std::thread::Builder::new()
            .name("siftfs-link".into())
            .spawn(run)
            .map_err(|e| Error::Refused(format!("cannot start a connection's thread: {e}")))?;
        let finish = Box::new(move || ends.finish());
        Ok(Self { stop, thread: Mutex::new(Some(thread)), finish })
    }

    /// Ends the thread: somebody else tends the connection from now on.
    pub fn relieve(&self) {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            // A failed assertion there has said what happened; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.relieve();
        (self.finish)();
    }
}
