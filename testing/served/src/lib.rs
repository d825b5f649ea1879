//! A served volume for tests: a server in this process, reached by every way that there is between
//! processes.

use siftfs_base::Result;
use siftfs_placement::LocalVolume;
use siftfs_remote::{
    Address, Claim, Client, Execution, Listener, Served, Server, TransportOptions, transport,
};
use std::sync::Arc;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// A way from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A unix socket that carries everything.
    Unix,
    /// A unix socket, and shared memory that came by it.
    Shared,
    /// TCP.
    Tcp,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Unix, Way::Shared, Way::Tcp];

    /// Options of a transport by which it is this way that is taken.
    pub fn options(self) -> TransportOptions {
        let options = transport();
        let shared_memory = if self == Way::Shared { options.shared_memory } else { 0 };
        TransportOptions { shared_memory, ..options }
    }
}

/// A server with one listener. Dropped, it ends its sessions.
pub struct Setup {
    /// The server.
    pub server: Arc<Server>,
    /// Where it listens.
    pub address: Address,
    /// How clients are to connect.
    pub options: TransportOptions,
    serves: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Setup {
    /// Serves `volume`, which clients may call "volume".
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn new(volume: &LocalVolume, way: Way) -> Self {
        Self::with(volume.served("volume"), way, Execution::default())
    }

    /// As [`Setup::new`], with a server that carries calls out in this way.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn with(volume: Arc<dyn Served>, way: Way, execution: Execution) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let address = match way {
            Way::Tcp => Address::Tcp { host: "127.0.0.1".into(), port: 0 },
            _ => Address::Unix(dir.path().join("volume.sock")),
        };
        let options = way.options();
        let listener = Listener::bind(&address, &options).expect("an address of its own");
        let (server, address) = (Server::with(volume, execution), listener.address());
        let theirs = server.clone();
        let serves = Some(std::thread::spawn(move || theirs.serve(&listener)));
        Self { server, address, options, serves, _dir: dir }
    }

    /// A session of it.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn client(&self, claim: Claim) -> Result<Client> {
        Client::connect(&self.address, &self.options, "", claim, None)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.server.stop();
        if let Some(serves) = self.serves.take() {
            let ended = serves.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server failed");
        }
    }
}
