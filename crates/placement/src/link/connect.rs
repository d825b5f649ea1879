//! Ways to a Service: over a transport, or in this process while the device process is away.

use crate::device::replay::Replay;
use crate::device::server::{Server, ServerOptions};
use siftfs_base::{Error, Result};
use siftfs_transport::{
    Address, CallerEnd, Received, Secured, TransportOptions, in_process, nobody_listens, reach,
};
use siftfs_volume::Media;
use siftfs_wire::{BlockProtocol, FromService, PROTOCOL_VERSION, ToService};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The Runtime's end of a connection.
pub type HostEnd = CallerEnd<BlockProtocol>;

/// Reaches a device process.
pub trait Connector: Send + Sync {
    /// A new connection, on which nothing was said.
    ///
    /// # Errors
    /// Why no process can be reached there.
    fn connect(&self) -> Result<HostEnd>;
    /// Address of the process, in words for people.
    fn address(&self) -> String;
    /// Does the system say that no process listens there? False in every doubt.
    fn nobody_listens(&self) -> bool {
        false
    }
}

/// A device process that listens at an address.
pub struct Dial {
    /// Address of the device process.
    pub address: Address,
    /// What the connection may cost.
    pub options: TransportOptions,
    /// The keys of both ends, over TCP.
    pub secured: Option<Secured>,
}

impl Connector for Dial {
    fn connect(&self) -> Result<HostEnd> {
        reach::<BlockProtocol>(&self.address, &self.options, self.secured.as_ref())
    }
    fn address(&self) -> String {
        self.address.to_string()
    }
    fn nobody_listens(&self) -> bool {
        nobody_listens(&self.address)
    }
}

/// How long the answer to an inquiry is waited for. Without one the Hello tells.
const INQUIRY: Duration = Duration::from_secs(10);

/// Asks a device process whether it would serve the volume, before this host writes anything.
///
/// # Errors
/// Refused in the device process's words. If no answer comes, this succeeds: the Hello will be
/// refused, if it has to be.
pub(crate) fn inquire(mut end: HostEnd, volume: [u8; 16]) -> Result<()> {
    let question = ToService::Inquire { version: PROTOCOL_VERSION, volume };
    let asked = end.sender.send(question).and_then(|()| end.receiver.recv(Some(INQUIRY)));
    match asked {
        Ok(Received::Message(FromService::Refused { reason })) => {
            Err(Error::Refused(format!("{} refused: {reason}", end.peer)))
        }
        _ => Ok(()),
    }
}

/// A Service in this process, on the host's own open devices, so that the lock is on the open file
/// that does the I/O.
pub(crate) struct Local {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Local {
    /// Starts it; it has the role, or says why not, once it was greeted.
    pub fn start(media: Media, replay: Replay) -> Result<(HostEnd, Self)> {
        let (host, device) = in_process::<BlockProtocol>(TransportOptions::default());
        let options =
            ServerOptions { patience: Duration::ZERO, replay, ..ServerOptions::default() };
        let server = Arc::new(Server::new(Box::new(move || Ok(media.clone())), options));
        let serving = server.clone();
        let thread = std::thread::Builder::new()
            .name("siftfs-service".into())
            .spawn(move || serving.session(device))
            .map_err(|e| Error::Refused(format!("cannot start the Service's thread: {e}")))?;
        Ok((host, Self { server, thread: Some(thread) }))
    }

    /// Ends at the next boundary of a step, with a Bye.
    pub fn stop(&self) {
        self.server.stop();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // It leaves unfinished work: the next Service finishes it.
        self.server.stop();
        if self.thread.take().is_some_and(|t| t.join().is_err()) {
            tracing::error!("the Service's thread ended with a failed assertion");
        }
    }
}

/// Probes, beside the work, whether a device process that was away can be reached again.
pub(crate) struct ReconnectProbe {
    back: Arc<AtomicBool>,
    stop: Arc<(Mutex<bool>, Condvar)>,
}

/// Pauses between two probes: the first, and the longest.
const LOOK: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

impl ReconnectProbe {
    /// Starts to probe.
    pub fn watch(connector: Arc<dyn Connector>) -> Self {
        let watch = Self { back: Arc::default(), stop: Arc::default() };
        let (back, stop) = (watch.back.clone(), watch.stop.clone());
        let look = move || {
            let mut stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut pause = LOOK[0];
            while !*stopped {
                stopped = match stop.1.wait_timeout(stopped, pause) {
                    Ok((guard, _)) => guard,
                    Err(poisoned) => poisoned.into_inner().0,
                };
                pause = (pause * 2).min(LOOK[1]);
                if *stopped {
                    return;
                }
                drop(stopped);
                if let Ok(end) = connector.connect() {
                    end.sender.close();
                    return back.store(true, Ordering::Release);
                }
                stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
            }
        };
        let spawned = std::thread::Builder::new().name("siftfs-probe".into()).spawn(look);
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread checks whether the device process is back");
        }
        watch
    }

    /// Was the device process reached?
    pub fn is_back(&self) -> bool {
        self.back.load(Ordering::Acquire)
    }
}

impl Drop for ReconnectProbe {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
    }
}
