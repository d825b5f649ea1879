//! The thread that tends a connection.

use crate::link::{Link, RecvPipe, SendPipe};
use siftfs_base::{Error, Result};
use siftfs_codec::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Ends the thread, and then the connection, when the last half is dropped.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub fn start<In: Message, S: SendPipe, R: RecvPipe>(link: Arc<Link<In, S, R>>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        // Twice per heartbeat and often enough for the stall.
        let pause = link.tick / 2;
        let run = move || {
            // A connection that has just begun has nothing to tend.
            std::thread::park_timeout(pause);
            while !stopped.load(Ordering::Acquire) {
                link.tend();
                std::thread::park_timeout(pause);
            }
            link.finish();
        };
        let thread = std::thread::Builder::new()
            .name("siftfs-link".into())
            .spawn(run)
            .map_err(|e| Error::Refused(format!("cannot start a connection's thread: {e}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A failed assertion there has said what happened; there is nothing to add.
            let _ = thread.join();
        }
    }
}
