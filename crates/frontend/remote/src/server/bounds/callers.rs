//! The callers of a machine's mount: each call brings one in the client's ids, with the rights that
//! the mount has read of it. It becomes what the key's line leaves of it (rule R52).

use siftfs_keys::{AuthorizedLine, Ids};
use siftfs_proto::{Credentials, Rights};
use std::sync::Arc;

/// Most supplementary groups of a caller, as Linux has it (NGROUPS_MAX).
const MOST_GROUPS: usize = 65_536;

/// What becomes of the callers of a machine.
#[derive(Clone)]
pub(super) struct Callers(Arc<Ids>);

impl Callers {
    /// Those of a line.
    pub fn of(line: &AuthorizedLine) -> Self {
        Self(Arc::new(line.ids.clone()))
    }

    /// The caller of a request as the server sees it. Without rights it has none. Its process is
    /// one of another machine, and no number of it is kept.
    pub fn judge(&self, cred: &Credentials) -> Credentials {
        let rights = cred.rights.as_deref().cloned().unwrap_or(Rights::NONE);
        let (uid, gid, rights) = believed(&self.0, (cred.uid, cred.gid), rights);
        let rights = Some(Box::new(rights));
        Credentials { uid, gid, pid: 0, umask: cred.umask, rights, origin: cred.origin.clone() }
    }

    /// What is left of the rights that a request of this caller brings itself.
    pub fn rights(&self, cred: &Credentials, claimed: &mut Rights) {
        let rights = std::mem::take(claimed);
        (_, _, *claimed) = believed(&self.0, (cred.uid, cred.gid), rights);
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
