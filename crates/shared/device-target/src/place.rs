//! Which volume of which target.

use crate::calls::QUEUE;
use siftfs_base::{Error, Result};
use siftfs_transport::{
    Address, CallerEnd, Secured, TransportOptions, connect_over, dial_unix, reach,
};
use siftfs_wire::BlockProtocol;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What a place begins with that names a target's volume.
const SCHEME: &str = "target:";

/// A volume at a target: `target:ADDRESS/VOLUME`.
#[derive(Clone)]
pub struct TargetPlace {
    /// Address of the target's process.
    pub address: Address,
    /// What the volume is called there, or its UUID.
    pub volume: String,
    /// What the connection may cost.
    pub options: TransportOptions,
    /// The keys of both ends, over TCP.
    pub secured: Option<Secured>,
}

impl TargetPlace {
    /// Address and volume of `target:ADDRESS/VOLUME`; `None` for what does not begin so.
    ///
    /// # Errors
    /// It begins so and names no address or no volume.
    pub fn parse(text: &str) -> Option<std::result::Result<(Address, String), String>> {
        let rest = text.strip_prefix(SCHEME)?;
        Some(match rest.rsplit_once('/') {
            Some((address, volume)) if !volume.is_empty() => address
                .parse()
                .map(|address| (address, volume.to_owned()))
                .map_err(|e| format!("{text}: {e}")),
            _ => Err(format!("{text}: say which volume: {SCHEME}ADDRESS/VOLUME")),
        })
    }

    /// A new connection, on which nothing was said.
    pub(crate) fn connect(&self) -> Result<CallerEnd<BlockProtocol>> {
        let options = TransportOptions { queue: QUEUE, ..self.options.clone() };
        reach::<BlockProtocol>(&self.address, &options, self.secured.as_ref())
    }
}

/// A unix socket that is connected to the process that listens at `path`, for [`over_socket`].
///
/// # Errors
/// Nobody listens there, or takes the connection within five seconds.
pub fn dial(path: &Path) -> Result<OwnedFd> {
    let patience = TransportOptions::default().handshake;
    dial_unix(path, patience).map_err(|e| Error::Link(format!("{}: {e}", path.display())))
}

/// A new connection to the target at this address, over a unix socket that is connected to it. The
/// socket is its one descriptor.
///
/// # Errors
/// No target is there, or it is of another version.
pub fn over_socket(socket: OwnedFd, address: &Address) -> Result<CallerEnd<BlockProtocol>> {
    let options =
        TransportOptions { queue: QUEUE, shared_memory: 0, ..TransportOptions::default() };
    connect_over::<BlockProtocol>(socket, address, &options)
}

/// As it is named on a command line.
impl fmt::Display for TargetPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.address, self.volume)
    }
}

impl fmt::Debug for TargetPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The same volume of the same process.
impl PartialEq for TargetPlace {
    fn eq(&self, other: &Self) -> bool {
        (&self.address, &self.volume) == (&other.address, &other.volume)
    }
}
