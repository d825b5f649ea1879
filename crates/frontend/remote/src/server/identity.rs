//! For whom a session speaks: by its channel, and by the claim as far as the channel bears it out
//! (rules R31 and R52).

use super::bounds::{Caller, believed};
use siftfs_base::{Error, Result};
use siftfs_calls::{Claim, Returning};
use siftfs_keys::{AuthorizedLine, Role, Use};
use siftfs_proto::{Identity, Limits, Opening, Rights};
use siftfs_transport::Peer;

/// Bytes of data that a session's calls may carry or ask for together.
pub(super) const BYTES: u64 = 64 << 20;

/// What tells clients' owners apart.
pub(super) type Whose = [u8; 32];

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

/// Whose a client is that comes back: a key's, or a user's of this machine; none for the server's
/// own user and root, who may be anybody. Nobody comes back as the client of another one.
pub(super) fn whose(channel: Channel<'_>, claim: &Claim) -> Option<Whose> {
    let user = |kind: u8, uid: u32| {
        let mut whose = [0; 32];
        whose[0] = kind;
        whose[1..5].copy_from_slice(&uid.to_le_bytes());
        Some(whose)
    };
    match (channel, claim) {
        (Channel::Key(line), _) => Some(*line.key.fingerprint().bytes()),
        (Channel::Process(peer), _) if is_trusted(peer) => None,
        (Channel::Process(peer), _) => user(1, peer.uid),
        (Channel::Nobody, Claim::User { uid, .. }) => user(2, *uid),
        (Channel::Nobody, _) => user(3, 0),
    }
}

/// By which number a client that comes back is known: that which it says, of its own.
pub(super) fn own_number(whose: Option<&Whose>, returning: Returning) -> Returning {
    let Some(whose) = whose else { return returning };
    Returning { client: siftfs_keys::own_number(whose, returning.client), ..returning }
}

/// The session of a user becomes that of a program that comes back. The answer says for whom all
/// its calls are to be carried out; none for another session.
pub(super) fn as_program(opening: &mut Opening) -> Option<Caller> {
    let Identity::User { .. } = opening.identity else { return None };
    match std::mem::replace(&mut opening.identity, Identity::Program) {
        Identity::User { uid, gid, rights } => Some(Caller { uid, gid, rights }),
        _ => None,
    }
}

fn is_trusted(peer: Peer) -> bool {
    peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw()
}

/// One user, without further groups and without capabilities.
fn user(uid: u32, gid: u32) -> Opening {
    Opening { limits: limits(), ..Opening::user(uid, gid, Rights::default()) }
}

fn by_process(peer: Peer, claim: Claim) -> Result<Opening> {
    let trusted = is_trusted(peer);
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

/// A machine's users are who the line of its key says. A kernel whose root is believed is believed
/// in all: it has checked what its users may do. The callers of any other are checked one by one.
fn by_key(line: &AuthorizedLine, claim: Claim) -> Result<Opening> {
    let administrator = line.role == Role::Admin && line.is_trusted();
    let limits = limits();
    match claim {
        Claim::Kernel if line.is_trusted() => {
            Ok(Opening { administrator, limits, ..Opening::kernel() })
        }
        Claim::Kernel => Ok(Opening { limits, ..Opening::machine() }),
        Claim::Owner if administrator => Ok(Opening { limits, ..Opening::owner() }),
        Claim::User { uid, gid, rights } => {
            let (uid, gid, rights) = believed(&line.ids, (uid, gid), rights);
            let opening = Opening::user(uid, gid, rights);
            Ok(Opening { administrator: administrator && uid == 0, limits, ..opening })
        }
        Claim::Owner => Err(Error::Refused(format!(
            "the key {} is no administrator's that speaks for root: role=admin squash=none, \
             without maps and subtree",
            line.name()
        ))),
    }
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
