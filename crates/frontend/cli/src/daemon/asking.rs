//! Questions to a volume that may wait for its storage without an end.

use siftfs_base::Result as VolumeResult;
use siftfs_proto::{Credentials, FileService, Reply, Request};
use siftfs_status::DeviceInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often it is looked whether the storage is waited for.
const LOOK: Duration = Duration::from_millis(200);

/// Milliseconds after which a call is one that waits for a cluster.
const LATE_MS: u64 = 2000;
/// What is said of a volume that does not say more.
pub const SILENT: &str = "the volume waits for its storage, and does not say more of itself";

/// Has a call been waiting for a cluster for longer than one that works ever takes?
pub fn is_waited_for(devices: &[DeviceInfo]) -> bool {
    let clusters = devices.iter().filter_map(|device| device.cluster.as_ref());
    clusters.into_iter().any(|cluster| cluster.longest_ms >= LATE_MS)
}

/// Asks a volume for its status. One question is under way at most, so that a volume that does not
/// answer costs one thread.
#[derive(Default)]
pub struct Asking {
    under_way: Arc<AtomicBool>,
}

impl Asking {
    /// The answer; `None` if it does not come and `waits` says that the storage is waited for. The
    /// question then ends by itself some time.
    pub fn status(
        &self,
        service: &Arc<dyn FileService>,
        waits: impl Fn() -> bool,
    ) -> Option<VolumeResult<Reply>> {
        let ask =
            |service: &Arc<dyn FileService>| service.call(&Credentials::default(), Request::Status);
        while self.under_way.swap(true, Ordering::AcqRel) {
            if waits() {
                return None;
            }
            thread::sleep(LOOK / 10);
        }
        let (tell, answer) = channel();
        let (asked, under_way) = (service.clone(), self.under_way.clone());
        let asking = thread::Builder::new().name("siftfs-status".into()).spawn(move || {
            let said = ask(&asked);
            under_way.store(false, Ordering::Release);
            // Nobody listens any more if it took too long.
            let _ = tell.send(said);
        });
        if asking.is_err() {
            self.under_way.store(false, Ordering::Release);
            return Some(ask(service));
        }
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(said) => return Some(said),
                Err(RecvTimeoutError::Timeout) if waits() => return None,
                Err(RecvTimeoutError::Timeout) => {}
                // The thread has panicked.
                Err(RecvTimeoutError::Disconnected) => {
                    self.under_way.store(false, Ordering::Release);
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "asking_tests.rs"]
mod tests;
