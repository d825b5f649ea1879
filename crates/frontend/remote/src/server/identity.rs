//! For whom a session speaks: by its channel, and by the claim as far as the channel bears it out
//! (rules R31 and R52).

use siftfs_base::{Error, Result};
use siftfs_calls::Claim;
use siftfs_keys::{AuthorizedLine, Role, Use};
use siftfs_proto::{Identity, Limits, Opening, Rights};
use siftfs_transport::Peer;

/// Bytes of data that a session's calls may carry or ask for together.
pub(super) const BYTES: u64 = 64 << 20;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Channel<'a> {
    /// A process of this machine, as the kernel says.
    Process(Peer),
    /// A machine that has the key of this line.
    Key(&'a AuthorizedLine),
    /// Anybody who reaches the port.
    Nobody,
}

fn limits() -> Limits {
    Limits { bytes: BYTES, ..Limits::default() }
}

/// How the session of a client is opened, of a volume that is called by these names.
///
/// # Errors
/// The channel does not bear the claim out.
pub(super) fn judge(
    channel: Channel<'_>,
    claim: Claim,
    is_called: impl Fn(&str) -> bool,
) -> Result<Opening> {
    match channel {
        Channel::Process(peer) => by_process(peer, claim),
        Channel::Key(line) => {
            line.allow(Use::FileProtocol, is_called).map_err(Error::Refused)?;
            by_key(line, claim)
        }
        Channel::Nobody => match claim {
            Claim::User { uid, gid, .. } if uid != 0 && gid != 0 => Ok(user(uid, gid)),
            claim => Err(not_borne_out(&claim)),
        },
    }
}

/// One user, without further groups and without capabilities.
fn user(uid: u32, gid: u32) -> Opening {
    Opening { limits: limits(), ..Opening::user(uid, gid, Rights::default()) }
}

fn by_process(peer: Peer, claim: Claim) -> Result<Opening> {
    let own = rustix::process::geteuid().as_raw();
    let trusted = peer.uid == 0 || peer.uid == own;
    Ok(match claim {
        Claim::Kernel if trusted => Opening::kernel(),
        Claim::Owner if trusted => Opening { limits: limits(), ..Opening::owner() },
        Claim::User { uid, gid, rights } if trusted => {
            Opening { limits: limits(), ..Opening::user(uid, gid, rights) }
        }
        Claim::User { uid, gid, .. } if (peer.uid, peer.gid) == (uid, gid) => user(uid, gid),
        claim => return Err(not_borne_out(&claim)),
    })
}

/// A machine's users are who the line of its key says. A kernel checks for itself what its users
/// may do: one is believed whose root is.
fn by_key(line: &AuthorizedLine, claim: Claim) -> Result<Opening> {
    let administrator = line.role == Role::Admin && line.is_trusted();
    let limits = limits();
    match claim {
        Claim::Kernel if line.is_trusted() => {
            Ok(Opening { identity: Identity::Kernel, administrator, limits })
        }
        Claim::Owner if administrator => Ok(Opening { limits, ..Opening::owner() }),
        Claim::User { uid, gid, rights } => {
            let claimed = line.ids.squash(uid, gid, &rights.groups);
            let kept = if claimed.keeps_capabilities { rights } else { bounds_of(rights) };
            let rights = Rights { groups: claimed.groups, ..kept };
            let opening = Opening::user(claimed.uid, claimed.gid, rights);
            Ok(Opening { administrator: administrator && claimed.uid == 0, limits, ..opening })
        }
        Claim::Kernel => Err(Error::Refused(format!(
            "a mount speaks for all its users, and the line of the key {} says who they are not; \
             mounts need squash=none, without maps and subtree",
            line.name()
        ))),
        Claim::Owner => Err(Error::Refused(format!(
            "the key {} is no administrator's that speaks for root: role=admin squash=none, \
             without maps and subtree",
            line.name()
        ))),
    }
}

/// What of a claim takes something away from its user.
fn bounds_of(rights: Rights) -> Rights {
    Rights { file_size: rights.file_size, running: rights.running, ..Rights::default() }
}

fn not_borne_out(claim: &Claim) -> Error {
    let why = match claim {
        Claim::Kernel => "speaks for a kernel",
        Claim::Owner => "speaks for the volume's owner",
        Claim::User { .. } => "speaks for another user, or for root",
    };
    Error::Refused(format!("the client {why}, and its connection does not"))
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
