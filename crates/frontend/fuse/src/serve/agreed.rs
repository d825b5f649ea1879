//! What the kernel agreed to at the mount, and what follows from that alone.

use crate::kernel::request::{Message, Operation};
use crate::serve::caller::{UNKNOWN, acting_user, administers, may_do_all};
use siftfs_base::{Result, errno};
use siftfs_proto::Credentials;

/// What the kernel agreed to at the mount.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    /// The kernel checks permissions by access control lists.
    pub(crate) acls: bool,
    /// The kernel keeps written pages back, and owns the size and times of files.
    pub(crate) writeback: bool,
    /// The kernel calls a page written when the server has it, and not before.
    pub(crate) settled: bool,
    /// The kernel does without OPENDIR when it is answered ENOSYS.
    pub(crate) no_opendir: bool,
    /// Mounts may map users to others: of most requests nobody knows whose they are.
    pub(crate) idmap: bool,
    /// Other mounts of the volume may be there: the server keeps file locks.
    pub(crate) shared: bool,
    /// Programs may have write leases of files.
    pub(crate) private_logs: bool,
}

impl Agreed {
    /// Does a change of a file's data move its times? Not if the kernel owns them: with the
    /// writeback cache it moves its own with every write, fallocate, copy and truncation and sends
    /// them if they changed. A time of ours would stay beside an unchanged one of the kernel's.
    pub(crate) fn moves_times(&self) -> bool {
        !self.writeback
    }

    /// Does a write through a descriptor with these flags go to the end, as the kernel knows it? A
    /// kernel that owns the size knows it.
    pub(crate) fn appends(&self, flags: u32) -> bool {
        !self.writeback && flags & libc::O_APPEND.cast_unsigned() != 0
    }

    /// Of the names that begin with `system.` the two of access control lists are known, if the
    /// kernel enforces them. Others get EOPNOTSUPP: to accept a list that is not enforced would
    /// mislead.
    pub(crate) fn check_xattr_name(&self, name: &[u8]) -> Result<()> {
        let acl = name == b"system.posix_acl_access" || name == b"system.posix_acl_default";
        if name.starts_with(b"system.") && !(acl && self.acls) {
            return Err(errno(libc::EOPNOTSUPP));
        }
        Ok(())
    }
}

/// Callers of a mount whose users may be mapped to others (idmapped mounts).
///
/// The kernel checks permissions itself, with the mapping of the mount that the call came through.
/// A request that makes an inode brings the owner that it is to have. All others bring no user and
/// no group at all, on whatever mount. What we decide by users is then decided by what can be known
/// without the mapping: the rights of the thread, and the user that it acts as, which says who has
/// a file open, and never whose a file is. Where that is not enough the answer is the strict one.
impl Agreed {
    /// The node, caller and operation of a message. The caller is root where the kernel has decided
    /// all that is to be decided: it looks at sticky directories before it asks for a name to be
    /// taken away.
    pub(crate) fn checked<'a>(&self, message: Message<'a>) -> (u64, Credentials, Operation<'a>) {
        let Message { node, mut cred, op, .. } = message;
        let removes = matches!(
            op,
            Operation::Unlink { .. } | Operation::RemoveDir { .. } | Operation::Rename { .. }
        );
        if self.idmap && removes && cred.uid == UNKNOWN {
            (cred.uid, cred.gid) = (0, 0);
        }
        (node, cred, op)
    }

    /// The user that the caller acts as, to be compared with those who have a file open.
    pub(crate) fn user(&self, cred: &Credentials) -> Option<u32> {
        if self.idmap { acting_user(cred.pid) } else { Some(cred.uid) }
    }

    /// The caller as one who opens a file. Root is one here only if it acts as root, and not if its
    /// mount maps it to root.
    pub(crate) fn opener(&self, cred: &Credentials) -> Credentials {
        match self.idmap {
            true => {
                let uid = acting_user(cred.pid).unwrap_or(UNKNOWN);
                Credentials { uid, gid: UNKNOWN, ..cred.clone() }
            }
            false => cred.clone(),
        }
    }

    /// Is the caller shown attributes that are root's?
    pub(crate) fn sees_trusted(&self, cred: &Credentials) -> bool {
        cred.uid == 0 || self.idmap && administers(cred)
    }

    /// The caller of what the kernel checks no permissions for, and we do.
    ///
    /// # Errors
    /// EPERM if it is not known whose files are the caller's, unless it may do everything.
    pub(crate) fn decided_here(&self, cred: &Credentials) -> Result<Credentials> {
        if !self.idmap {
            return Ok(cred.clone());
        }
        match may_do_all(cred) {
            true => Ok(Credentials { uid: 0, gid: 0, ..cred.clone() }),
            false => Err(errno(libc::EPERM)),
        }
    }
}
