//! Serving a volume to other processes, beside mounts or without any.

use crate::options::keys::Admit;
use crate::show::failure::Failure;
use siftfs_placement::Address;
use siftfs_remote::{Listener, Server, TransportOptions};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Listens at all of these addresses.
///
/// # Errors
/// One of them is in use or cannot be used, or keys are missing.
pub fn bind(
    addresses: &[Address],
    admit: &Admit,
    options: &TransportOptions,
) -> Result<Vec<Listener>, Failure> {
    let bind = |address: &Address| admit.listen(address, options).map_err(Failure::plain);
    addresses.iter().map(bind).collect()
}

/// A volume that is served. Dropped, it ends its sessions first.
pub struct Listening {
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
}

impl Listening {
    /// Has a server take clients at all listeners.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(listeners: Vec<Listener>, server: Arc<Server>) -> Result<Self, Failure> {
        let mut listening = Self { server, threads: Vec::new() };
        for listener in listeners {
            let server = listening.server.clone();
            let serve = move || server.serve(&listener);
            let thread = Builder::new().name("siftfs-listen".into()).spawn(serve);
            listening.threads.push(thread.map_err(Failure::plain)?);
        }
        Ok(listening)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.server.stop();
        for thread in self.threads.drain(..) {
            // A failed assertion there has said what happened.
            let _ = thread.join();
        }
        tracing::info!(counts = ?self.server.counts(), "no client is left");
    }
}
