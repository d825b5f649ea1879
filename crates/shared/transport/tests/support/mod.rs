//! What the tests of the transports share.
#![allow(dead_code)]

#[path = "../../../wire/src/samples.rs"]
pub mod samples;

use siftfs_base::BlockRun;
use siftfs_keys::KeyPair;
use siftfs_transport::{
    Address, CallerEnd, Received, ServerEnd, ServerTls, TransportOptions, Trust, connect,
    in_process, reach,
};
use siftfs_wire::{BlockProtocol, DirectRun, FromService, ToService};
use std::path::Path;
use std::time::Duration;

pub type HostEnd = CallerEnd<BlockProtocol>;
pub type DeviceEnd = ServerEnd<BlockProtocol>;
pub type Listener = siftfs_transport::Listener<BlockProtocol>;

/// Options under which nothing is given up for slowness.
pub fn patient() -> TransportOptions {
    TransportOptions {
        stall: Duration::from_secs(300),
        handshake: Duration::from_secs(60),
        ..Default::default()
    }
}

/// Every way between two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    InProcess,
    Unix,
    Shared,
    Tcp,
    /// TCP with keys.
    Secret,
}

pub const WAYS: [Way; 5] = [Way::InProcess, Way::Unix, Way::Shared, Way::Tcp, Way::Secret];
/// Those that leave the process.
pub const OUTSIDE: [Way; 4] = [Way::Unix, Way::Shared, Way::Tcp, Way::Secret];

/// A server's keys and a caller's that know each other, as files.
pub struct Acquainted {
    dir: tempfile::TempDir,
    server: KeyPair,
}

impl Acquainted {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (server, caller) = (KeyPair::generate("server"), KeyPair::generate("caller"));
        let (server, caller) = (server.unwrap(), caller.unwrap());
        caller.save(&dir.path().join("key")).unwrap();
        let line = format!("role=host {}\n", caller.line());
        std::fs::write(dir.path().join("authorized"), line).unwrap();
        // For a process that is started later.
        let print = server.public().fingerprint().to_string();
        std::fs::write(dir.path().join("fingerprint"), print).unwrap();
        Self { dir, server }
    }

    pub fn listen(&self, options: &TransportOptions) -> Listener {
        let address = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
        let tls = ServerTls::new(&self.server, &self.dir.path().join("authorized")).unwrap();
        Listener::bind(&address, options).unwrap().admitting(tls)
    }

    /// Where the caller's files are.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub fn keys(&self) -> Trust {
        keys_in(self.folder())
    }
}

/// A caller's keys out of the folder of an [`Acquainted`].
pub fn keys_in(folder: &Path) -> Trust {
    let print = std::fs::read_to_string(folder.join("fingerprint")).unwrap();
    Trust {
        key: Some(folder.join("key")),
        known_servers: Some(folder.join("known_servers")),
        fingerprint: Some(print.parse().unwrap()),
        insecure: false,
    }
}

impl Way {
    /// `options` so that this way is the one taken.
    pub fn options(self, options: &TransportOptions) -> TransportOptions {
        let shared_memory = if self == Way::Shared { options.shared_memory } else { 0 };
        TransportOptions { shared_memory, ..options.clone() }
    }

    pub fn listen(self, options: &TransportOptions) -> (Listener, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let address = match self {
            Way::Tcp => Address::Tcp { host: "127.0.0.1".into(), port: 0 },
            _ => Address::Unix(dir.path().join("device.sock")),
        };
        (Listener::bind(&address, &self.options(options)).unwrap(), dir)
    }
}

/// A connected pair.
pub fn pair(way: Way, options: &TransportOptions) -> (HostEnd, DeviceEnd) {
    pair_with(way, options, options)
}

/// A connected pair whose sides have different options.
pub fn pair_with(
    way: Way,
    host: &TransportOptions,
    device: &TransportOptions,
) -> (HostEnd, DeviceEnd) {
    if way == Way::InProcess {
        return in_process::<BlockProtocol>(host.clone());
    }
    if way == Way::Secret {
        let (acquainted, options) = (Acquainted::new(), way.options(host));
        let listener = acquainted.listen(&way.options(device));
        let address = listener.address();
        let secured = acquainted.keys().secure(&address, &options, None).unwrap();
        let host = std::thread::spawn(move || {
            reach::<BlockProtocol>(&address, &options, secured.as_ref())
        });
        let device = listener.accept(None).unwrap().unwrap();
        return (host.join().unwrap().unwrap(), device);
    }
    let (listener, _dir) = way.listen(device);
    let (address, host) = (listener.address(), way.options(host));
    let host = std::thread::spawn(move || connect::<BlockProtocol>(&address, &host));
    let device = listener.accept(None).unwrap().unwrap();
    (host.join().unwrap().unwrap(), device)
}

pub fn to_device(end: &mut DeviceEnd) -> ToService {
    match end.receiver.recv(None) {
        Ok(Received::Message(message)) => message,
        other => panic!("no message but {other:?}"),
    }
}

pub fn to_host(end: &mut HostEnd) -> FromService {
    match end.receiver.recv(None) {
        Ok(Received::Message(message)) => message,
        other => panic!("no message but {other:?}"),
    }
}

/// A message with `blocks` blocks.
pub fn bulk(blocks: u64, seed: u8) -> ToService {
    let data = (0..blocks).map(|i| samples::block(seed.wrapping_add(i as u8))).collect();
    let runs = vec![DirectRun { run: BlockRun { start: 1, len: blocks }, data }];
    ToService::Direct { seq: siftfs_base::TxnSeq(u64::from(seed)), runs, waited: false }
}
