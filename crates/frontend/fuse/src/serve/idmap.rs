//! Callers of a mount whose users may be mapped to others (idmapped mounts).
//!
//! The kernel checks permissions itself, with the mapping of the mount that the call came through.
//! A request that makes an inode brings the owner that it is to have. All others bring no user and
//! no group at all, on whatever mount. What we decide by users is then decided by what can be known
//! without the mapping: the rights of the thread, and the user that it acts as, which says who has
//! a file open, and never whose a file is. Where that is not enough the answer is the strict one.

use crate::kernel::request::{Message, Operation};
use crate::serve::caller::{UNKNOWN, acting_user, administers, may_do_all};
use crate::serve::server::Server;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::Credentials;

impl Server {
    /// The node, caller and operation of a message. The caller is root where the kernel has decided
    /// all that is to be decided: it looks at sticky directories before it asks for a name to be
    /// taken away.
    pub(crate) fn checked<'a>(&self, message: Message<'a>) -> (u64, Credentials, Operation<'a>) {
        let Message { node, mut cred, op, .. } = message;
        let removes = matches!(
            op,
            Operation::Unlink { .. } | Operation::RemoveDir { .. } | Operation::Rename { .. }
        );
        if self.agreed.idmap && removes && cred.uid == UNKNOWN {
            (cred.uid, cred.gid) = (0, 0);
        }
        (node, cred, op)
    }

    /// The user that the caller acts as, to be compared with those who have a file open.
    pub(crate) fn user(&self, cred: &Credentials) -> Option<u32> {
        if self.agreed.idmap { acting_user(cred.pid) } else { Some(cred.uid) }
    }

    /// The caller as one who opens a file. Root is one here only if it acts as root, and not if its
    /// mount maps it to root.
    pub(crate) fn opener(&self, cred: &Credentials) -> Credentials {
        match self.agreed.idmap {
            true => {
                let uid = acting_user(cred.pid).unwrap_or(UNKNOWN);
                Credentials { uid, gid: UNKNOWN, ..cred.clone() }
            }
            false => cred.clone(),
        }
    }

    /// On whose account a write to `ino` takes its blocks.
    pub(crate) fn payer(&self, cred: &Credentials, ino: InodeNr) -> Credentials {
        let account = if self.agreed.idmap { self.open_files.account(ino) } else { None };
        account.unwrap_or_else(|| cred.clone())
    }

    /// Is the caller shown attributes that are root's?
    pub(crate) fn sees_trusted(&self, cred: &Credentials) -> bool {
        cred.uid == 0 || self.agreed.idmap && administers(cred)
    }

    /// The caller of what the kernel checks no permissions for, and we do.
    ///
    /// # Errors
    /// EPERM if it is not known whose files are the caller's, unless it may do everything.
    pub(crate) fn decided_here(&self, cred: &Credentials) -> Result<Credentials> {
        if !self.agreed.idmap {
            return Ok(cred.clone());
        }
        match may_do_all(cred) {
            true => Ok(Credentials { uid: 0, gid: 0, ..cred.clone() }),
            false => Err(errno(libc::EPERM)),
        }
    }
}
