//! What a caller may do with the directories of a path that the kernel has not checked: by mode,
//! access control list and groups, as the kernel would.

use crate::namespace::acl::ACCESS;
use crate::state::State;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_ext4::xattr::{Acl, AclTag};
use siftfs_proto::{Credentials, Rights};

/// The right to look names up in a directory.
pub const SEARCH: u16 = 1;
/// The right to change names in a directory, which includes to look them up.
pub const CHANGE: u16 = 3;

/// The caller, as far as rights to directories go.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Its ids.
    pub cred: &'a Credentials,
    /// Its groups and capabilities.
    pub rights: &'a Rights,
}

impl Caller<'_> {
    fn is_in(&self, gid: u32) -> bool {
        self.cred.gid == gid || self.rights.groups.contains(&gid)
    }

    /// Does the list grant all of `wanted` to this caller, who does not own the file? The mask
    /// bounds what named users and all groups get; a caller whom any group entry is about is not
    /// one of the others.
    fn granted_by(&self, acl: &Acl, gid: u32, wanted: u16) -> bool {
        let entries = acl.entries();
        let mask = entries.iter().find(|e| e.tag == AclTag::Mask).map_or(7, |e| e.perm);
        let grants = |perm: u16| perm & wanted == wanted;
        if let Some(user) = entries.iter().find(|e| e.tag == AclTag::User && e.id == self.cred.uid)
        {
            return grants(user.perm & mask);
        }
        let about = |tag: AclTag, id: u32| match tag {
            AclTag::GroupObj => self.is_in(gid),
            AclTag::Group => self.is_in(id),
            _ => false,
        };
        let mut groups = entries.iter().filter(|e| about(e.tag, e.id)).peekable();
        if groups.peek().is_some() {
            return groups.any(|e| grants(e.perm & mask));
        }
        entries.iter().any(|e| e.tag == AclTag::Other && grants(e.perm))
    }
}

impl State {
    /// Has the caller the right `wanted` to this directory?
    ///
    /// # Errors
    /// EACCES if not, ENOTDIR if it is no directory.
    pub fn may_access(&mut self, caller: Caller<'_>, dir: InodeNr, wanted: u16) -> Result<()> {
        self.load_dir(dir)?;
        if caller.rights.overrides_access {
            return Ok(());
        }
        let inode = &self.node(dir).inode;
        let (mode, uid, gid) = (inode.mode, inode.uid, inode.gid);
        let granted = if uid == caller.cred.uid {
            mode >> 6 & wanted == wanted
        } else {
            match self.get_xattr(dir, ACCESS) {
                Ok(list) => caller.granted_by(&Acl::from_xattr(&list)?, gid, wanted),
                Err(Error::Posix(libc::ENODATA)) if caller.is_in(gid) => {
                    mode >> 3 & wanted == wanted
                }
                Err(Error::Posix(libc::ENODATA)) => mode & wanted == wanted,
                Err(e) => return Err(e),
            }
        };
        if granted { Ok(()) } else { Err(errno(libc::EACCES)) }
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
