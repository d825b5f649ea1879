//! For whom a session speaks: by its channel, and by the claim as far as the channel bears it out
//! (rule R31).

use siftfs_base::{Error, Result};
use siftfs_calls::Claim;
use siftfs_proto::{Limits, Opening, Rights};
use siftfs_transport::Peer;

/// Bytes of data that a session's calls may carry or ask for together.
pub(super) const BYTES: u64 = 64 << 20;

/// How the session of a client is opened whose process is `peer`, as the kernel says.
///
/// # Errors
/// The channel does not bear the claim out.
pub(super) fn judge(peer: Option<Peer>, claim: Claim) -> Result<Opening> {
    let own = rustix::process::geteuid().as_raw();
    let trusted = peer.is_some_and(|peer| peer.uid == 0 || peer.uid == own);
    let limits = Limits { bytes: BYTES, ..Limits::default() };
    let opening = match (claim, trusted) {
        (Claim::Kernel, true) => Opening::kernel(),
        (Claim::Owner, true) => Opening { limits, ..Opening::owner() },
        (Claim::User { uid, gid, rights }, true) => {
            Opening { limits, ..Opening::user(uid, gid, rights) }
        }
        (Claim::User { uid, gid, .. }, false) if uid != 0 && gid != 0 && peer.is_none() => {
            Opening { limits, ..Opening::user(uid, gid, Rights::default()) }
        }
        (Claim::User { uid, gid, .. }, false)
            if peer.is_some_and(|peer| (peer.uid, peer.gid) == (uid, gid)) =>
        {
            Opening { limits, ..Opening::user(uid, gid, Rights::default()) }
        }
        (claim, _) => {
            let why = match claim {
                Claim::Kernel => "speaks for a kernel",
                Claim::Owner => "speaks for the volume's owner",
                Claim::User { .. } => "speaks for another user, or for root",
            };
            return Err(Error::Refused(format!("the client {why}, and its connection does not")));
        }
    };
    Ok(opening)
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
