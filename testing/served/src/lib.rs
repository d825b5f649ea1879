//! A served volume for tests: a server in this process, reached by every way that there is between
//! processes.

mod bounded;
pub mod returning;

pub use bounded::{BoundedVolume, line};

use siftfs_base::Result;
use siftfs_keys::KeyPair;
use siftfs_placement::LocalVolume;
use siftfs_proto::Cache;
use siftfs_remote::{
    Address, Before, Claim, Client, Execution, Lasting, Listener, Patience, Secured, Served,
    Server, ServerTls, TransportOptions, Trust, Ways, transport,
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
    /// TCP with keys.
    Secret,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 4] = [Way::Unix, Way::Shared, Way::Tcp, Way::Secret];
    /// Those over which a client of these tests may claim to be the owner.
    pub const TRUSTED: [Way; 3] = [Way::Unix, Way::Shared, Way::Secret];

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
    /// The keys of both ends, over [`Way::Secret`].
    pub secured: Option<Secured>,
    serves: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Setup {
    /// Serves `volume`, which clients may call "volume".
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn new(volume: &LocalVolume, way: Way) -> Self {
        Self::admitting(volume, way, "role=admin squash=none")
    }

    /// The same; over [`Way::Secret`] these are the options of the client's line.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn admitting(volume: &LocalVolume, way: Way, line: &str) -> Self {
        Self::serving(volume.served("volume").unwrap(), way, line)
    }

    /// The same, of a volume as a server has it.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn serving(volume: Arc<dyn Served>, way: Way, line: &str) -> Self {
        Self::executing(volume, way, (line, Execution::default()))
    }

    /// The same, with a server that carries calls out in this way.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn with(volume: Arc<dyn Served>, way: Way, execution: Execution) -> Self {
        Self::executing(volume, way, ("role=admin squash=none", execution))
    }

    /// The same, after another server of the volume, by a unix socket.
    ///
    /// # Panics
    /// If it cannot listen, or its book cannot be written.
    pub fn after(volume: Arc<dyn Served>, before: Before) -> Self {
        Self::after_by(volume, before, Way::Unix)
    }

    /// The same, by another way.
    ///
    /// # Panics
    /// As [`Setup::after`].
    pub fn after_by(volume: Arc<dyn Served>, before: Before, way: Way) -> Self {
        let server = Server::after(volume, Execution::default(), before).expect("a book");
        Self::listening(server, way, "")
    }

    fn executing(volume: Arc<dyn Served>, way: Way, (line, execution): (&str, Execution)) -> Self {
        Self::listening(Server::with(volume, execution), way, line)
    }

    fn listening(server: Arc<Server>, way: Way, line: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let address = match way {
            Way::Tcp | Way::Secret => Address::Tcp { host: "127.0.0.1".into(), port: 0 },
            _ => Address::Unix(dir.path().join("volume.sock")),
        };
        let options = way.options();
        let mut listener = Listener::bind(&address, &options).expect("an address of its own");
        let mut secured = None;
        if way == Way::Secret {
            let (tls, trust) = keys(&dir, line);
            listener = listener.admitting(tls);
            let client = trust.secure(&listener.address(), &options, None);
            secured = client.expect("keys that were just made");
        }
        let address = listener.address();
        let theirs = server.clone();
        let serves = Some(std::thread::spawn(move || theirs.serve(&listener)));
        Self { server, address, options, secured, serves, _dir: dir }
    }

    /// A session of it.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn client(&self, claim: Claim) -> Result<Client> {
        let reached = (&self.options, self.secured.as_ref());
        Client::connect(&self.address, reached, "", claim, None)
    }

    /// A mount's session of it, as `siftfs mount ADDRESS DIR` has one: it comes back where the
    /// server lets it, and its calls wait for the server meanwhile.
    ///
    /// # Errors
    /// As [`Lasting::connect`].
    pub fn lasting(&self, cache: Arc<dyn Cache>) -> Result<Lasting> {
        self.lasting_by(&self.address, cache)
    }

    /// As [`Setup::lasting`], by way of what listens here and leads to the server.
    ///
    /// # Errors
    /// As there.
    pub fn lasting_by(&self, address: &Address, cache: Arc<dyn Cache>) -> Result<Lasting> {
        let ways = Ways::to(address, (&self.options, self.secured.as_ref()));
        Lasting::connect(ways, ("", Claim::Kernel), Some(cache), Patience::Hard)
    }
}

/// A server's keys, and a client's who is admitted by a line of these options.
fn keys(dir: &TempDir, line: &str) -> (Arc<ServerTls>, Trust) {
    let pair = |name| KeyPair::generate(name).expect("a key");
    let (server, client) = (pair("server"), pair("client"));
    let (key, authorized) = (dir.path().join("key"), dir.path().join("authorized"));
    client.save(&key).expect("a file of its own");
    let written = std::fs::write(&authorized, format!("{line} {}\n", client.line()));
    written.expect("a file of its own");
    let trust = Trust {
        key: Some(key),
        known_servers: Some(dir.path().join("known_servers")),
        fingerprint: Some(server.public().fingerprint()),
        insecure: false,
    };
    (ServerTls::new(&server, &authorized).expect("a file of one line"), trust)
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
