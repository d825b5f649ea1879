//! Both ends of the file protocol over a wire: a [`Server`] that gives clients sessions of a
//! volume, and a [`Client`] whose session is a [`FileService`](siftfs_proto::FileService) as one in
//! process is. `docs/design/network.md` is the page for all of it.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod client;
mod desk;
mod executors;
mod processors;
mod server;
mod term;

pub use client::{Client, Dial, Lasting, Lender, Patience, Ways};
pub use executors::{Execution, Schedule};
pub use server::{
    Before, Begins, BookFile, BookStore, Counts, Directory, MOST_VOLUMES, Reception, Secret,
    Served, Server, Tenure, Visit, VolumeEpoch, bounded, bounded_machine, note_epoch, turn_away,
};
pub use siftfs_calls::{Claim, FileProtocol, Opening};
use siftfs_proto::Rights;
pub use siftfs_transport::{
    Address, Addresses, Crossed, Secured, ServerTls, TransportOptions, Trust, served_by_hosts,
};

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Listens for clients.
pub type Listener = siftfs_transport::Listener<FileProtocol>;

/// The claim of this process for its own user: what it has by itself, and no capabilities.
fn own_claim() -> Claim {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.iter().map(|group| group.as_raw()).collect();
    Claim::User {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rights: Rights { groups, ..Rights::default() },
    }
}

/// For whom this process speaks to a server there: for the volume's owner, where it is root's or of
/// the user who has made the unix socket; else, and over TCP, for its own user.
pub fn claim_at(address: &Address) -> Claim {
    let own = rustix::process::geteuid().as_raw();
    match address {
        Address::Unix(socket)
            if own == 0 || std::fs::metadata(socket).map_or(true, |made| made.uid() == own) =>
        {
            Claim::Owner
        }
        _ => own_claim(),
    }
}

/// Options of a transport for calls: messages as long as a call's. It spins where this process has
/// been given processors of its own. Where both ends run anywhere, one that spins may have the
/// processor that the other one needs, which costs more than the sleep that it saves.
pub fn transport() -> TransportOptions {
    let usual = TransportOptions::default();
    let spin = if processors::are_own() { usual.spin } else { Duration::ZERO };
    TransportOptions { max_message: siftfs_calls::MAX_MESSAGE, spin, ..usual }
}

/// The same, to reach one of these addresses: a server that may have another one in its place is
/// given up sooner while a connection to it is made.
pub fn transport_to(addresses: &Addresses) -> TransportOptions {
    let usual = transport();
    if !addresses.are_several() {
        return usual;
    }
    let [dial, handshake] = client::DIAL;
    TransportOptions { dial, handshake, ..usual }
}
