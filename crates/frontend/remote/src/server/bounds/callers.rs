//! The callers of a session. Of a machine's mount each call brings one in the client's ids, with
//! the rights that the mount has read of it; it becomes what the key's line leaves of it (rule
//! R52). Of a program all calls have the same caller, whatever they bring.

use siftfs_keys::{AuthorizedLine, Ids};
use siftfs_proto::{Credentials, Rights};
use std::sync::Arc;

/// Most supplementary groups of a caller, as Linux has it (NGROUPS_MAX).
const MOST_GROUPS: usize = 65_536;

/// What becomes of the callers of a session.
#[derive(Clone)]
pub(super) enum Callers {
    /// Of a machine: what these ids leave of them.
    Of(Arc<Ids>),
    /// Of a program: this one.
    One(Arc<Caller>),
}

/// For whom a program's calls are carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub rights: Rights,
}

impl Callers {
    /// Those of a line.
    pub fn of(line: &AuthorizedLine) -> Self {
        Self::Of(Arc::new(line.ids.clone()))
    }

    /// The caller of a request as the server sees it. Without rights it has none. A process of
    /// another machine has no number that is kept.
    pub fn judge(&self, cred: &Credentials) -> Credentials {
        let ((uid, gid, rights), pid) = match self {
            Self::Of(ids) => {
                let rights = cred.rights.as_deref().cloned().unwrap_or(Rights::NONE);
                (believed(ids, (cred.uid, cred.gid), rights), 0)
            }
            Self::One(caller) => ((caller.uid, caller.gid, caller.rights.clone()), cred.pid),
        };
        let rights = Some(Box::new(rights));
        Credentials { uid, gid, pid, umask: cred.umask, rights, origin: cred.origin.clone() }
    }

    /// What is left of the rights that a request of this caller brings itself.
    pub fn rights(&self, cred: &Credentials, claimed: &mut Rights) {
        let rights = std::mem::take(claimed);
        *claimed = match self {
            Self::Of(ids) => believed(ids, (cred.uid, cred.gid), rights).2,
            Self::One(caller) => caller.rights.clone(),
        };
    }
}

/// What a claim is worth in the server's ids: user, group and rights. Capabilities are left where
/// the ids say so, and what takes something away from the user always.
pub(in crate::server) fn believed(
    ids: &Ids,
    (uid, gid): (u32, u32),
    rights: Rights,
) -> (u32, u32, Rights) {
    let groups = if rights.groups.len() > MOST_GROUPS { &[][..] } else { &rights.groups };
    let claimed = ids.squash(uid, gid, groups);
    let kept = match claimed.keeps_capabilities {
        true => rights,
        false => {
            Rights { file_size: rights.file_size, running: rights.running, ..Rights::default() }
        }
    };
    (claimed.uid, claimed.gid, Rights { groups: claimed.groups, ..kept })
}

#[cfg(test)]
#[path = "callers_tests.rs"]
mod tests;
