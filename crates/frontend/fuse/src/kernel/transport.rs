//! How requests come: by rings or over the device, and why.

use super::abi;
use super::handler::{Dispatch, Handler};
use super::readers::Readers;
use super::ring::{self, NotStarted};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the kernel says whether it offers rings.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// How the kernel's requests shall come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Requests {
    /// By rings where the kernel offers them, else over the device.
    #[default]
    Auto,
    /// By rings; a mount where the kernel does not offer them is refused.
    Ring,
    /// Over the device.
    Device,
}

/// How the kernel's requests come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestLoop {
    /// `ring` or `device`.
    pub kind: &'static str,
    /// Why, in words.
    pub why: String,
    /// Queues of the rings, 0 without.
    pub queues: usize,
    /// Threads that carry requests out, of all queues together.
    pub threads: usize,
    /// Those of them that have a request at this moment.
    pub busy: usize,
}

/// What is known of the loop while it runs.
pub(crate) struct State(Mutex<Known>);

struct Known {
    ring: bool,
    why: String,
    /// From the start of the rings on.
    queues: Option<ring::Queues>,
    /// Those who read from the device, from their start on.
    readers: Option<Arc<Readers>>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How requests come now.
    pub(crate) fn report(&self) -> RequestLoop {
        let known = self.lock();
        let kind = if known.ring { "ring" } else { "device" };
        let read = || known.readers.as_ref().map_or((0, 0), |r| r.count());
        let (queues, (threads, busy)) =
            known.queues.as_ref().map_or_else(|| (0, read()), ring::Queues::count);
        RequestLoop { kind, why: known.why.clone(), queues, threads, busy }
    }
}

/// How requests will come, as far as it was agreed on with the kernel.
pub(super) struct Transport {
    plan: Option<ring::Plan>,
    state: Arc<State>,
}

impl Transport {
    /// Chooses, from what is wanted and what the kernel's INIT offers.
    ///
    /// # Errors
    /// Why there are no rings, if nothing else is wanted.
    pub(super) fn choose(wanted: Requests, flags: u32, flags2: u32) -> Result<Self, String> {
        let offered = flags & abi::FUSE_INIT_EXT != 0 && flags2 & abi::FUSE2_OVER_IO_URING != 0;
        let plan = match wanted {
            Requests::Device => Err("the option requests=device".to_string()),
            Requests::Auto | Requests::Ring if offered => ring::probe(),
            Requests::Auto | Requests::Ring => Err(not_offered()),
        };
        let (plan, why) = match plan {
            Ok(plan) if wanted == Requests::Ring => (Some(plan), "the option requests=ring".into()),
            Ok(plan) => (Some(plan), "the kernel offers it".into()),
            Err(why) if wanted == Requests::Ring => return Err(format!("requests=ring: {why}")),
            Err(why) => (None, why),
        };
        let ring = plan.is_some();
        tracing::info!(ring, why, "how requests come");
        Ok(Self {
            plan,
            state: Arc::new(State(Mutex::new(Known { ring, why, queues: None, readers: None }))),
        })
    }

    pub(super) fn is_ring(&self) -> bool {
        self.plan.is_some()
    }

    pub(super) fn state(&self) -> Arc<State> {
        self.state.clone()
    }

    /// Whatever comes over the device is read by these.
    pub(super) fn reads(&self, readers: &Arc<Readers>) {
        self.state.lock().readers = Some(readers.clone());
    }

    /// Starts the rings if there shall be some. True if requests come by them from now on.
    ///
    /// # Errors
    /// When requests come neither way.
    pub(super) fn start<H: Handler>(
        &self,
        device: &Arc<OwnedFd>,
        dispatch: &Dispatch<H>,
        how: (usize, PathBuf),
        ends: &Sender<io::Result<()>>,
    ) -> io::Result<bool> {
        let Some(plan) = &self.plan else { return Ok(false) };
        // A report waits until it is known: requests may come before this returns.
        let mut known = self.state.lock();
        match plan.start(device, dispatch, how, ends) {
            Ok(queues) => known.queues = Some(queues),
            Err(NotStarted::Failed(error)) => return Err(error),
            Err(NotStarted::Refused(why)) => {
                tracing::warn!(why, "no rings: requests come over the device");
                (known.ring, known.why) = (false, why);
            }
        }
        Ok(known.ring)
    }
}

/// Why the kernel's INIT did not offer rings.
fn not_offered() -> String {
    match std::fs::read_to_string(PARAMETER) {
        Ok(_) => {
            format!("rings are switched off in the kernel (`siftfs tune on` sets {PARAMETER})")
        }
        Err(_) => "this kernel has no FUSE over io_uring".to_string(),
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
