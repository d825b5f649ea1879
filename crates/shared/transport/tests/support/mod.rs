//! What the tests of the transports share.
#![allow(dead_code)]

#[path = "../../../wire/src/samples.rs"]
pub mod samples;

use siftfs_base::BlockRun;
use siftfs_transport::{
    Address, CallerEnd, Received, ServerEnd, TransportOptions, connect, in_process,
};
use siftfs_wire::{BlockProtocol, DirectRun, FromService, ToService};
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
}

pub const WAYS: [Way; 4] = [Way::InProcess, Way::Unix, Way::Shared, Way::Tcp];
/// Those that leave the process.
pub const OUTSIDE: [Way; 3] = [Way::Unix, Way::Shared, Way::Tcp];

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
